// Few rows times a large matrix whose lines are contiguous over k: nothing is packed, and the matrix is read once for
// every four rows. The first of those reads comes from memory, the others from the second cache level.
#include <algorithm>

#include "kernels/cpu/gemm_internal.h"
#include "runtime/cpu_isa.h"

#if defined(__aarch64__)
extern "C" void deft_neon_dots_f32(int64_t steps, const void* const* a, const void* const* b, float* out);
extern "C" void deft_dots_bf16(int64_t steps, const void* const* a, const void* const* b, float* out);
#endif

namespace deft::cpu::detail {

namespace {

struct DotsKernel {
  void (*run)(int64_t steps, const void* const* a, const void* const* b, float* out) = nullptr;
  int64_t step = 1;  // values of k per step
};
DotsKernel kernel_for([[maybe_unused]] DType dtype) {
#if defined(__aarch64__)
  if (dtype == DType::f32) return {deft_neon_dots_f32, 8};
  if (dtype == DType::bf16 && cpu_has("bf16")) return {deft_dots_bf16, 16};
#endif
  return {};
}

// Rows [i, i + rows) x columns [j, j + columns), at most 4 x 4: missing lines repeat the first.
template <class T>
void block(const TypedGemm<T>& g, const DotsKernel& kernel, int64_t i, int64_t rows, int64_t j, int64_t columns) {
  const T *a[4], *b[4];
  for (int64_t r = 0; r < 4; ++r) a[r] = g.a + (i + (r < rows ? r : 0)) * g.a_row;
  for (int64_t c = 0; c < 4; ++c) b[c] = g.b + (j + (c < columns ? c : 0)) * g.b_col;
  float sum[16];
  const int64_t steps = g.k / kernel.step, done = steps * kernel.step;
  kernel.run(steps, reinterpret_cast<const void* const*>(a), reinterpret_cast<const void* const*>(b), sum);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      float value = sum[4 * r + c];
      for (int64_t p = done; p < g.k; ++p) value += widen(a[r][p]) * widen(b[c][p]);
      finish(g, i + r, j + c, value, g.accumulate);
    }
  }
}

}  // namespace

bool dots_apply(DType dtype, int64_t k) {
  const DotsKernel kernel = kernel_for(dtype);
  return kernel.run && k >= kernel.step;
}

template <class T>
void gemm_dots(const TypedGemm<T>& g, int64_t j0, int64_t j1) {
  const DotsKernel kernel = kernel_for(dtype_of<T>);
  for (int64_t j = j0; j < j1; j += 4) {
    const int64_t columns = std::min<int64_t>(4, j1 - j);
    for (int64_t i = 0; i < g.m; i += 4) block(g, kernel, i, std::min<int64_t>(4, g.m - i), j, columns);
  }
}

template void gemm_dots(const TypedGemm<float>&, int64_t, int64_t);
template void gemm_dots(const TypedGemm<BFloat16>&, int64_t, int64_t);

}  // namespace deft::cpu::detail
