// Transcendental functions on Vec<T>: infinities, NaN, signed zero, subnormal and huge arguments behave as in <cmath>.
// Bounds: docs/guide/vector_math.md. The frequent ones on floats are in simd_math_f32-inl.h.
#if defined(DEFT_KERNELS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#undef DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#else
#define DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#endif

#include "kernels/cpu/simd/simd_math_f32-inl.h"
#include "kernels/cpu/simd/simd_vec-inl.h"

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
DEFT_PER_LANE1(erfc)
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

#if HWY_NATIVE_FMA
// pow is 2^(y log2(x)), with a logarithm in two doubles: it is multiplied by up to 1075 / log2(x).
struct TwoDoubles {
  Double high, low;
};
// a b + c, where c is zero or twice as large. (Written so that it does not matter which products compilers contract.)
inline TwoDoubles exact_fma(Double a, Double b, Double c) {
  Double high = fma(a, b, c);
  return {high, fma(a, b, c - high)};
}
// log2(1 + f) + k for 1 + f in [sqrt(1/2), sqrt(2)], within 2^-64 of it: s (1 + z/3 + z^2/5 + ...) 2 / log(2) for
// s = f / (2 + f), z = s^2. What has a factor of z^2 need not be exact.
inline constexpr double kLogSeries[] = {1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                                        1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
inline TwoDoubles long_log2(Double f, Double k) {
  const Double zero(0), two(2);
  Double d = two + f, d_low = f - (d - two);
  Double s = f / d, s_low = fma(-s, d_low, fma(-s, d, f)) / d;
  TwoDoubles z = exact_fma(s, s, zero);
  z.low = fma(s + s, s_low, z.low);
  Double rest = polynomial(z.high, z.high * z.high, kLogSeries);
  TwoDoubles p = exact_fma(z.high, rest, Double(1.0 / 3));
  p.low = fma(z.low, rest, p.low + Double(0x1.5555555555555p-56));
  TwoDoubles w = exact_fma(z.high, p.high, zero);
  w.low = fma(z.high, p.low, fma(z.low, p.high, w.low));
  TwoDoubles l = exact_fma(s, w.high, s);
  l.low = fma(s, w.low, fma(s_low, w.high, s_low)) + l.low;
  const Double scale(0x1.71547652b82fep+1), scale_low(0x1.777d0ffda0d24p-55);  // 2 / log(2)
  TwoDoubles r = exact_fma(l.high, scale, k);
  r.low = fma(l.low, scale, fma(l.high, scale_low, r.low));
  return r;
}
// log(2)^i / i!, from i = 1 on.
inline constexpr double kPowerSeries[] = {
    0.6931471805599453,     0.24022650695910072,    0.05550410866482158,   0.009618129107628477, 0.0013333558146428443,
    0.0001540353039338161,  1.5252733804059841e-05, 1.321548679014431e-06, 1.01780860092397e-07, 7.054911620801123e-09,
    4.4455382718708116e-10, 2.5678435993488206e-11, 1.3691488853904128e-12};
inline Double power_of_two(TwoDoubles t) {
  const Double::D d;
  const hn::Rebind<uint64_t, Double::D> du;
  // Adding this rounds to an integer, which then sits in the low bits plus the exponent offset.
  const Double offset(0x1.8p52 + 1023);
  Double n = (t.high + offset) - offset, r = (t.high - n) + t.low;
  // 2^n in two halves, so that neither overflows before the product does.
  Double half = n * Double(0.5) + offset, other = (n - (half - offset)) + offset;
  Double scale(hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(du, half.raw))));
  Double rest(hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(du, other.raw))));
  return fma(polynomial(r, r * r, kPowerSeries), r, Double(1)) * scale * rest;
}
// Zero, infinity and NaN take the place of log2.
[[gnu::noinline]] inline Double long_power(Double x, Double y) {
  const Double::D d;
  const hn::Rebind<uint64_t, Double::D> du;
  const Double zero(0), inf = infinity<double>(), a = abs(x);
  Mask<double> tiny = a < Double(std::numeric_limits<double>::min());
  auto bits = hn::BitCast(du, select(tiny, a * Double(0x1p54), a).raw);
  // The exponent of two that leaves [sqrt(1/2), sqrt(2)), in the upper bits; as a double from the low bits of 2^52.
  auto up = hn::Sub(bits, hn::Set(du, 0x3fe6a09e667f3bcdu));
  auto biased = hn::ShiftRight<52>(hn::Add(up, hn::Set(du, uint64_t{1} << 62)));
  Double k = Double(hn::BitCast(d, hn::Or(biased, hn::Set(du, 0x4330000000000000u)))) - Double(0x1p52 + 1024);
  k = k - select(tiny, Double(54), zero);
  Double f = Double(hn::BitCast(d, hn::Sub(bits, hn::And(up, hn::Set(du, 0xfff0000000000000u))))) - Double(1);
  TwoDoubles log = long_log2(f, k);
  log.high = select(a == zero, -inf, select(a < inf, log.high, a));
  TwoDoubles t = exact_fma(y, log.high, zero);
  const Double limit(1100);  // beyond it powers are 0 and infinite
  t.low = select(abs(t.high) < limit, fma(y, log.low, t.low), zero);
  t.high = clamp(t.high, -1100.0, 1100.0);
  return mend_power(x, y, power_of_two(t));
}
#else
[[gnu::noinline]] inline Double long_power(Double x, Double y) {
  return per_lane(x, y, [](double u, double v) { return std::pow(u, v); });
}
#endif

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
  Vec<T> y = clamp(Vec<T>(hn::Sin(typename Vec<T>::D(), x.raw)), T(-1), T(1));
  Mask<T> far = abs(x) > Vec<T>(kTrigLimit<T>);
  y = keep_zero_and_nan(x, y);
  return any_true(far) ? mend_lanes(far, x, y, [](T v) { return std::sin(v); }) : y;
}
template <class T>
inline Vec<T> cos(Vec<T> x) {
  Vec<T> y = clamp(Vec<T>(hn::Cos(typename Vec<T>::D(), x.raw)), T(-1), T(1));
  Mask<T> far = abs(x) > Vec<T>(kTrigLimit<T>);
  y = select(isnan(x), x, y);
  return any_true(far) ? mend_lanes(far, x, y, [](T v) { return std::cos(v); }) : y;
}
// What pi / 2 is beyond its rounding to T.
template <class T>
inline constexpr T kHalfPiRest = sizeof(T) == 4 ? T(-4.37113900018624283e-8) : T(6.12323399573676588613e-17);

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
template <class T>
inline Vec<T> tan(Vec<T> x) {
  return sin(x) / cos(x);
}
// Of the quotient that is not above 1, turned to where the point lies.
template <class T>
inline Vec<T> atan2(Vec<T> y, Vec<T> x) {
  const Vec<T> zero(0), one(1), half_pi(T(1.57079632679489661923)), half_pi_rest(kHalfPiRest<T>);
  Vec<T> across = abs(x), up = abs(y);
  Mask<T> steep = up > across;
  Vec<T> shorter = select(steep, across, up), longer = select(steep, up, across);
  Vec<T> q = select(longer == zero, zero, select(shorter == infinity<T>(), one, shorter / longer));
  Vec<T> r(hn::Atan(typename Vec<T>::D(), q.raw));
  r = select(steep, (half_pi - r) + half_pi_rest, r);
  r = select(copysign(one, x) < zero, (half_pi + half_pi - r) + (half_pi_rest + half_pi_rest), r);
  return select(isnan(x) | isnan(y), x + y, copysign(r, y));
}
template <class T>
inline Vec<T> asinh(Vec<T> x) {
  return select(isinf(x), x, keep_zero_and_nan(x, Vec<T>(hn::Asinh(typename Vec<T>::D(), x.raw))));
}
template <class T>
inline Vec<T> acosh(Vec<T> x) {
  Vec<T> y(hn::Acosh(typename Vec<T>::D(), x.raw));
  return select(x < Vec<T>(1), Vec<T>(std::numeric_limits<T>::quiet_NaN()), select(x < infinity<T>(), y, x));
}
template <class T>
inline Vec<T> atanh(Vec<T> x) {
  Vec<T> a = abs(x), y(hn::Atanh(typename Vec<T>::D(), x.raw));
  y = select(a == Vec<T>(1), copysign(infinity<T>(), x), keep_zero_and_nan(x, y));
  return select(a > Vec<T>(1), Vec<T>(std::numeric_limits<T>::quiet_NaN()), y);
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
