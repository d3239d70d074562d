// Few rows times a large b whose columns are contiguous over k: b is not packed and read once. The first block of rows
// reads it from memory, the others from L2.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/gemm/dot_rows.h"
#include "kernels/cpu/gemm/gemm_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {

namespace {

template <class T>
using sum_t =
    std::conditional_t<std::is_same_v<T, double>, double, std::conditional_t<std::is_integral_v<T>, uint32_t, float>>;

// Four columns at a time, a quarter of the range apart: a core reads fastest from several streams (36 instead of 26
// GB/s).
template <class T>
void columns(const TypedGemm<T>& g, const Dots& dots, int64_t j0, int64_t j1) {
  const int64_t apart = (j1 - j0 + Dots::kLines - 1) / Dots::kLines;
  sum_t<T> sums[Dots::kMostRows * Dots::kLines];
  for (int64_t j = j0; j < j0 + apart; ++j) {
    const int64_t live = (j1 - j + apart - 1) / apart;
    const void* lines[Dots::kLines];
    for (int64_t c = 0; c < Dots::kLines; ++c) lines[c] = g.b + (j + (c < live ? c : 0) * apart) * g.b_col;
    dots.run(lines, sums);
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t c = 0; c < live; ++c) finish(g, i, j + c * apart, sums[Dots::kLines * i + c], g.accumulate);
    }
  }
}

}  // namespace

template <class T>
bool dots_apply(const TypedGemm<T>& g) {
  return g.m <= Dots::kMostRows && g.a_col == 1 && g.b_row == 1 && Dots::apply(dtype_of<T>, dtype_of<T>, g.k);
}

template <class T>
void gemm_dots(const TypedGemm<T>& g) {
  const void* rows[Dots::kMostRows];
  for (int64_t i = 0; i < g.m; ++i) rows[i] = g.a + i * g.a_row;
  const Dots dots(dtype_of<T>, dtype_of<T>, {rows, static_cast<size_t>(g.m)}, g.k);
  const int64_t blocks = (g.n + kDirectBlock - 1) / kDirectBlock;
  const int64_t grain = std::max<int64_t>(1, 64 * 1024 / (kDirectBlock * g.m * g.k));
  parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    columns(g, dots, begin * kDirectBlock, std::min(g.n, end * kDirectBlock));
  });
}

#define DEFT_GEMM_DOTS(T)                          \
  template bool dots_apply(const TypedGemm<T>& g); \
  template void gemm_dots(const TypedGemm<T>& g);
DEFT_GEMM_DOTS(float)
DEFT_GEMM_DOTS(double)
DEFT_GEMM_DOTS(BFloat16)
DEFT_GEMM_DOTS(Half)
DEFT_GEMM_DOTS(int8_t)
#undef DEFT_GEMM_DOTS

}  // namespace deft::cpu::detail
