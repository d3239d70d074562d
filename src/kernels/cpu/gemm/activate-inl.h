// Activations of epilogues on vectors. Compiled once per target.
#if defined(DEFT_KERNELS_CPU_ACTIVATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_ACTIVATE_INL_H_
#undef DEFT_KERNELS_CPU_ACTIVATE_INL_H_
#else
#define DEFT_KERNELS_CPU_ACTIVATE_INL_H_
#endif

#include "kernels/cpu/gemm/blocked_gemm.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

// Vectors of floats have functions of their own, the same as the ops': an activation has the same bits in an epilogue.
// Only gelu on the way to bf16 is a shorter one there, gelu_bf16().
template <class V>
inline V gelu(V x) {
  if constexpr (requires { gelu_erf(x); }) {
    return gelu_erf(x);
  } else {
    return V(0.5) * x * (V(1) + erf(x * V(0.70710678118654752440)));
  }
}
template <class V>
inline V gelu_tanh(V x) {
  constexpr double kSlope = 0.79788456080286535588, kCubic = 0.044715;
  if constexpr (requires { gelu_erf(x); }) {
    return x * sigmoid(x * (V(2 * kSlope) + V(2 * kSlope * kCubic) * (x * x)));
  } else {
    return V(0.5) * x * (V(1) + tanh(V(kSlope) * fma(V(kCubic) * x * x, x, x)));
  }
}

template <class T>
inline Vec<T> activate(Activation a, Vec<T> x) {
  using V = Vec<T>;
  switch (a) {
    case Activation::relu:
      return select(x < V(0), V(0), x);  // NaN stays
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::tanh:
      return tanh(x);
    default:
      return x;
  }
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_ACTIVATE_INL_H_
