// Transcendental functions on Vec<T>: infinities, NaN, signed zero, subnormal and huge arguments behave as in <cmath>.
// Bounds: docs/guide/vector_math.md. The frequent ones on floats are in simd_math_f32-inl.h.
#if defined(DEFT_KERNELS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#undef DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#else
#define DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#endif

#include "kernels/cpu/simd_math_f32-inl.h"
#include "kernels/cpu/simd_vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

// Rare functions
#define DEFT_PER_LANE1(name)                                     \
  template <class T>                                             \
  inline Vec<T> name(Vec<T> a) {                                 \
    return per_lane(a, [](T x) { return deft::math::name(x); }); \
  }
#define DEFT_PER_LANE2(name)                                                \
  template <class T>                                                        \
  inline Vec<T> name(Vec<T> a, Vec<T> b) {                                  \
    return per_lane(a, b, [](T x, T y) { return deft::math::name(x, y); }); \
  }
DEFT_PER_LANE1(tan)
DEFT_PER_LANE1(asinh)
DEFT_PER_LANE1(acosh)
DEFT_PER_LANE1(atanh)
DEFT_PER_LANE1(erfc)
DEFT_PER_LANE2(atan2)
DEFT_PER_LANE2(fmod)
DEFT_PER_LANE2(remainder)
#undef DEFT_PER_LANE1
#undef DEFT_PER_LANE2

// y, but x itself where x is a zero or NaN: for odd functions with f(x) ~ x.
template <class T>
inline Vec<T> keep_zero_and_nan(Vec<T> x, Vec<T> y) {
  return select(abs(x) > Vec<T>(0), y, x);
}

// ---- f64: Highway's functions inside their valid range, mended outside.
using Double = Vec<double>;

inline Double clamp_exponent(Double x) {
  Double low(-746.0), high(710.0);  // beyond these exp is 0 and infinite
  return select(x > high, high, select(x < low, low, x));
}
inline Double exp(Double x) { return select(isnan(x), x, Double(hn::Exp(Double::D(), clamp_exponent(x).raw))); }
inline Double expm1(Double x) { return keep_zero_and_nan(x, Double(hn::Expm1(Double::D(), clamp_exponent(x).raw))); }
inline Double exp2(Double x) {
  const hn::Rebind<int64_t, Double::D> di;
  Double c = select(x > Double(1025), Double(1025), select(x > Double(-1076), x, Double(-1076)));
  Double q = round(c);
  Double y = expm1((c - q) * Double(0.693147180559945309417)) + Double(1);
  // 2^q in two halves, so that neither overflows before the product does.
  auto n = hn::ConvertTo(di, q.raw);
  auto half = hn::ShiftRight<1>(n);
  auto bias = hn::Set(di, 1023);
  Double scale(hn::BitCast(Double::D(), hn::ShiftLeft<52>(hn::Add(half, bias))));
  Double rest(hn::BitCast(Double::D(), hn::ShiftLeft<52>(hn::Add(hn::Sub(n, half), bias))));
  return select(isnan(x), x, y * scale * rest);
}
inline Double log(Double x) { return mend_log(x, Double(hn::Log(Double::D(), x.raw))); }
inline Double log1p(Double x) {
  Double one(1), y = x + one;
  Double r = log(y) * (x / (y - one));  // the quotient undoes the rounding of 1 + x
  return select((y == one) | (x == infinity<double>()), x, r);
}
inline Double tanh(Double x) {
  const Double limit(20);  // tanh rounds to 1 before
  Double a = abs(x);
  a = select(a > limit, limit, a);
  Double y(hn::Expm1(Double::D(), (a + a).raw));
  return keep_zero_and_nan(x, copysign(y / (y + Double(2)), x));
}
inline Double sigmoid(Double x) {
  Double one(1), e = exp(-abs(x));
  return select(x < Double(0), e, one) / (one + e);
}
inline Double erf(Double x) {
  return per_lane(x, [](double v) { return std::erf(v); });
}

[[gnu::noinline]] inline Double long_power(Double x, Double y) {
  return per_lane(x, y, [](double u, double v) { return std::pow(u, v); });
}

// ---- Both types.
// Twice the exponents that need no logarithm.
inline constexpr int kShortPowers[] = {-4, -2, -1, 0, 1, 2, 4, 6, 8};
template <class T>
inline Vec<T> short_power(Vec<T> x, int twice) {
  if (twice % 2 != 0) x = select(isinf(x), abs(x), sqrt(x + Vec<T>(0)));  // of -0: 0, of -inf: inf
  if (twice < 0) x = Vec<T>(1) / x;
  if (twice == 0) return Vec<T>(1);
  if (twice == 4 || twice == -4) return x * x;
  if (twice == 6) return x * x * x;
  if (twice == 8) return (x * x) * (x * x);
  return x;
}
// Without branches: where exponents differ, they would be guessed wrong.
template <class T>
[[gnu::noinline]] inline Vec<T> mixed_power(Vec<T> x, Vec<T> y, Mask<T> is_short) {
  Vec<T> r = all_true(is_short) ? x : long_power(x, y);
#pragma GCC unroll 9
  for (int twice : kShortPowers) r = select(y == Vec<T>(twice * T(0.5)), short_power(x, twice), r);
  return r;
}
template <class T>
inline Vec<T> pow(Vec<T> x, Vec<T> y) {
  Mask<T> whole = round(y) == y;
  Mask<T> is_short = (whole & (y >= Vec<T>(-2)) & (y <= Vec<T>(4))) | (abs(y) == Vec<T>(0.5));
  return any_true(is_short) ? mixed_power(x, y, is_short) : long_power(x, y);
}
template <class T>
inline Vec<T> log2(Vec<T> x) {
  return log(x) * Vec<T>(1.44269504088896340736);
}
template <class T>
inline Vec<T> log10(Vec<T> x) {
  return log(x) * Vec<T>(0.434294481903251827651);
}
// Highway's reduction loses accuracy beyond these, and the scalar function takes over. Float has its own where there is
// FMA.
template <class T>
inline constexpr T kTrigLimit = sizeof(T) == 4 ? T(1000) : T(30000);

template <class T>
inline Vec<T> sin(Vec<T> x) {
  if (any_true(abs(x) > Vec<T>(kTrigLimit<T>))) return per_lane(x, [](T v) { return std::sin(v); });
  return keep_zero_and_nan(x, Vec<T>(hn::Sin(typename Vec<T>::D(), x.raw)));
}
template <class T>
inline Vec<T> cos(Vec<T> x) {
  if (any_true(abs(x) > Vec<T>(kTrigLimit<T>))) return per_lane(x, [](T v) { return std::cos(v); });
  return select(isnan(x), x, Vec<T>(hn::Cos(typename Vec<T>::D(), x.raw)));
}
template <class T>
inline Vec<T> asin(Vec<T> x) {
  return keep_zero_and_nan(x, Vec<T>(hn::Asin(typename Vec<T>::D(), x.raw)));
}
template <class T>
inline Vec<T> acos(Vec<T> x) {
  return select(isnan(x), x, Vec<T>(hn::Acos(typename Vec<T>::D(), x.raw)));
}
template <class T>
inline Vec<T> atan(Vec<T> x) {
  return keep_zero_and_nan(x, Vec<T>(hn::Atan(typename Vec<T>::D(), x.raw)));
}

// exp(a) / 2 for large a, where exp(a) itself may overflow.
template <class T>
inline Vec<T> half_exp(Vec<T> a) {
  Vec<T> e = exp(a * Vec<T>(0.5));
  return (e * Vec<T>(0.5)) * e;
}
template <class T>
inline Vec<T> sinh(Vec<T> x) {
  constexpr T kLarge = sizeof(T) == 4 ? 40 : 350;
  Vec<T> a = abs(x), y = expm1(select(a > Vec<T>(kLarge), Vec<T>(kLarge), a));
  Vec<T> small = (y + y / (y + Vec<T>(1))) * Vec<T>(0.5);
  return keep_zero_and_nan(x, copysign(select(a > Vec<T>(kLarge), half_exp(a), small), x));
}
template <class T>
inline Vec<T> cosh(Vec<T> x) {
  constexpr T kLarge = sizeof(T) == 4 ? 40 : 350;
  Vec<T> a = abs(x), e = exp(select(a > Vec<T>(kLarge), Vec<T>(kLarge), a));
  Vec<T> small = (e + Vec<T>(1) / e) * Vec<T>(0.5);
  return select(isnan(x), x, select(a > Vec<T>(kLarge), half_exp(a), small));
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
