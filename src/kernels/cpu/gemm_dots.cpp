// Few rows times a large matrix whose lines are contiguous over k: nothing is packed, and the matrix is read once for
// every four rows. The first of those reads comes from memory, the others from the second cache level.
#include <algorithm>

#include "kernels/cpu/gemm_internal.h"
#include "runtime/cpu_isa.h"

#if defined(__aarch64__)
extern "C" void deft_neon_dots_f32(int64_t steps, const void* const* a, const void* const* b, float* out);
extern "C" void deft_dots_bf16(int64_t steps, const void* const* a, const void* const* b, float* out);
extern "C" void deft_neon_dots1_f32(int64_t steps, const void* a, const void* const* b, float* out);
extern "C" void deft_dots1_bf16(int64_t steps, const void* a, const void* const* b, float* out);
#endif

namespace deft::cpu::detail {

namespace {

struct DotsKernel {
  void (*run)(int64_t steps, const void* const* a, const void* const* b, float* out) = nullptr;
  int64_t step = 1;                                                                           // values of k per step
  void (*run_one)(int64_t steps, const void* a, const void* const* b, float* out) = nullptr;  // one row; two steps each
};
DotsKernel kernel_for([[maybe_unused]] DType dtype) {
#if defined(__aarch64__)
  if (dtype == DType::f32) return {deft_neon_dots_f32, 8, deft_neon_dots1_f32};
  if (dtype == DType::bf16 && cpu_has("bf16")) return {deft_dots_bf16, 16, deft_dots1_bf16};
#endif
  return {};
}

// Rows [i, i + rows) and up to four columns `apart` apart: missing lines repeat the first.
template <class T>
void block(const TypedGemm<T>& g, const DotsKernel& kernel, int64_t i, int64_t rows, int64_t j, int64_t columns,
           int64_t apart) {
  const T *a[4], *b[4];
  for (int64_t r = 0; r < 4; ++r) a[r] = g.a + (i + (r < rows ? r : 0)) * g.a_row;
  for (int64_t c = 0; c < 4; ++c) b[c] = g.b + (j + (c < columns ? c : 0) * apart) * g.b_col;
  const void* const* right = reinterpret_cast<const void* const*>(b);
  float sum[16];
  const bool one = g.m == 1 && g.k >= 2 * kernel.step;
  const int64_t step = one ? 2 * kernel.step : kernel.step, steps = g.k / step;
  if (one) {
    kernel.run_one(steps, a[0], right, sum);
  } else {
    kernel.run(steps, reinterpret_cast<const void* const*>(a), right, sum);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      float value = sum[4 * r + c];
      for (int64_t p = steps * step; p < g.k; ++p) value += widen(a[r][p]) * widen(b[c][p]);
      finish(g, i + r, j + c * apart, value, g.accumulate);
    }
  }
}

}  // namespace

bool dots_apply(DType dtype, int64_t k) {
  const DotsKernel kernel = kernel_for(dtype);
  return kernel.run && k >= kernel.step;
}

// Four columns at a time, a quarter of the range apart: long runs of memory are read in four places at once.
template <class T>
void gemm_dots(const TypedGemm<T>& g, int64_t j0, int64_t j1) {
  const DotsKernel kernel = kernel_for(dtype_of<T>);
  const int64_t apart = (j1 - j0 + 3) / 4;
  for (int64_t j = j0; j < j0 + apart; ++j) {
    const int64_t columns = (j1 - j + apart - 1) / apart;
    for (int64_t i = 0; i < g.m; i += 4) block(g, kernel, i, std::min<int64_t>(4, g.m - i), j, columns, apart);
  }
}

template void gemm_dots(const TypedGemm<float>&, int64_t, int64_t);
template void gemm_dots(const TypedGemm<BFloat16>&, int64_t, int64_t);

}  // namespace deft::cpu::detail
