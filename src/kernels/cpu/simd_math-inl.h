// Transcendental functions on Vec<T>; error bounds in simd-inl.h. Highway's versions are used inside their valid range
// and mended outside: infinities, NaN, signed zero, subnormal and huge arguments behave as in <cmath>.
#if defined(DEFT_KERNELS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#undef DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#else
#define DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#endif

#include "kernels/cpu/simd_vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

// Rare functions: one call of the scalar function per lane.
template <class T, class F>
inline Vec<T> per_lane(Vec<T> a, F f) {
  T x[Vec<T>::kLanes];
  a.store(x);
  for (T& v : x) v = f(v);
  return Vec<T>::load(x);
}
template <class T, class F>
inline Vec<T> per_lane(Vec<T> a, Vec<T> b, F f) {
  T x[Vec<T>::kLanes], y[Vec<T>::kLanes];
  a.store(x);
  b.store(y);
  for (size_t i = 0; i < Vec<T>::kLanes; ++i) x[i] = f(x[i], y[i]);
  return Vec<T>::load(x);
}
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
DEFT_PER_LANE2(pow)
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
template <class T>
inline Vec<T> clamp_exponent(Vec<T> x) {
  constexpr bool kF32 = sizeof(T) == 4;
  Vec<T> low(kF32 ? -104.0 : -746.0), high(kF32 ? 89.0 : 710.0);  // beyond these exp is 0 and infinite
  return select(x > high, high, select(x < low, low, x));
}

template <class T>
inline Vec<T> exp(Vec<T> x) {
  Vec<T> y(hn::Exp(typename Vec<T>::D(), clamp_exponent(x).raw));
  return select(isnan(x), x, y);
}
template <class T>
inline Vec<T> expm1(Vec<T> x) {
  return keep_zero_and_nan(x, Vec<T>(hn::Expm1(typename Vec<T>::D(), clamp_exponent(x).raw)));
}
template <class T>
inline Vec<T> exp2(Vec<T> x) {
  constexpr bool kF32 = sizeof(T) == 4;
  constexpr T kLow = kF32 ? -151 : -1076, kHigh = kF32 ? 129 : 1025;
  const typename Vec<T>::D d;
  const hn::Rebind<hwy::MakeSigned<T>, decltype(d)> di;
  Vec<T> c = select(x > Vec<T>(kHigh), Vec<T>(kHigh), select(x > Vec<T>(kLow), x, Vec<T>(kLow)));
  Vec<T> q = round(c);
  Vec<T> y = expm1((c - q) * Vec<T>(0.693147180559945309417)) + Vec<T>(1);
  // 2^q in two halves, so that neither overflows before the product does.
  constexpr int kMantissa = kF32 ? 23 : 52, kBias = kF32 ? 127 : 1023;
  auto n = hn::ConvertTo(di, q.raw);
  auto half = hn::ShiftRight<1>(n);
  auto bias = hn::Set(di, kBias);
  Vec<T> scale(hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::Add(half, bias))));
  Vec<T> rest(hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::Add(hn::Sub(n, half), bias))));
  y = y * scale * rest;
  return select(isnan(x), x, y);
}

// log of zero, negative numbers, infinity and NaN; y elsewhere.
template <class T>
inline Vec<T> mend_log(Vec<T> x, Vec<T> y) {
  const Vec<T> zero(0), inf = infinity<T>();
  Vec<T> special = select(x == zero, -inf, select(x > zero, x, Vec<T>(std::numeric_limits<T>::quiet_NaN())));
  return select((x > zero) & (x < inf), y, special);
}
template <class T>
inline Vec<T> log(Vec<T> x) {
  return mend_log(x, Vec<T>(hn::Log(typename Vec<T>::D(), x.raw)));
}
template <class T>
inline Vec<T> log2(Vec<T> x) {
  return log(x) * Vec<T>(1.44269504088896340736);
}
template <class T>
inline Vec<T> log10(Vec<T> x) {
  return log(x) * Vec<T>(0.434294481903251827651);
}
template <class T>
inline Vec<T> log1p(Vec<T> x) {
  Vec<T> one(1), y = x + one;
  Vec<T> r = log(y) * (x / (y - one));  // the quotient undoes the rounding of 1 + x
  return select((y == one) | (x == infinity<T>()), x, r);
}

// Beyond this the argument reduction of Highway loses accuracy and the scalar function takes over.
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
template <class T>
inline Vec<T> tanh(Vec<T> x) {
  const Vec<T> limit(20);  // tanh rounds to 1 before
  Vec<T> a = abs(x);
  a = select(a > limit, limit, a);
  Vec<T> y(hn::Expm1(typename Vec<T>::D(), (a + a).raw));
  return keep_zero_and_nan(x, copysign(y / (y + Vec<T>(2)), x));
}
template <class T>
inline Vec<T> sigmoid(Vec<T> x) {
  Vec<T> one(1), e = exp(-abs(x));
  return select(x < Vec<T>(0), e, one) / (one + e);
}

// Near zero x + x P(x^2), elsewhere 1 - exp(-(t + t Q(t))): both fitted at Chebyshev nodes to 0.25 ulp.
inline Vec<float> erf(Vec<float> x) {
  using V = Vec<float>;
  V t = abs(x), s = x * x;
  V p = fma(V(8.39977780835775e-05), s, V(-0.0008150050491252996));
  p = fma(p, s, V(0.005201714569480602));
  p = fma(p, s, V(-0.02685969065509113));
  p = fma(p, s, V(0.11283701170209846));
  p = fma(p, s, V(-0.3761263413970103));
  p = fma(p, s, V(0.12837916668450727));
  V near_zero = fma(p, x, x);
  V u = select(t > V(3.95), V(3.95), t);  // erf rounds to 1 before
  V q = fma(V(1.6745990018216197e-05), u, V(-0.0003755579783200497));
  q = fma(q, u, V(0.0038428836505276427));
  q = fma(q, u, V(-0.024146967292888285));
  q = fma(q, u, V(0.1066283900186253));
  q = fma(q, u, V(0.6349529594209437));
  q = fma(q, u, V(0.12868710786630097));
  V far = V(1) - V(hn::Exp(V::D(), (-fma(q, u, u)).raw));
  return keep_zero_and_nan(x, select(t < V(0.92), near_zero, copysign(far, x)));
}
inline Vec<double> erf(Vec<double> x) {
  return per_lane(x, [](double v) { return std::erf(v); });
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_SIMD_MATH_INL_H_
