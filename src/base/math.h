// The functions formulas are written with, for scalars. SIMD vectors and device code provide the same set, so that
// one template body (`using math::tanh; return tanh(x);`) serves them all.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

// Every formula carries DEFT_HD. Inlining is not a hint here: a formula compiled on its own would be compiled for the
// baseline instruction set, not for the SIMD target it is used in.
#ifndef DEFT_HD
#ifdef __CUDACC__
#define DEFT_HD __host__ __device__ __forceinline__
#else
#define DEFT_HD [[gnu::always_inline]] inline
#endif
#endif

namespace deft::math {

#ifdef __CUDACC__
// Long ones are called on the device: kernels repeat their formula for every element a thread works on.
namespace device {
inline __device__ __noinline__ float fmod(float x, float y) { return ::fmodf(x, y); }
inline __device__ __noinline__ double fmod(double x, double y) { return ::fmod(x, y); }
inline __device__ __noinline__ float pow(float x, float y) { return ::powf(x, y); }
inline __device__ __noinline__ double pow(double x, double y) { return ::pow(x, y); }
}  // namespace device
#endif
#ifdef __CUDA_ARCH__
#define DEFT_MATH_LONG device
#else
#define DEFT_MATH_LONG std
#endif

#define DEFT_MATH_STD1(name)                           \
  DEFT_HD float name(float x) { return std::name(x); } \
  DEFT_HD double name(double x) { return std::name(x); }
#define DEFT_MATH_STD2(name)                                       \
  DEFT_HD float name(float x, float y) { return std::name(x, y); } \
  DEFT_HD double name(double x, double y) { return std::name(x, y); }

DEFT_MATH_STD1(exp)
DEFT_MATH_STD1(expm1)
DEFT_MATH_STD1(exp2)
DEFT_MATH_STD1(log)
DEFT_MATH_STD1(log1p)
DEFT_MATH_STD1(log2)
DEFT_MATH_STD1(log10)
DEFT_MATH_STD1(sqrt)
DEFT_MATH_STD1(abs)
DEFT_MATH_STD1(sin)
DEFT_MATH_STD1(cos)
DEFT_MATH_STD1(tan)
DEFT_MATH_STD1(asin)
DEFT_MATH_STD1(acos)
DEFT_MATH_STD1(atan)
DEFT_MATH_STD1(sinh)
DEFT_MATH_STD1(cosh)
DEFT_MATH_STD1(tanh)
DEFT_MATH_STD1(asinh)
DEFT_MATH_STD1(acosh)
DEFT_MATH_STD1(atanh)
DEFT_MATH_STD1(erf)
DEFT_MATH_STD1(erfc)
DEFT_MATH_STD1(floor)
DEFT_MATH_STD1(ceil)
DEFT_MATH_STD1(trunc)
DEFT_MATH_STD2(atan2)
DEFT_MATH_STD2(copysign)
DEFT_HD float pow(float x, float y) { return DEFT_MATH_LONG::pow(x, y); }
DEFT_HD double pow(double x, double y) { return DEFT_MATH_LONG::pow(x, y); }
DEFT_HD float fmod(float x, float y) { return DEFT_MATH_LONG::fmod(x, y); }
DEFT_HD double fmod(double x, double y) { return DEFT_MATH_LONG::fmod(x, y); }
#undef DEFT_MATH_LONG
#undef DEFT_MATH_STD1
#undef DEFT_MATH_STD2

// Half to even, in the default rounding mode.
DEFT_HD float round(float x) { return std::nearbyint(x); }
DEFT_HD double round(double x) { return std::nearbyint(x); }

template <std::floating_point T>
DEFT_HD T rsqrt(T x) {
#ifdef __CUDA_ARCH__
  return ::rsqrt(x);  // within 2 units in the last place
#else
  return T(1) / std::sqrt(x);
#endif
}
template <std::floating_point T>
DEFT_HD T reciprocal(T x) {
  return T(1) / x;
}
// Through exp(-|x|), so that large negative x keep their relative accuracy.
template <std::floating_point T>
DEFT_HD T sigmoid(T x) {
  T e = std::exp(-std::abs(x));
  return (x >= T(0) ? T(1) : e) / (T(1) + e);
}
template <std::floating_point T>
DEFT_HD T fma(T a, T b, T c) {
  return std::fma(a, b, c);
}
// NaN in either argument wins.
template <std::floating_point T>
DEFT_HD T min(T a, T b) {
  return (a < b || a != a) ? a : b;
}
template <std::floating_point T>
DEFT_HD T max(T a, T b) {
  return (a > b || a != a) ? a : b;
}
template <std::floating_point T>
DEFT_HD T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}
// The result has the sign of the divisor, as in Python.
template <std::floating_point T>
DEFT_HD T remainder(T a, T b) {
  T r = fmod(a, b);
  return (r != T(0) && (r < T(0)) != (b < T(0))) ? r + b : r;
}
template <std::floating_point T>
DEFT_HD bool isnan(T x) {
  return std::isnan(x);
}
template <std::floating_point T>
DEFT_HD bool isinf(T x) {
  return std::isinf(x);
}
template <std::floating_point T>
DEFT_HD bool isfinite(T x) {
  return std::isfinite(x);
}

template <class T>
requires std::is_arithmetic_v<T> DEFT_HD T select(bool condition, T a, T b) { return condition ? a : b; }

// ---- Integers and bool. Overflow wraps; division by zero gives zero instead of a trap.
template <std::integral T>
DEFT_HD bool is_negative(T x) {
  if constexpr (std::is_unsigned_v<T>) {
    return false;
  } else {
    return x < T(0);
  }
}
template <std::integral T>
DEFT_HD T abs(T x) {
  if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else {
    using U = std::make_unsigned_t<T>;
    return x < 0 ? static_cast<T>(U(0) - static_cast<U>(x)) : x;
  }
}
template <std::integral T>
DEFT_HD T wrapping_add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  return static_cast<T>(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
}
template <std::integral T>
DEFT_HD T wrapping_sub(T a, T b) {
  return static_cast<T>(static_cast<unsigned long long>(a) - static_cast<unsigned long long>(b));
}
template <std::integral T>
DEFT_HD T wrapping_mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a && b;
  return static_cast<T>(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
}
template <std::integral T>
DEFT_HD T min(T a, T b) {
  return b < a ? b : a;
}
template <std::integral T>
DEFT_HD T max(T a, T b) {
  return a < b ? b : a;
}
template <std::integral T>
DEFT_HD T sign(T x) {
  return static_cast<T>((x > T(0)) - (x < T(0)));
}
template <std::integral T>
DEFT_HD T floor(T x) {
  return x;
}
template <std::integral T>
DEFT_HD T ceil(T x) {
  return x;
}
template <std::integral T>
DEFT_HD T trunc(T x) {
  return x;
}
template <std::integral T>
DEFT_HD T round(T x) {
  return x;
}
template <std::integral T>
DEFT_HD T fmod(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return T(0);  // min % -1 overflows
  }
  return static_cast<T>(a % b);
}
template <std::integral T>
DEFT_HD T remainder(T a, T b) {
  T r = fmod(a, b);
  return (r != T(0) && is_negative(r) != is_negative(b)) ? static_cast<T>(r + b) : r;
}
// Rounds down.
template <std::integral T>
DEFT_HD T floor_divide(T a, T b) {
  if (b == T(0)) return T(0);
  if constexpr (std::is_signed_v<T>) {
    if (b == T(-1)) return wrapping_sub(T(0), a);  // min / -1 overflows
  }
  T q = static_cast<T>(a / b);
  return a % b != 0 && is_negative(a) != is_negative(b) ? static_cast<T>(q - 1) : q;
}
template <std::integral T>
DEFT_HD T pow(T base, T exponent) {
  if (is_negative(exponent)) {  // 1 / base^n, truncated
    if (base == T(1)) return base;
    if constexpr (std::is_signed_v<T>) {
      if (base == T(-1)) return exponent % 2 ? T(-1) : T(1);
    }
    return T(0);
  }
  unsigned long long result = 1, b = static_cast<unsigned long long>(base);
  for (auto e = static_cast<unsigned long long>(exponent); e; e >>= 1, b *= b) {
    if (e & 1) result *= b;
  }
  return static_cast<T>(result);
}
template <std::integral T>
DEFT_HD bool isnan(T) {
  return false;
}
template <std::integral T>
DEFT_HD bool isinf(T) {
  return false;
}
template <std::integral T>
DEFT_HD bool isfinite(T) {
  return true;
}

}  // namespace deft::math
