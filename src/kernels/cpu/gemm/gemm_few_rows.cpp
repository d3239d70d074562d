#include "kernels/cpu/gemm/gemm_few_rows.h"

#include <algorithm>

#include "kernels/cpu/gemm/dot_rows.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/workspace.h"
#include "runtime/cpu_isa.h"
#include "runtime/parallel.h"

#if defined(__aarch64__)
extern "C" {
#define DEFT_GEMV_STREAMS(name) \
  void name(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row, bool add)
DEFT_GEMV_STREAMS(deft_far_panels_f32_8);
DEFT_GEMV_STREAMS(deft_far_panels_f16_12);
DEFT_GEMV_STREAMS(deft_far_panels_bf16_12);
DEFT_GEMV_STREAMS(deft_far_panels_bf16_8);
DEFT_GEMV_STREAMS(deft_far_panels_s8_12);
DEFT_GEMV_STREAMS(deft_far_panels_s8_8);
DEFT_GEMV_STREAMS(deft_far_panels_u8s8_12);
DEFT_GEMV_STREAMS(deft_far_panels_u8s8_8);
#undef DEFT_GEMV_STREAMS
}
#elif defined(__x86_64__)
extern "C" {
#define DEFT_GEMV_STREAMS(name)                                                                                \
  void name##_1(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row, bool add); \
  void name##_2(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row, bool add); \
  void name##_3(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row, bool add); \
  void name##_4(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row, bool add);
DEFT_GEMV_STREAMS(deft_far_panels_f32)
DEFT_GEMV_STREAMS(deft_far_panels_bf16)
DEFT_GEMV_STREAMS(deft_far_panels_u8s8)
#undef DEFT_GEMV_STREAMS
}
#endif

namespace deft::cpu {

namespace {

constexpr int64_t kGrain = 64 * 1024;  // multiply-adds that pay for a thread
constexpr int64_t kPanelRows = 4;
// kWidth: contiguous columns of a stream's panels; up to kStored of them are stored together.
constexpr int64_t kWidth = 192, kStored = 48;
constexpr int kMostStreams = 4;

using RowOffsets = int64_t[Dots::kMostRows];
void fill_row_offsets(const BlockedGemm& p, RowOffsets& offsets) {
  if (p.row_offsets) return (*p.row_offsets)(0, p.m, offsets);
  for (int64_t i = 0; i < p.m; ++i) offsets[i] = i * p.c_row;
}

// Finishes columns [j, j + columns) of all rows. column_sums: of b, from column j.
void store(const BlockedGemm& p, int64_t j, int64_t columns, const void* sums, int width, const int64_t* offsets,
           const int32_t* column_sums) {
  detail::ColumnTerms terms;
  detail::column_terms(p, j, columns, column_sums, terms);
  detail::store_tile(p, {0, j, static_cast<int>(p.m), static_cast<int>(columns), width, sums, offsets}, terms);
}

// ---- Unpacked b.

// Whether bytes have the signs that panels would hold, so that a_zero fits.
bool same_bytes(const BlockedGemm& p, DType a, DType b) {
  if (p.tile->panel == Panel::s8) return a == DType::i8 && b == DType::i8;
  if (p.tile->panel == Panel::u8s8) return a == DType::u8 && b == DType::i8;
  return true;
}

constexpr int64_t kBlock = 16;  // columns that are stored together

// Blocks [begin, end) of columns: four blocks at a time, a quarter of the range apart. Sum is as wide as a sum.
template <class Sum>
class DotsRange {
 public:
  DotsRange(const BlockedGemm& p, const StridedMatrix& b, const Dots& dots) : p_(p), b_(b), dots_(dots) {
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

  const BlockedGemm& p_;
  const StridedMatrix& b_;
  const Dots& dots_;
  RowOffsets offsets_;
  alignas(64) Sum sums_[Dots::kLines + 1][Dots::kMostRows][kBlock];
};

// ---- Packed b.

// b and c hold one pointer for each stream.
using GemvStreamsRun = void (*)(int64_t steps, const void* a, const void* const* b, float* const* c, int64_t c_row,
                                bool add);
struct GemvStreamsKernel {
  GemvStreamsRun run = nullptr;   // null: no kernel
  GemmTile rows;                  // how rows of a are packed
  int64_t streams = 0, step = 1;  // step: values of k at a time
  bool shifted = false;           // rows are shifted by 128 from the tile's type
};
#if defined(__aarch64__)
GemvStreamsRun run_for(const GemmTile& t) {
  const auto layout = [&](int group, int step) {
    return !t.portable && t.a_group == group && t.b_group == group && t.k_step == step && (t.nr == 8 || t.nr == 12);
  };
  const bool wide = t.nr == 12;
  if (t.panel == Panel::f32 && layout(1, 4)) return wide ? nullptr : deft_far_panels_f32_8;
  if (t.panel == Panel::f16 && layout(1, 2)) return wide ? deft_far_panels_f16_12 : nullptr;
  if (t.panel == Panel::bf16 && layout(4, 8)) return wide ? deft_far_panels_bf16_12 : deft_far_panels_bf16_8;
  if (t.panel == Panel::s8 && layout(8, 16)) return wide ? deft_far_panels_s8_12 : deft_far_panels_s8_8;
  if (t.panel == Panel::u8s8 && layout(8, 16)) return wide ? deft_far_panels_u8s8_12 : deft_far_panels_u8s8_8;
  return nullptr;
}
GemvStreamsKernel kernel_for(const PackedMatrix& b, int64_t) {
  const GemmTile& t = b.tile();
  GemvStreamsKernel kernel{run_for(t), t, 24 / t.nr, t.k_step};
  kernel.rows.mr = kPanelRows;
  return kernel;
}
#elif defined(__x86_64__)
GemvStreamsRun run_for(Panel panel, int64_t rows) {
#define DEFT_ROWS(name) \
  { name##_1, name##_2, name##_3, name##_4 }
  static constexpr GemvStreamsRun kF32[] = DEFT_ROWS(deft_far_panels_f32);
  static constexpr GemvStreamsRun kBf16[] = DEFT_ROWS(deft_far_panels_bf16);
  static constexpr GemvStreamsRun kBytes[] = DEFT_ROWS(deft_far_panels_u8s8);
#undef DEFT_ROWS
  const bool bytes = panel == Panel::s8 || panel == Panel::u8s8;
  if (panel == Panel::f32 && cpu_has("avx512f")) return kF32[rows - 1];
  if (panel == Panel::bf16 && cpu_has("avx512_bf16")) return kBf16[rows - 1];
  if (bytes && cpu_has("avx512_vnni")) return kBytes[rows - 1];
  return nullptr;
}
// The most rows that gain from it. AMX tiles multiply several rows at once, which is faster where b is in L2, and for
// four rows of bf16. (Eight rows, four at a time, take longer than tiles unless b is beyond all caches.)
int64_t most_rows(const PackedMatrix& b) {
  constexpr int64_t kNear = 2 << 20;
  const bool amx = b.tile().begin;
  if (amx && b.bytes() <= kNear) return 1;
  return amx && b.tile().panel == Panel::bf16 ? 3 : kPanelRows;
}
// VNNI multiplies unsigned by signed bytes: signed rows are shifted by 128, and the column sums of b correct for it.
GemvStreamsKernel kernel_for(const PackedMatrix& b, int64_t m) {
  const GemmTile& t = b.tile();
  const bool words = !t.portable && t.nr == 32 && t.b_group * size_of(t.panel) == 4;
  if (!words || m > most_rows(b)) return {};
  GemvStreamsKernel kernel{run_for(t.panel, m), t, m < 4 ? 4 : 3, t.b_group, t.panel == Panel::s8};
  kernel.rows.mr = static_cast<int>(m), kernel.rows.a_group = t.b_group;
  if (kernel.shifted) kernel.rows.panel = Panel::u8s8;
  return kernel;
}
#else
GemvStreamsKernel kernel_for(const PackedMatrix&, int64_t) { return {}; }
#endif

class GemvStreams {
 public:
  // rows: a in panels of kernel.rows, blocks of k one after the other.
  GemvStreams(const BlockedGemm& p, const char* rows, const GemvStreamsKernel& kernel)
      : p_(p), t_(p.packed_b->tile()), run_(kWidth / t_.nr), rows_(rows), kernel_(kernel) {
    fill_row_offsets(p, offsets_);
  }

  // Panels [begin, end), split into one part per stream. Blocks of k lie apart, so run_ panels of a block are read
  // before the next block.
  void run(int64_t begin, int64_t end) {
    const int64_t streams = kernel_.streams, part = (end - begin + streams - 1) / streams;
    for (int64_t first = begin; first < begin + part; first += run_) {
      const int64_t last = std::min(begin + part, first + run_);
      if (kernel_.shifted) start_below(first, last, part, end);
      for (int64_t k0 = 0; k0 < p_.k; k0 += t_.block_k) {
        for (int64_t at = first; at < last; ++at) multiply(at, part, end, k0, at - first);
      }
      for (int64_t s = 0; s < streams; ++s) {
        store_panels(first + s * part, std::min({end, begin + (s + 1) * part, last + s * part}), sums_[s][0]);
      }
    }
  }

 private:
  void multiply(int64_t panel, int64_t part, int64_t end, int64_t k0, int64_t place) {
    const int64_t k = t_.padded_k(std::min(t_.block_k, p_.k - k0));
    const void* b[kMostStreams];
    float* c[kMostStreams];
    for (int64_t s = 0; s < kernel_.streams; ++s) {
      const int64_t other = panel + s * part;
      b[s] = p_.packed_b->panels((other < end ? other : panel) * t_.nr, k0);
      c[s] = sums_[s][0] + place * t_.nr;
    }
    kernel_.run(k / kernel_.step, rows_ + kernel_.rows.mr * k0 * size_of(t_.panel), b, c, kWidth,
                k0 > 0 || kernel_.shifted);
  }
  // Initialises sums with the correction for the shift.
  void start_below(int64_t first, int64_t last, int64_t part, int64_t end) {
    const int32_t* column_sums = p_.packed_b->sums();
    for (int64_t s = 0; s < kernel_.streams; ++s) {
      const int64_t j0 = (first + s * part) * t_.nr, j1 = std::min({p_.n, end * t_.nr, (last + s * part) * t_.nr});
      auto* row = reinterpret_cast<int32_t*>(sums_[s][0]);
      for (int64_t j = j0; j < j1; ++j)
        row[j - j0] = static_cast<int32_t>(-128U * static_cast<uint32_t>(column_sums[j]));
      for (int64_t i = 1; i < p_.m && j0 < j1; ++i) std::copy_n(row, j1 - j0, row + i * kWidth);
    }
  }
  void store_panels(int64_t first, int64_t last, const float* sums) const {
    const int64_t end = std::min(p_.n, last * t_.nr), width = kStored / t_.nr * t_.nr;
    const int32_t* column_sums = p_.packed_b->sums();
    for (int64_t j = first * t_.nr; j < end; j += width, sums += width) {
      store(p_, j, std::min(width, end - j), sums, kWidth, offsets_, column_sums ? column_sums + j : nullptr);
    }
  }

  const BlockedGemm& p_;
  const GemmTile& t_;
  const int64_t run_;  // contiguous panels of a stream
  const char* rows_;
  const GemvStreamsKernel& kernel_;
  RowOffsets offsets_;
  alignas(64) float sums_[kMostStreams][kPanelRows + 1][kWidth];  // and room to read a little beyond
};

bool run_gemv_streams(const BlockedGemm& p) {
  if (!p.packed_b || !p.a || !p.a->strided() || p.m > kPanelRows || p.epilogue.accumulate) return false;
  const GemvStreamsKernel kernel = kernel_for(*p.packed_b, p.m);
  if (!kernel.run || (kernel.shifted && !p.packed_b->sums())) return false;
  const GemmTile& t = kernel.rows;
  const int64_t size = t.mr * size_of(t.panel);
  const Workspace<char> rows(t.padded_k(p.k) * size);
  for (int64_t k0 = 0; k0 < p.k; k0 += t.block_k) {
    p.a->pack(t, Side::a, 0, p.m, k0, std::min(t.block_k, p.k - k0), rows.data() + k0 * size, nullptr);
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / (t.nr * p.m * p.k));
  parallel_for(0, (p.n + t.nr - 1) / t.nr, grain,
               [&](int64_t begin, int64_t end) { GemvStreams(p, rows.data(), kernel).run(begin, end); });
  return true;
}

}  // namespace

bool run_dots(const BlockedGemm& p, const StridedMatrix& b) {
  const StridedMatrix* a = p.a ? p.a->strided() : nullptr;
  const bool sums_of_b = p.epilogue.a_zero != 0;
  if (!a || a->step != 1 || b.step != 1 || p.epilogue.accumulate || p.m + sums_of_b > Dots::kMostRows) return false;
  if (!same_bytes(p, a->dtype, b.dtype) || !Dots::apply(a->dtype, b.dtype, p.k)) return false;
  const void* rows[Dots::kMostRows];
  for (int64_t i = 0; i < p.m; ++i) {
    rows[i] = static_cast<const char*>(a->in) + i * a->line * static_cast<int64_t>(size_of(a->dtype));
  }
  const Workspace<uint8_t> ones(sums_of_b ? p.k : 0);  // a row that sums the columns of b
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

bool run_few_rows(const BlockedGemm& p) {
  if (p.packed_b) return run_gemv_streams(p);
  const StridedMatrix* b = p.b ? p.b->strided() : nullptr;
  const bool bytes = p.tile->panel == Panel::s8 || p.tile->panel == Panel::u8s8;
  return bytes && b && run_dots(p, *b);
}

}  // namespace deft::cpu
