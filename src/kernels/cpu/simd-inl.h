// Vec<T> and the functions of base/math.h on it.
#if defined(DEFT_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_SIMD_INL_H_
#undef DEFT_KERNELS_CPU_SIMD_INL_H_
#else
#define DEFT_KERNELS_CPU_SIMD_INL_H_
#endif

#include "kernels/cpu/simd_math-inl.h"
#include "kernels/cpu/simd_vec-inl.h"

#endif  // DEFT_KERNELS_CPU_SIMD_INL_H_
