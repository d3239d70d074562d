// Vec<T> and the functions of base/math.h on it.
#if defined(DEFT_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_SIMD_INL_H_
#undef DEFT_KERNELS_CPU_SIMD_INL_H_
#else
#define DEFT_KERNELS_CPU_SIMD_INL_H_
#endif

#include "kernels/cpu/simd/simd_math-inl.h"
#include "kernels/cpu/simd/simd_vec-inl.h"

#ifndef DEFT_FLATTEN
#if defined(DEFT_ASAN) || defined(DEFT_TSAN) || !defined(__OPTIMIZE__)
#define DEFT_FLATTEN  // instrumented code of this kind takes minutes to compile
#else
#define DEFT_FLATTEN __attribute__((flatten))
#endif
#endif

#endif  // DEFT_KERNELS_CPU_SIMD_INL_H_
