#include "kernels/cpu/gemm/gemv_panels.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/gemv_panels.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/gemm/activate-inl.h"
#include "runtime/parallel.h"

#if defined(__aarch64__)
extern "C" {
void deft_row_panel_f32(int64_t k, const float* x, const float* panel, float* sums);
void deft_row_panels4_f32(int64_t k, const float* x, const float* const* panels, float* sums);
}
#endif

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using V = Vec<float>;
constexpr int kLanes = static_cast<int>(V::kLanes), kColumns = GemvPanels::kColumns, kStreams = 4;
constexpr int64_t kGrain = 256 * 1024;  // values that pay for a thread

#if defined(__aarch64__)
void multiply_panel(const float* x, const float* panel, int64_t k, float* sums) {
  deft_row_panel_f32(k, x, panel, sums);
}
void multiply_panels(const float* x, const float* const* panels, int64_t k, float* sums) {
  deft_row_panels4_f32(k, x, panels, sums);
}
#else
// kTogether panels at once, as many as there are registers for sums: a value of x is broadcast once for all. Sums are
// the same for any vector length.
constexpr int kTogether = kLanes == kColumns ? kStreams : 2;
template <int kPanels>
void multiply(const float* x, const float* const* panels, int64_t k, float* sums) {
  for (int j = 0; j < kColumns; j += kLanes) {
    V s[kPanels][4];
    for (auto& of_panel : s) std::fill_n(of_panel, 4, V(0));
    auto add = [&](int64_t p, int q) HWY_ATTR {
      const V value(x[p + q]);
      for (int i = 0; i < kPanels; ++i) s[i][q] = fma(V::load(panels[i] + (p + q) * kColumns + j), value, s[i][q]);
    };
    int64_t p = 0;
    for (; p + 4 <= k; p += 4) {
      add(p, 0);
      add(p, 1);
      add(p, 2);
      add(p, 3);
    }
    if (p < k) add(p, 0);
    if (p + 1 < k) add(p, 1);
    if (p + 2 < k) add(p, 2);
    for (int i = 0; i < kPanels; ++i) ((s[i][0] + s[i][1]) + (s[i][2] + s[i][3])).store(sums + i * kColumns + j);
  }
}
void multiply_panel(const float* x, const float* panel, int64_t k, float* sums) { multiply<1>(x, &panel, k, sums); }
void multiply_panels(const float* x, const float* const* panels, int64_t k, float* sums) {
  for (int s = 0; s < kStreams; s += kTogether) multiply<kTogether>(x, panels + s, k, sums + s * kColumns);
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

// The last panel may have fewer columns.
template <Activation A>
void finish_part(const float* sums, const float* bias, const float* residual, float* y, int64_t n) {
  alignas(64) float whole[3][kColumns] = {};
  if (bias) std::copy_n(bias, n, whole[0]);
  if (residual) std::copy_n(residual, n, whole[1]);
  finish_panel<A>(sums, whole[0], residual ? whole[1] : nullptr, whole[2]);
  std::copy_n(whole[2], n, y);
}

template <Activation A>
class Row {
 public:
  Row(const float* x, const GemvPanels& b, const float* bias, const float* residual, float* y)
      : x_(x), b_(b), bias_(bias), residual_(residual), y_(y) {}

  // Four panels at a time, a quarter of the matrix apart, since a core reads fastest from several streams; then the
  // rest.
  void run() const {
    const int64_t apart = b_.panels() / kStreams;
    const int64_t grain = std::max<int64_t>(1, kGrain / (kStreams * kColumns * b_.k()));
    parallel_for(0, apart, grain, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) four(at, apart);
    });
    for (int64_t at = kStreams * apart; at < b_.panels(); ++at) one(at);
  }

 private:
  void four(int64_t at, int64_t apart) const {
    alignas(64) float sums[kStreams][kColumns];
    const float* panels[kStreams];
    for (int64_t s = 0; s < kStreams; ++s) panels[s] = b_.panel((at + s * apart) * kColumns);
    multiply_panels(x_, panels, b_.k(), sums[0]);
    for (int64_t s = 0; s < kStreams; ++s) finish((at + s * apart) * kColumns, sums[s]);
  }
  void one(int64_t at) const {
    alignas(64) float sums[kColumns];
    multiply_panel(x_, b_.panel(at * kColumns), b_.k(), sums);
    finish(at * kColumns, sums);
  }
  void finish(int64_t j, const float* sums) const {
    const float *bias = bias_ ? bias_ + j : nullptr, *residual = residual_ ? residual_ + j : nullptr;
    if (j + kColumns <= b_.n())
      finish_panel<A>(sums, bias, residual, y_ + j);
    else
      finish_part<A>(sums, bias, residual, y_ + j, b_.n() - j);
  }

  const float* x_;
  const GemvPanels& b_;
  const float *bias_, *residual_;
  float* y_;
};

void multiply_any(const float* x, const GemvPanels& b, const float* bias, const float* residual, Activation activation,
                  float* y) {
  switch (activation) {
#define DEFT_CASE(name)  \
  case Activation::name: \
    return Row<Activation::name>(x, b, bias, residual, y).run();
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

GemvPanels::GemvPanels(const float* matrix, int64_t n, int64_t k, int64_t line, int64_t step)
    : n_(n), k_(k), values_(panels() * kColumns * padded_k()) {
  float* to = values_.data();
  for (int64_t j = 0; j < n; j += kColumns)
    for (int64_t p = 0; p < padded_k(); ++p)
      for (int64_t c = j; c < j + kColumns; ++c) *to++ = c < n && p < k ? matrix[c * line + p * step] : 0;
}

void multiply_row(const float* x, const GemvPanels& b, const float* bias, const float* residual, Activation activation,
                  float* y) {
  HWY_DYNAMIC_DISPATCH(multiply_any)(x, b, bias, residual, activation, y);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
