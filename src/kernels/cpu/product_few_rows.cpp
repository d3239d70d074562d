#include "kernels/cpu/product_few_rows.h"

#include <algorithm>

#include "kernels/cpu/dots.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

#if defined(__aarch64__)
extern "C" {
#define DEFT_FAR_PANELS(name) \
  void name(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row, bool add)
DEFT_FAR_PANELS(deft_far_panels_f32_8);
DEFT_FAR_PANELS(deft_far_panels_f16_12);
DEFT_FAR_PANELS(deft_far_panels_bf16_12);
DEFT_FAR_PANELS(deft_far_panels_bf16_8);
DEFT_FAR_PANELS(deft_far_panels_s8_12);
DEFT_FAR_PANELS(deft_far_panels_s8_8);
DEFT_FAR_PANELS(deft_far_panels_u8s8_12);
DEFT_FAR_PANELS(deft_far_panels_u8s8_8);
#undef DEFT_FAR_PANELS
}
#endif

namespace deft::cpu {

namespace {

constexpr int64_t kGrain = 64 * 1024;  // multiply-adds that pay for a lane
constexpr int64_t kPanelRows = 4;
// Columns that one kernel call has in all its panels; panels of a stream that follow each other; that are stored
// together.
constexpr int kColumns = 24, kRun = 16, kStored = 4;
constexpr int kMostStreams = 3;

using RowOffsets = int64_t[Dots::kMostRows];
void fill_row_offsets(const Product& p, RowOffsets& offsets) {
  if (p.row_offsets) return (*p.row_offsets)(0, p.m, offsets);
  for (int64_t i = 0; i < p.m; ++i) offsets[i] = i * p.c_row;
}

// Columns [j, j + columns) of all rows. column_sums: of b, from column j.
void store(const Product& p, int64_t j, int64_t columns, const void* sums, int width, const int64_t* offsets,
           const int32_t* column_sums) {
  detail::ColumnTerms terms;
  detail::column_terms(p, j, columns, column_sums, terms);
  detail::store_tile(p, {0, j, static_cast<int>(p.m), static_cast<int>(columns), width, sums, offsets}, terms);
}

// ---- b as it lies.

// The product's bytes are those that its panels would hold, so that a_zero fits.
bool same_bytes(const Product& p, DType a, DType b) {
  if (p.tile->panel == Panel::s8) return a == DType::i8 && b == DType::i8;
  if (p.tile->panel == Panel::u8s8) return a == DType::u8 && b == DType::i8;
  return true;
}

constexpr int64_t kBlock = 16;  // columns that are stored together

// Blocks [begin, end) of columns: four blocks at a time, a quarter of the range apart. Sum is as wide as sums are.
template <class Sum>
class DotsRange {
 public:
  DotsRange(const Product& p, const StridedMatrix& b, const Dots& dots) : p_(p), b_(b), dots_(dots) {
    fill_row_offsets(p, offsets_);
  }

  void run(int64_t begin, int64_t end) {
    const int64_t apart = (end - begin + Dots::kLines - 1) / Dots::kLines;
    for (int64_t at = begin; at < begin + apart; ++at) {
      const int64_t blocks = (end - at + apart - 1) / apart;
      multiply(at, apart, blocks);
      for (int64_t s = 0; s < blocks; ++s) {
        const int64_t j = (at + s * apart) * kBlock;
        const auto* column_sums = reinterpret_cast<const int32_t*>(sums_[s][p_.m]);
        store(p_, j, std::min(kBlock, p_.n - j), sums_[s], kBlock, offsets_,
              p_.epilogue.a_zero ? column_sums : nullptr);
      }
    }
  }

 private:
  void multiply(int64_t at, int64_t apart, int64_t blocks) {
    const int64_t rows = p_.m + (p_.epilogue.a_zero != 0);
    Sum out[Dots::kMostRows * Dots::kLines];
    for (int64_t c = 0; c < kBlock; ++c) {
      const void* lines[Dots::kLines];
      for (int64_t s = 0; s < Dots::kLines; ++s) {
        const int64_t j = std::min(p_.n - 1, (at + (s < blocks ? s : 0) * apart) * kBlock + c);
        lines[s] = static_cast<const char*>(b_.in) + j * b_.line * static_cast<int64_t>(size_of(b_.dtype));
      }
      dots_.run(lines, out);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t s = 0; s < Dots::kLines; ++s) sums_[s][i][c] = out[Dots::kLines * i + s];
      }
    }
  }

  const Product& p_;
  const StridedMatrix& b_;
  const Dots& dots_;
  RowOffsets offsets_;
  alignas(64) Sum sums_[Dots::kLines + 1][Dots::kMostRows][kBlock];
};

// ---- Packed b.

// b and c: of each stream.
using FarPanelsKernel = void (*)(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row,
                                 bool add);
FarPanelsKernel kernel_for([[maybe_unused]] const GemmTile& t) {
#if defined(__aarch64__)
  const auto layout = [&](int group, int step) {
    return !t.portable && t.a_group == group && t.b_group == group && t.k_step == step && (t.nr == 8 || t.nr == 12);
  };
  const bool wide = t.nr == 12;
  if (t.panel == Panel::f32 && layout(1, 4)) return wide ? nullptr : deft_far_panels_f32_8;
  if (t.panel == Panel::f16 && layout(1, 2)) return wide ? deft_far_panels_f16_12 : nullptr;
  if (t.panel == Panel::bf16 && layout(4, 8)) return wide ? deft_far_panels_bf16_12 : deft_far_panels_bf16_8;
  if (t.panel == Panel::s8 && layout(8, 16)) return wide ? deft_far_panels_s8_12 : deft_far_panels_s8_8;
  if (t.panel == Panel::u8s8 && layout(8, 16)) return wide ? deft_far_panels_u8s8_12 : deft_far_panels_u8s8_8;
#endif
  return nullptr;
}

class FarPanels {
 public:
  // rows: those of a in panels of four, blocks of k one after the other.
  FarPanels(const Product& p, const char* rows, FarPanelsKernel kernel)
      : p_(p), t_(p.packed_b->tile()), streams_(kColumns / t_.nr), rows_(rows), kernel_(kernel) {
    fill_row_offsets(p, offsets_);
  }

  // Panels [begin, end): as many parts as there are streams, together. Blocks of k lie apart, so that many panels of
  // one come before the next.
  void run(int64_t begin, int64_t end) {
    const int64_t part = (end - begin + streams_ - 1) / streams_;
    for (int64_t first = begin; first < begin + part; first += kRun) {
      const int64_t last = std::min(begin + part, first + kRun);
      for (int64_t k0 = 0; k0 < p_.k; k0 += t_.block_k) {
        for (int64_t at = first; at < last; ++at) multiply(at, part, end, k0, at - first);
      }
      for (int64_t s = 0; s < streams_; ++s) {
        store_panels(first + s * part, std::min({end, begin + (s + 1) * part, last + s * part}), sums_[s][0]);
      }
    }
  }

 private:
  static constexpr int kWidth = kRun * kColumns / 2;
  void multiply(int64_t panel, int64_t part, int64_t end, int64_t k0, int64_t place) {
    const int64_t k = std::min(t_.block_k, p_.k - k0);
    const void* b[kMostStreams];
    float* c[kMostStreams];
    for (int64_t s = 0; s < streams_; ++s) {
      const int64_t other = panel + s * part;
      b[s] = p_.packed_b->panels((other < end ? other : panel) * t_.nr, k0);
      c[s] = sums_[s][0] + place * t_.nr;
    }
    kernel_(t_.padded_k(k) / t_.k_step, rows_ + kPanelRows * k0 * size_of(t_.panel), b, c, kWidth, k0 > 0);
  }
  void store_panels(int64_t first, int64_t last, const float* sums) const {
    const int64_t end = std::min(p_.n, last * t_.nr), step = kStored * t_.nr;
    const int32_t* column_sums = p_.packed_b->sums();
    for (int64_t j = first * t_.nr; j < end; j += step, sums += step) {
      store(p_, j, std::min(step, end - j), sums, kWidth, offsets_, column_sums ? column_sums + j : nullptr);
    }
  }

  const Product& p_;
  const GemmTile& t_;
  const int64_t streams_;
  const char* rows_;
  FarPanelsKernel kernel_;
  RowOffsets offsets_;
  alignas(64) float sums_[kMostStreams][kPanelRows + 1][kWidth];  // and room to read a little beyond
};

bool run_far_panels(const Product& p) {
  if (!p.packed_b || !p.a || !p.a->strided() || p.m > kPanelRows || p.epilogue.accumulate) return false;
  const FarPanelsKernel kernel = kernel_for(p.packed_b->tile());
  if (!kernel) return false;
  GemmTile four = p.packed_b->tile();
  four.mr = kPanelRows;
  const Workspace<char> rows(kPanelRows * four.padded_k(p.k) * size_of(four.panel));
  for (int64_t k0 = 0; k0 < p.k; k0 += four.block_k) {
    p.a->pack(four, Side::a, 0, p.m, k0, std::min(four.block_k, p.k - k0),
              rows.data() + kPanelRows * k0 * size_of(four.panel), nullptr);
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / (four.nr * kPanelRows * p.k));
  parallel_for(0, (p.n + four.nr - 1) / four.nr, grain,
               [&](int64_t begin, int64_t end) { FarPanels(p, rows.data(), kernel).run(begin, end); });
  return true;
}

}  // namespace

bool run_dots(const Product& p, const StridedMatrix& b) {
  const StridedMatrix* a = p.a ? p.a->strided() : nullptr;
  const bool sums_of_b = p.epilogue.a_zero != 0;
  if (!a || a->step != 1 || b.step != 1 || p.epilogue.accumulate || p.m + sums_of_b > Dots::kMostRows) return false;
  if (!same_bytes(p, a->dtype, b.dtype) || !Dots::apply(a->dtype, b.dtype, p.k)) return false;
  const void* rows[Dots::kMostRows];
  for (int64_t i = 0; i < p.m; ++i) {
    rows[i] = static_cast<const char*>(a->in) + i * a->line * static_cast<int64_t>(size_of(a->dtype));
  }
  const Workspace<uint8_t> ones(sums_of_b ? p.k : 0);  // a row that sums the lines of b
  std::fill_n(ones.data(), sums_of_b ? p.k : 0, uint8_t{1});
  if (sums_of_b) rows[p.m] = ones.data();
  const Dots dots(a->dtype, b.dtype, {rows, static_cast<size_t>(p.m + sums_of_b)}, p.k);
  const int64_t grain = std::max<int64_t>(1, kGrain / (kBlock * p.m * p.k));
  parallel_for(0, (p.n + kBlock - 1) / kBlock, grain, [&](int64_t begin, int64_t end) {
    if (b.dtype == DType::f64) return DotsRange<uint64_t>(p, b, dots).run(begin, end);
    DotsRange<uint32_t>(p, b, dots).run(begin, end);
  });
  return true;
}

bool run_few_rows(const Product& p) {
  if (p.packed_b) return run_far_panels(p);
  const StridedMatrix* b = p.b ? p.b->strided() : nullptr;
  const bool bytes = p.tile->panel == Panel::s8 || p.tile->panel == Panel::u8s8;
  return bytes && b && run_dots(p, *b);
}

}  // namespace deft::cpu
