// Panels of a are packed into L1 and multiplied with b one cache line of c at a time: bytes are few enough for L2 or L3
// to supply b. Tiles that go down the rows of c instead lose its cache lines between two writes: 0.266 ms for 196 x
// 1024 x 256 instead of 0.230. Prefetching the next rows of a, or panels of b, costs more than it gains: 0.258 ms for
// 3136 x 64 x 256 instead of 0.250.
#include "kernels/cpu/gemm/gemm_requantized.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/workspace.h"

namespace deft::cpu::detail {

namespace {

constexpr int kColumns = 8, kMostRows = 16;  // of a tile
constexpr int64_t kSmallB = 64 << 10, kBlockBytesA = 48 << 10, kSmallBlockBytesA = 6 << 10;
constexpr int64_t kTogether = 8;  // panels of b: a cache line of c
constexpr float kUnit = 0x1.8p23f;

// False where NaN may appear, which has no byte to saturate to.
bool make_terms(const BlockedGemm& p, int64_t j, int columns, ByteTerms& to) {
  ColumnTerms from{};
  const int32_t* sums = p.packed_b->sums();
  column_terms(p, j, columns, sums ? sums + j : nullptr, from);
  to = {};
  bool finite = true;
  for (int c = 0; c < columns; ++c) {
    for (int at : {c / 2 * 4 + c % 2, c / 2 * 4 + c % 2 + 2}) {
      to.scale[at] = from.scale[c], to.bias[at] = from.bias[c], to.start[at] = from.correction[c];
    }
    finite = finite && std::isfinite(from.scale[c]) && std::isfinite(from.bias[c]);
  }
  return finite;
}

ByteRange byte_range(const BlockedGemm& p) {
  const int zero = p.epilogue.out_zero, low = p.c_dtype == DType::i8 ? -128 : 0, high = low + 255;
  const int least = p.epilogue.activation == Activation::relu ? std::clamp(zero, low, high) : low;
  ByteRange range;
  std::fill_n(range.unit, 4, kUnit);
  std::fill_n(range.least, 4, kUnit + static_cast<float>(least - zero));
  std::fill_n(range.most, 4, kUnit + static_cast<float>(high - zero));
  std::fill_n(range.zero, 16, static_cast<uint8_t>(zero));
  return range;
}

class ByteRegion {
 public:
  ByteRegion(const BlockedGemm& p, int64_t n0, int64_t n1)
      : p_(p),
        t_(*p.tile),
        tail_(tail_tile(t_)),
        n0_(n0),
        n1_(n1),
        padded_(t_.padded_k(p.k)),
        steps_(padded_ / t_.k_step),
        rows_(std::max<int64_t>(1, block_bytes() / (t_.mr * padded_)) * t_.mr),
        a_(rows_ * padded_),
        terms_((n1 - n0 + kColumns - 1) / kColumns),
        range_(byte_range(p)) {
    for (int64_t j = n0; j < n1; j += kColumns) {
      finite_ = make_terms(p, j, columns_at(j), terms_[(j - n0) / kColumns]) && finite_;
    }
  }

  void run(int64_t m0, int64_t m1) {
    for (int64_t i = m0; i < m1; i += rows_) {
      const int64_t rows = std::min(rows_, m1 - i), last = rows % t_.mr;
      const bool tail = tail_ && last > 0 && last <= tail_->mr;
      const int64_t whole = tail ? rows - last : rows;
      if (whole > 0) p_.a->pack(t_, Side::a, i, whole, 0, p_.k, a_.data(), nullptr);
      if (tail) p_.a->pack(*tail_, Side::a, i + whole, last, 0, p_.k, a_.data() + whole * padded_, nullptr);
      block(i, rows, whole);
    }
  }

 private:
  // A large b is read as one stream, from any cache or memory: 84 % of the peak for 4096 x 3072 x 768 instead of 77 %.
  int64_t block_bytes() const { return (n1_ - n0_) * padded_ <= kSmallB ? kBlockBytesA : kSmallBlockBytesA; }
  const ByteTerms* terms_at(int64_t j) const { return terms_.data() + (j - n0_) / kColumns; }
  int columns_at(int64_t j) const { return static_cast<int>(std::min<int64_t>(kColumns, n1_ - j)); }

  void block(int64_t i0, int64_t rows, int64_t whole) {
    for (int64_t j = n0_; j < n1_; j += kTogether * kColumns) {
      for (int64_t i = 0; i < rows; i += t_.mr) {
        strip(i < whole ? t_ : *tail_, a_.data() + i * padded_, i0 + i, rows - i, j);
      }
    }
  }

  // Multiplies one panel of a by the next few of b.
  void strip(const GemmTile& t, const char* a, int64_t i, int64_t rows, int64_t j) {
    const int64_t end = std::min(n1_, j + kTogether * kColumns);
    if (finite_ && rows >= t.mr) {
      const int64_t count = (end - j) / kColumns;
      char* c = static_cast<char*>(p_.c) + i * p_.c_row + j;
      if (count > 0) t.requantize(steps_, a, p_.packed_b->panels(j, 0), terms_at(j), &range_, c, p_.c_row, count);
      j += count * kColumns;
    }
    for (; j < end; j += kColumns) part(t, a, i, static_cast<int>(std::min<int64_t>(rows, t.mr)), j);
  }

  // A tile that may reach beyond c.
  void part(const GemmTile& t, const char* a, int64_t i, int rows, int64_t j) {
    const void* b = p_.packed_b->panels(j, 0);
    const int columns = columns_at(j);
    if (!finite_) return slow_tile(t, a, b, i, rows, j, columns);
    char bytes[kMostRows * kColumns], *c = static_cast<char*>(p_.c) + i * p_.c_row + j;
    t.requantize(steps_, a, b, terms_at(j), &range_, bytes, kColumns, 1);
    for (int r = 0; r < rows; ++r) {
      std::memcpy(c + r * p_.c_row, bytes + r * kColumns, static_cast<size_t>(columns));
    }
  }
  void slow_tile(const GemmTile& t, const void* a, const void* b, int64_t i, int rows, int64_t j, int columns) const {
    ColumnTerms terms{};
    const int32_t* sums = p_.packed_b->sums();
    column_terms(p_, j, columns, sums ? sums + j : nullptr, terms);
    alignas(64) int32_t buffer[kMostRows * kColumns + 32];
    t.run(steps_, a, b, buffer, kColumns, false);
    int64_t offsets[kMostRows];
    for (int r = 0; r < rows; ++r) offsets[r] = (i + r) * p_.c_row;
    store_tile(p_, {i, j, rows, columns, kColumns, buffer, offsets}, terms);
  }

  const BlockedGemm& p_;
  const GemmTile& t_;
  const GemmTile* tail_;
  int64_t n0_, n1_, padded_, steps_, rows_;
  Workspace<char> a_;
  Workspace<ByteTerms> terms_;
  bool finite_ = true;
  ByteRange range_;
};

}  // namespace

bool has_byte_tile(const BlockedGemm& p) {
  const int zero = p.epilogue.out_zero;
  return p.tile->requantize && requantizes(p) && p.a && !p.packed_a && !p.row_offsets && p.k <= p.tile->block_k &&
         zero >= -128 && zero <= 255;
}

void run_bytes(const BlockedGemm& p, int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
  if (m0 < m1 && n0 < n1) ByteRegion(p, n0, n1).run(m0, m1);
}

}  // namespace deft::cpu::detail
