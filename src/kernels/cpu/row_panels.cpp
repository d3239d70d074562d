#include "kernels/cpu/row_panels.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_panels.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/activate-inl.h"

#if defined(__aarch64__)
extern "C" void deft_row_panel_f32(int64_t k, const float* x, const float* panel, float* sums);
#endif

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using V = Vec<float>;
constexpr int kLanes = static_cast<int>(V::kLanes), kColumns = RowPanels::kColumns;

#if defined(__aarch64__)
void multiply_panel(const float* x, const float* panel, int64_t k, float* sums) {
  deft_row_panel_f32(k, x, panel, sums);
}
#else
// The same sums for any length of vectors.
void multiply_panel(const float* x, const float* panel, int64_t k, float* sums) {
  for (int j = 0; j < kColumns; j += kLanes) {
    V s0(0), s1(0), s2(0), s3(0);
    const float* b = panel + j;
    int64_t p = 0;
    for (; p + 4 <= k; p += 4, b += 4 * kColumns) {
      s0 = fma(V::load(b), V(x[p]), s0);
      s1 = fma(V::load(b + kColumns), V(x[p + 1]), s1);
      s2 = fma(V::load(b + 2 * kColumns), V(x[p + 2]), s2);
      s3 = fma(V::load(b + 3 * kColumns), V(x[p + 3]), s3);
    }
    if (p < k) s0 = fma(V::load(b), V(x[p]), s0);
    if (p + 1 < k) s1 = fma(V::load(b + kColumns), V(x[p + 1]), s1);
    if (p + 2 < k) s2 = fma(V::load(b + 2 * kColumns), V(x[p + 2]), s2);
    ((s0 + s1) + (s2 + s3)).store(sums + j);
  }
}
#endif

template <Activation A>
void finish_panel(const float* sums, const float* bias, const float* residual, float* y) {
  for (int j = 0; j < kColumns; j += kLanes) {
    V v = V::load(sums + j);
    if (bias) v += V::load(bias + j);
    if (residual) v += V::load(residual + j);
    activate(A, v).store(y + j);
  }
}

// The last columns of a matrix may be fewer than a panel's.
template <Activation A>
void finish_part(const float* sums, const float* bias, const float* residual, float* y, int64_t n) {
  alignas(64) float whole[3][kColumns] = {};
  if (bias) std::copy_n(bias, n, whole[0]);
  if (residual) std::copy_n(residual, n, whole[1]);
  finish_panel<A>(sums, whole[0], residual ? whole[1] : nullptr, whole[2]);
  std::copy_n(whole[2], n, y);
}

template <Activation A>
void multiply(const float* x, const RowPanels& b, const float* bias, const float* residual, float* y) {
  alignas(64) float sums[kColumns];
  for (int64_t j = 0; j < b.n(); j += kColumns) {
    multiply_panel(x, b.panel(j), b.k(), sums);
    const float *bias_j = bias ? bias + j : nullptr, *residual_j = residual ? residual + j : nullptr;
    if (j + kColumns <= b.n())
      finish_panel<A>(sums, bias_j, residual_j, y + j);
    else
      finish_part<A>(sums, bias_j, residual_j, y + j, b.n() - j);
  }
}

void multiply_any(const float* x, const RowPanels& b, const float* bias, const float* residual, Activation activation,
                  float* y) {
  switch (activation) {
#define DEFT_CASE(name)  \
  case Activation::name: \
    return multiply<Activation::name>(x, b, bias, residual, y);
    DEFT_CASE(none)
    DEFT_CASE(relu)
    DEFT_CASE(gelu)
    DEFT_CASE(gelu_tanh)
    DEFT_CASE(silu)
    DEFT_CASE(sigmoid)
    DEFT_CASE(tanh)
#undef DEFT_CASE
  }
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(multiply_any);

RowPanels::RowPanels(const float* matrix, int64_t n, int64_t k, int64_t line, int64_t step)
    : n_(n), k_(k), values_(panels() * kColumns * padded_k()) {
  float* to = values_.data();
  for (int64_t j = 0; j < n; j += kColumns)
    for (int64_t p = 0; p < padded_k(); ++p)
      for (int64_t c = j; c < j + kColumns; ++c) *to++ = c < n && p < k ? matrix[c * line + p * step] : 0;
}

void multiply_row(const float* x, const RowPanels& b, const float* bias, const float* residual, Activation activation,
                  float* y) {
  HWY_DYNAMIC_DISPATCH(multiply_any)(x, b, bias, residual, activation, y);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
