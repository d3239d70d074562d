// The part of the standard library that formulas use, for NVRTC, which has none. Stands for <cmath>, <type_traits> and
// the others: guarded, since it is included under all these names. See kernels/cuda/device/nvrtc.h.
#ifndef DEFT_DEVICE_STD
#define DEFT_DEVICE_STD

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
static_assert(sizeof(int64_t) == 8 && sizeof(size_t) == 8);
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807L
#define INT64_MIN (-INT64_MAX - 1)
#define NAN __int_as_float(0x7fffffff)

namespace std {

using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::size_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;

// ---- <type_traits>, <concepts>, <utility>
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T, class... Any>
inline constexpr bool is_one_of_v = (is_same_v<T, Any> || ...);
template <class T>
inline constexpr bool is_floating_point_v = is_one_of_v<T, float, double>;
template <class T>
inline constexpr bool is_integral_v = is_one_of_v<T, bool, char, signed char, unsigned char, short, unsigned short, int,
                                                  unsigned, long, unsigned long, long long, unsigned long long>;
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T>
inline constexpr bool is_signed_v = is_arithmetic_v<T>&& T(-1) < T(0);
template <>
inline constexpr bool is_signed_v<bool> = false;
template <class T>
inline constexpr bool is_unsigned_v = is_arithmetic_v<T> && !is_signed_v<T>;
template <bool kFirst, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;
template <class T>
using make_unsigned_t =
    conditional_t<sizeof(T) == 1, uint8_t,
                  conditional_t<sizeof(T) == 2, uint16_t, conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
template <class T>
concept integral = is_integral_v<T>;
template <class T>
concept floating_point = is_floating_point_v<T>;
template <class A, class B>
concept same_as = is_same_v<A, B>;

template <size_t... I>
struct index_sequence {};
template <size_t kLeft, size_t... I>
struct count_down {
  using type = typename count_down<kLeft - 1, kLeft - 1, I...>::type;
};
template <size_t... I>
struct count_down<0, I...> {
  using type = index_sequence<I...>;
};
template <size_t kCount>
using make_index_sequence = typename count_down<kCount>::type;

template <class T>
struct optional {};  // in declarations only

// ---- <limits>
template <class T>
struct numeric_limits {
  static constexpr bool kNegative = is_signed_v<T>;
  static constexpr T max() { return static_cast<T>(~uint64_t{0} >> (64 - 8 * sizeof(T) + (kNegative ? 1 : 0))); }
  static constexpr T min() { return kNegative ? static_cast<T>(-max() - 1) : T(0); }
};
template <>
struct numeric_limits<double> {
  static constexpr double infinity() { return __builtin_bit_cast(double, 0x7ff0000000000000); }
};

// ---- <bit>, <string_view>
template <class To, class From>
constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}
struct string_view {
  const char* text = nullptr;
  constexpr string_view(const char* t) : text(t) {}
};

// ---- <cmath>: what nvcc makes of these names
#define DEFT_STD_MATH(name, float_name)                                      \
  __device__ __forceinline__ float name(float x) { return ::float_name(x); } \
  __device__ __forceinline__ double name(double x) { return ::name(x); }
DEFT_STD_MATH(exp, expf)
DEFT_STD_MATH(expm1, expm1f)
DEFT_STD_MATH(exp2, exp2f)
DEFT_STD_MATH(log, logf)
DEFT_STD_MATH(log1p, log1pf)
DEFT_STD_MATH(log2, log2f)
DEFT_STD_MATH(log10, log10f)
DEFT_STD_MATH(sqrt, sqrtf)
DEFT_STD_MATH(sin, sinf)
DEFT_STD_MATH(cos, cosf)
DEFT_STD_MATH(tan, tanf)
DEFT_STD_MATH(asin, asinf)
DEFT_STD_MATH(acos, acosf)
DEFT_STD_MATH(atan, atanf)
DEFT_STD_MATH(sinh, sinhf)
DEFT_STD_MATH(cosh, coshf)
DEFT_STD_MATH(tanh, tanhf)
DEFT_STD_MATH(asinh, asinhf)
DEFT_STD_MATH(acosh, acoshf)
DEFT_STD_MATH(atanh, atanhf)
DEFT_STD_MATH(erf, erff)
DEFT_STD_MATH(erfc, erfcf)
DEFT_STD_MATH(floor, floorf)
DEFT_STD_MATH(ceil, ceilf)
DEFT_STD_MATH(trunc, truncf)
DEFT_STD_MATH(nearbyint, nearbyintf)
#undef DEFT_STD_MATH
__device__ __forceinline__ float abs(float x) { return ::fabsf(x); }
__device__ __forceinline__ double abs(double x) { return ::fabs(x); }
__device__ __forceinline__ float atan2(float x, float y) { return ::atan2f(x, y); }
__device__ __forceinline__ double atan2(double x, double y) { return ::atan2(x, y); }
__device__ __forceinline__ float copysign(float x, float y) { return ::copysignf(x, y); }
__device__ __forceinline__ double copysign(double x, double y) { return ::copysign(x, y); }
__device__ __forceinline__ float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
__device__ __forceinline__ double fma(double x, double y, double z) { return ::fma(x, y, z); }
template <floating_point T>
__device__ __forceinline__ bool isnan(T x) {
  return ::isnan(x);
}
template <floating_point T>
__device__ __forceinline__ bool isinf(T x) {
  return ::isinf(x);
}
template <floating_point T>
__device__ __forceinline__ bool isfinite(T x) {
  return ::isfinite(x);
}

}  // namespace std

#endif
