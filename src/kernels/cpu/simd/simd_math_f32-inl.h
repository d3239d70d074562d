// Transcendental functions on Vec<float>. Bounds: docs/guide/vector_math.md. All of them are branch-free in the common
// case, return NaN for NaN without asking for it, and handle infinities, signed zeros and subnormals.
//
// The polynomials are minimax fits whose coefficients were rounded to float one after the other, each time refitting
// the rest.
#if defined(DEFT_KERNELS_CPU_SIMD_MATH_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_SIMD_MATH_F32_INL_H_
#undef DEFT_KERNELS_CPU_SIMD_MATH_F32_INL_H_
#else
#define DEFT_KERNELS_CPU_SIMD_MATH_F32_INL_H_
#endif

#include "kernels/cpu/simd/simd_vec-inl.h"
#include "kernels/cpu/x86/gelu_share.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

using Float = Vec<float>;
using IntVec = hn::Vec<hn::Rebind<int32_t, Float::D>>;

inline IntVec bits_of(Float x) { return hn::BitCast(hn::Rebind<int32_t, Float::D>(), x.raw); }
inline Float from_bits(IntVec i) { return Float(hn::BitCast(Float::D(), i)); }
inline IntVec int_vec(int32_t i) { return hn::Set(hn::Rebind<int32_t, Float::D>(), i); }

// A coefficient in memory, ready to be loaded as a vector.
struct alignas(16) Coefficient {
  float lanes[4];
  constexpr Coefficient(float c) : lanes{c, c, c, c} {}
  inline Float vec() const { return Float(lanes[0]); }
};

// a b + c. NEON's fmla overwrites c: GCC would keep c in a register and copy it each time, which costs a vector
// instruction; a load costs none. a and b are inputs of the load so that it stays in the loop, one for each vector.
inline Float fma(Float a, Float b, const Coefficient& c) {
#if HWY_TARGET == HWY_NEON
  float32x4_t sum;
  asm("ldr %q0, %1" : "=w"(sum) : "m"(c), "w"(a.raw.raw), "w"(b.raw.raw));
  return Float(Float::Raw(vfmaq_f32(sum, a.raw.raw, b.raw.raw)));
#else
  return fma(a, b, c.vec());
#endif
}
// c - a b
inline Float fnma(Float a, Float b, Float c) { return Float(hn::NegMulAdd(a.raw, b.raw, c.raw)); }

// c[i] + c[i + 1] x + ...: pairs first, then Horner in x^2, so that chains of dependent operations are short. (Fours
// and x^4 in the long ones: no faster.)
template <size_t i = 0, size_t n>
inline Float polynomial(Float x, Float x2, const Coefficient (&c)[n]) {
  if constexpr (i + 1 == n) {
    return c[i].vec();
  } else if constexpr (i + 2 == n) {
    return fma(c[i + 1].vec(), x, c[i]);
  } else {
    return fma(polynomial<i + 2>(x, x2, c), x2, fma(c[i + 1].vec(), x, c[i]));
  }
}

// These keep NaN. On it x86 takes the second operand, NEON has such instructions, and the scalar target drops it.
template <class T>
inline Vec<T> at_most(Vec<T> x, T high) {
#if HWY_TARGET == HWY_NEON
  return min(x, Vec<T>(high));
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return select(x > Vec<T>(high), Vec<T>(high), x);
#else
  return Vec<T>(hn::Min(Vec<T>(high).raw, x.raw));
#endif
}
template <class T>
inline Vec<T> at_least(Vec<T> x, Vec<T> low) {
#if HWY_TARGET == HWY_NEON
  return max(x, low);
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return select(x < low, low, x);
#else
  return Vec<T>(hn::Max(low.raw, x.raw));
#endif
}
template <class T>
inline Vec<T> clamp(Vec<T> x, T low, T high) {
  return at_least(at_most(x, high), Vec<T>(low));
}

// Adding one rounds to an integer, which then sits in the low bits plus the exponent offset of a float (or two).
inline constexpr Coefficient kRound127 = 12582912.0f + 127, kRound254 = 12582912.0f + 254;
inline constexpr Coefficient kMinusHalf = -0.5f, kOne = 1.0f;
inline constexpr float kLog2e = 1.44269504f;
// Multiples of the upper part up to 512 are exact, with and without FMA.
inline constexpr float kLn2High = 0.693145752f, kLn2Low = 1.42860677e-06f;

// 2^n as two factors, so that a product with it over- and underflows only if the result does. n = t - kRound254.
struct Powers {
  Float half, rest;
};
inline Powers powers_of_two(Float t) {
  IntVec i = bits_of(t);
  IntVec half = hn::And(hn::ShiftLeft<22>(i), int_vec(0x7f800000));
  return {from_bits(half), from_bits(hn::Sub(hn::ShiftLeft<23>(i), half))};
}

inline constexpr Coefficient kExp[] = {0.49999994f, 0.166665152f, 0.0416680835f, 0.00836935081f, 0.00138404639f};
inline Float exp(Float x) {
  x = clamp(x, -104.0f, 89.0f);  // beyond these exp is 0 and infinite
  Float t = fma(x, Float(kLog2e), kRound254);
  Float n = t - kRound254.vec();
  Float upper = fma(n, Float(-kLn2High), x), lower = n * Float(-kLn2Low);  // upper is exact
  Float r = upper + lower;
  Float r2 = r * r;
  Float p = upper + fma(polynomial(r, r2, kExp), r2, lower);  // e^r - 1, without the rounding of r
  Powers s = powers_of_two(t);
  return fma(p, s.half, s.half) * s.rest;
}

// 2^f for |f| <= 1/2.
inline constexpr Coefficient kExp2[] = {0.693147182f,   0.240226477f,   0.0555035919f,
                                        0.00961850584f, 0.00133912417f, 0.000153271132f};
inline Float power_of_two(Float f) { return fma(polynomial(f, f * f, kExp2), f, kOne); }
inline Float exp2(Float x) {
  x = clamp(x, -151.0f, 129.0f);
  Float t = x + kRound254.vec();
  Float f = x - (t - kRound254.vec());
  Powers s = powers_of_two(t);
  return (power_of_two(f) * s.half) * s.rest;
}

// (e^x - 1) = S (S p + S - 1/S), where S^2 is a power of 4 and p = e^r - 1 with |r| <= log(2): p alone near zero, and
// no overflow before the result's. 1/S is the bits' reflection.
inline constexpr Coefficient kExpm1[] = {0.5f,           0.166666731f,    0.0416666865f,  0.00833259057f,
                                         0.00138877833f, 0.000200994211f, 2.50705525e-05f};
inline Float expm1(Float x) {
  Float y = clamp(x, -20.0f, 89.0f);
  Float t = fma(y, Float(0.5f * kLog2e), kRound127);
  Float n = t - kRound127.vec();
  Float r = fma(n, Float(-2 * kLn2Low), fma(n, Float(-2 * kLn2High), y));
  Float r2 = r * r;
  Float p = fma(polynomial(r, r2, kExpm1), r2, r);
  IntVec power = hn::ShiftLeft<23>(bits_of(t));
  Float s = from_bits(power), inverse = from_bits(hn::Sub(int_vec(0x7f000000), power));
  return select(x == Float(0), x, s * fma(s, p, s - inverse));
}

// log(2^k (1 + f)) with 1 + f near 1.
inline constexpr Coefficient kLog[] = {0.333333313f, -0.250008225f, 0.200012609f, -0.166233301f,
                                       0.142009601f, -0.131596059f, 0.127668276f, -0.076425463f};
inline Float log_sum(Float k, Float f) {
  Float f2 = f * f;
  Float tail = f2 * fma(polynomial(f, f2, kLog), f, kMinusHalf);
  Float upper = k * Float(kLn2High), sum = upper + f, lost = f - (sum - upper);
  return sum + (fma(k, Float(kLn2Low), lost) + tail);
}
// x as 2^k m with m in [sqrt(1/2), sqrt(2)): the bits of 2^k relative to those of 1.
inline IntVec log_exponent(Float x) {
  return hn::And(hn::Sub(bits_of(x), int_vec(0x3f3504f3)), int_vec(static_cast<int32_t>(0xff800000)));
}
inline Float log_power(IntVec exponent) { return Float(hn::ConvertTo(Float::D(), hn::ShiftRight<23>(exponent))); }
// log of zero, negative numbers, infinity and NaN; y elsewhere.
template <class T>
inline Vec<T> mend_log(Vec<T> x, Vec<T> y) {
  const Vec<T> zero(0), inf = infinity<T>();
  Vec<T> undefined = select(x == zero, -inf, Vec<T>(std::numeric_limits<T>::quiet_NaN()));
  return select(x == inf, x, select(x > zero, y, undefined));
}
inline Float log(Float x) {
  Mask<float> tiny = x < Float(std::numeric_limits<float>::min());
  Float scaled = select(tiny, x * Float(0x1p24f), x);
  IntVec e = log_exponent(scaled);
  Float k = log_power(e) - select(tiny, Float(24), Float(0));
  return mend_log(x, log_sum(k, from_bits(hn::Sub(bits_of(scaled), e)) - Float(1)));
}
inline Float log1p(Float x) {
  Float y = x + Float(1), lost = x - (y - Float(1));
  IntVec e = log_exponent(y);
  // 2^-k; 2^-128 is no normal number, and nothing is lost there.
  Float down = from_bits(hn::Sub(int_vec(0x3f800000), hn::Min(e, int_vec(126 << 23))));
  Float r = log_sum(log_power(e), fma(lost, down, from_bits(hn::Sub(bits_of(y), e)) - Float(1)));
  return select(x == Float(0), x, mend_log(y, r));
}

// With h = (e^2r - 1) / 2 and n steps of log(2): (e^2|x| - 1) / 2 = 2^n h + (2^n - 1) / 2 =: v, and tanh = v / (v + 1).
inline constexpr Coefficient kTanh[] = {0.99999994f, 0.666661501f, 0.333341867f, 0.133876532f, 0.0442881212f};
inline Float tanh(Float x) {
  Float a = at_most(abs(x), 9.2f);  // tanh rounds to 1 before
  Float t = fma(a, Float(2 * kLog2e), kRound127);
  Float r = fma(t - kRound127.vec(), Float(-0.346573590f), a);
  Float r2 = r * r;
  Float h = fma(polynomial(r, r2, kTanh), r2, r);
  Float power = from_bits(hn::ShiftLeft<23>(bits_of(t)));
  Float v = fma(power, h, fma(power, Float(0.5f), kMinusHalf));
  // The rounding of v + 1 would cost small results an ulp: there tanh = v - v^2 / (v + 1).
  Mask<float> small = v < Float(0.5f);
  Float quotient = v / (v + Float(1));
  return copysign(fnma(select(small, v, Float(-1)), quotient, select(small, v, Float(0))), x);
}

// 1 / (1 + e^-x) = (1/S) / (1/S + S' e^-r) with powers of two S and S': no overflow, and gradual underflow.
inline constexpr Coefficient kSigmoid[] = {0.49999994f, -0.166665211f, 0.0416682921f, -0.00836872123f, 0.0013818742f};
inline Float sigmoid(Float x) {
  x = clamp(x, -104.0f, 104.0f);
  Float t = fma(x, Float(-kLog2e), kRound254);
  Float n = t - kRound254.vec();
  Float r = fma(n, Float(kLn2Low), fma(n, Float(kLn2High), x));
  Float r2 = r * r;
  Float p = fma(polynomial(r, r2, kSigmoid), r2, -r);  // e^-r - 1
  Powers s = powers_of_two(t);
  Float inverse = from_bits(hn::Sub(int_vec(0x7f000000), bits_of(s.half)));
  return inverse / (fma(s.rest, p, inverse) + s.rest);
}

// 1 - e^-w with w = a q(a) = -log(erfc(a)), split into n steps of log(2) and r.
inline constexpr float kErfSlope = 1.12837923f, kErfSlopeLow = -5.86353834e-08f;  // 2 / sqrt(pi)
inline constexpr Coefficient kErf[] = {0.636619508f,   0.102776878f,     -0.0191499852f,  -0.000165467602f,
                                       0.00167159911f, -0.000635105069f, 0.000118219061f, -9.31496288e-06f};
inline constexpr Coefficient kOneLessExp[] = {0.49999997f, -0.16666545f, 0.041667439f, -0.00836645346f, 0.0013870555f};
inline Float erf(Float x) {
  Float a = at_most(abs(x), 3.95f);  // erf rounds to 1 before
  Float a2 = a * a;
  Float w = fma(a, Float(kErfSlope), fma(polynomial(a, a2, kErf), a2, a * Float(kErfSlopeLow)));
  Float t = fma(w, Float(-kLog2e), kRound127);
  Float r = fma(t - kRound127.vec(), Float(0.693147181f), w);
  Float r2 = r * r;
  Float p = fnma(polynomial(r, r2, kOneLessExp), r2, r);  // 1 - e^-r
  Float power = from_bits(hn::ShiftLeft<23>(bits_of(t)));
  return copysign(fma(power, p, Float(1) - power), x);
}

// pow is 2^(y log2(x)): in double and rounded once, because a logarithm times y has no digits to spare as a float.
// log2(1 + f) / f for 1 + f in [sqrt(1/2), sqrt(2)), and 2^r for |r| <= 1/2: relative errors of 1.7e-11 and 1.9e-9.
inline constexpr double kPowLog2[] = {
    1.442695040868703,   -0.7213475208687378, 0.4808983613960427,  -0.3606736748333232, 0.28853729342835416,
    -0.2404531652499103, 0.20617536060551334, -0.1803006101893521, 0.15876979244087655, -0.14315635828807424,
    0.1447484139066909,  -0.1428397615444127, 0.07737089223864385};
inline constexpr double kPowExp2[] = {1.0000000005541747,    0.6931472057375063,  0.24022646890742702,
                                      0.0555032877667487,    0.00961848894170975, 0.001339993130672523,
                                      0.00015345816438900667};
// The same with an odd number of doubles.
template <size_t i = 0, size_t n>
inline Vec<double> polynomial(Vec<double> x, Vec<double> x2, const double (&c)[n]) {
  if constexpr (i + 1 == n) {
    return Vec<double>(c[i]);
  } else {
    return fma(polynomial<i + 2>(x, x2, c), x2, fma(Vec<double>(c[i + 1]), x, Vec<double>(c[i])));
  }
}
// 2^(y (k + log2(1 + f))), for as many floats as a vector holds doubles.
using HalfFloat = hn::Vec<hn::Rebind<float, Vec<double>::D>>;
inline Vec<double> power_half(HalfFloat whole, HalfFloat fraction, HalfFloat exponent) {
  using V = Vec<double>;
  const V::D d;
  const hn::Rebind<int64_t, V::D> di;
  V k(hn::PromoteTo(d, whole)), f(hn::PromoteTo(d, fraction)), y(hn::PromoteTo(d, exponent));
  V t = y * fma(polynomial(f, f * f, kPowLog2), f, k);
  t = clamp(t, -200.0, 200.0);  // beyond these floats are 0 and infinite
  // Adding this rounds to an integer, which then sits in the low bits plus the exponent offset of a double.
  const V offset(0x1.8p52 + 1023);
  V n = t + offset, r = t - (n - offset);
  V scale(hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(di, n.raw))));
  return polynomial(r, r * r, kPowExp2) * scale;
}
inline Float power_halves(Float k, Float f, Float y) {
#if HWY_TARGET == HWY_SCALAR
  // Highway would turn what is too large into the largest float.
  return Float(static_cast<float>(power_half(k.raw, f.raw, y.raw).raw.raw));
#else
  const hn::Half<Float::D> h;
  Vec<double> low = power_half(hn::LowerHalf(k.raw), hn::LowerHalf(f.raw), hn::LowerHalf(y.raw));
  Vec<double> high = power_half(hn::UpperHalf(h, k.raw), hn::UpperHalf(h, f.raw), hn::UpperHalf(h, y.raw));
  return Float(hn::Combine(Float::D(), hn::DemoteTo(h, high.raw), hn::DemoteTo(h, low.raw)));
#endif
}
// x^y, where r is |x|^y. An odd y keeps the sign of x, and a finite x below zero has no power that is not whole.
template <class T>
inline Vec<T> mend_power(Vec<T> x, Vec<T> y, Vec<T> r) {
  using V = Vec<T>;
  const V zero(0), one(1), a = abs(x), half = y * V(0.5);
  r = select((a == one) | (y == zero), one, r);
  Mask<T> whole = round(y) == y, odd = whole & (round(half) != half);
  Mask<T> undefined = (x < zero) & (a < infinity<T>()) & !whole;
  r = select(odd, copysign(r, x), r);
  return select(undefined, V(std::numeric_limits<T>::quiet_NaN()), r);
}
// |x|^y first: zero, infinity and NaN take the place of log2's integer part. Not inlined: too long for loops that are
// unrolled, and pow() often goes without.
[[gnu::noinline]] inline Float long_power(Float x, Float y) {
  const Float zero(0), inf = infinity<float>(), a = abs(x);
  Mask<float> tiny = a < Float(std::numeric_limits<float>::min());
  Float scaled = select(tiny, a * Float(0x1p24f), a);
  IntVec e = log_exponent(scaled);
  Float k = log_power(e);
  k = select(tiny, select(a == zero, -inf, k - Float(24)), select(a < inf, k, a));
  return mend_power(x, y, power_halves(k, from_bits(hn::Sub(bits_of(scaled), e)) - Float(1), y));
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// Two registers hold a coefficient for 32 intervals, and an instruction picks from them: x or zero, less |x| times the
// share of the other side (x86/gelu_share.h). From -5.65 on the share is zero.
inline Float gelu_erf(Float x) {
  const __m512 round = _mm512_set1_ps(12582912.0f), steps = _mm512_set1_ps(kGeluSteps);
  const __m512 a = _mm512_range_ps(x.raw.raw, _mm512_set1_ps(kGeluLimit), 0b1010);  // the smaller of both, without sign
  const __m512 t = _mm512_fmadd_ps(a, steps, round), r = _mm512_fmsub_ps(a, steps, _mm512_sub_ps(t, round));
  const __m512i interval = _mm512_castps_si512(t);
  const auto pick = [&](int k) {
    return _mm512_permutex2var_ps(_mm512_load_ps(kGeluShare[k]), interval, _mm512_load_ps(kGeluShare[k] + 16));
  };
  __m512 p = pick(4);
  for (int k = 3; k >= 0; --k) p = _mm512_fmadd_ps(p, r, pick(k));
  return Float(Float::Raw{_mm512_fnmadd_ps(a, p, at_least(x, Float(-0.0f)).raw.raw)});
}
#else
// x / 2 + x times an odd function, a quotient of polynomials in x^2 with positive coefficients. From -5.65 on the share
// is zero. A power of two whose exponent is a polynomial has no cancellation below zero, and takes 14 cycles per vector
// on a Neoverse V1 instead of 9.
inline constexpr Coefficient kGeluOver[] = {0.370064229f,    0.0312669016f,   0.00432981271f,
                                            0.000155125628f, 5.87279783e-06f, 2.11545945e-08f};
inline constexpr Coefficient kGeluUnder[] = {0.927613497f,   0.232976317f,    0.0264932476f,
                                             0.00173983141f, 6.77892313e-05f, 1.11086456e-06f};
inline Float gelu_erf(Float x) {
  Float a = at_least(x, Float(-5.65f)), b = at_most(a, 5.65f);
  Float b2 = b * b, b4 = b2 * b2;
  Float share = (b * polynomial(b2, b4, kGeluOver)) / polynomial(b2, b4, kGeluUnder) + Float(0.5f);
  return a * at_least(share, Float(0));
}
#endif
// The same for results that are rounded to bf16: x or zero, less |x| times the share of the other side, which is the
// 16th power of a polynomial. Within 1e-4 of the result, a twentieth of half a step of bf16, or 5e-9 where that is
// more; from -8.5122 on the power underflows to zero. Step by step for k vectors: one alone would wait for its own
// results. The limit, then the polynomial from its highest term on.
inline constexpr Coefficient kGeluBf16[] = {8.5122f,        -4.46085469e-05f, 0.000677657023f, -0.0013291575f,
                                            -0.0178844444f, -0.0477081835f,   0.957597375f};
template <size_t k>
inline void gelu_bf16(Float (&x)[k]) {
  Float a[k], p[k];
  for (size_t j = 0; j < k; ++j) a[j] = at_most(abs(x[j]), kGeluBf16[0].lanes[0]);
  for (size_t j = 0; j < k; ++j) p[j] = fma(a[j], kGeluBf16[1].vec(), kGeluBf16[2]);
  for (size_t term = 3; term < 7; ++term) {
    for (size_t j = 0; j < k; ++j) p[j] = fma(a[j], p[j], kGeluBf16[term]);
  }
  for (int step = 0; step < 4; ++step) {
    for (size_t j = 0; j < k; ++j) p[j] = p[j] * p[j];
  }
  for (size_t j = 0; j < k; ++j) x[j] = fnma(a[j], p[j], at_least(x[j], Float(-0.0f)));
}
// The derivative, of the same form.
inline constexpr Coefficient kSlopeOver[] = {0.43147707f,     -0.0101416325f,  0.00741925882f, 0.000144887876f,
                                             1.84844503e-05f, 5.93356788e-07f, 9.94362459e-09f};
inline constexpr Coefficient kSlopeUnder[] = {0.540776312f,    0.167547941f,    0.0245903917f,   0.00224917755f,
                                              0.000141586512f, 6.05003515e-06f, 2.09313711e-07f, 7.33691052e-10f};
inline Float gelu_erf_slope(Float x) {
  Float b = clamp(x, -6.22f, 6.22f);
  Float b2 = b * b, b4 = b2 * b2;
  return (b * polynomial(b2, b4, kSlopeOver)) / polynomial(b2, b4, kSlopeUnder) + Float(0.5f);
}

#if HWY_NATIVE_FMA
// Beyond this the argument reduction loses accuracy and the scalar function takes over.
inline constexpr float kTrigLimitF32 = 1e5f;
// Pi as a sum of three floats, all positive: a zero argument keeps its sign in the reduction.
inline constexpr float kPi1 = 3.1415925f, kPi2 = 1.50995788e-07f, kPi3 = 1.07806057e-14f, kInvPi = 0.318309886f;
inline constexpr Coefficient kRound = 12582912.0f;
inline constexpr Coefficient kSin[] = {-0.166666597f, 0.00833306834f, -0.000198096546f, 2.60572824e-06f};

// sin(r) for |r| <= pi / 2, negated where the integer in t is odd.
inline Float sin_reduced(Float r, Float t) {
  Float r2 = r * r;
  Float p = fma(fma(fma(kSin[3].vec(), r2, kSin[2]), r2, kSin[1]), r2, kSin[0]);  // fewer roundings than in pairs
  Float y = fma(r * r2, p, r);
  return from_bits(hn::Xor(bits_of(y), hn::ShiftLeft<31>(bits_of(t))));
}
// Next to an odd multiple of pi / 2 the polynomial may be a step beyond 1.
inline Float sin(Float x) {
  Float t = fma(x, Float(kInvPi), kRound);
  Float n = t - kRound.vec();
  Float r = fma(n, Float(-kPi3), fma(n, Float(-kPi2), fma(n, Float(-kPi1), x)));
  Float y = select(x == Float(0), x, clamp(sin_reduced(r, t), -1.0f, 1.0f));
  Mask<float> far = abs(x) > Float(kTrigLimitF32);
  return any_true(far) ? mend_lanes(far, x, y, [](float v) { return std::sin(v); }) : y;
}
inline Float cos(Float x) {
  Float t = fma(x, Float(kInvPi), kMinusHalf) + kRound.vec();
  Float n = t - kRound.vec() + Float(0.5f);  // cos(x) = +-sin(n pi - x)
  Float r = fma(n, Float(kPi3), fma(n, Float(kPi2), Float(hn::MulSub(n.raw, Float(kPi1).raw, x.raw))));
  Float y = clamp(sin_reduced(r, t), -1.0f, 1.0f);
  Mask<float> far = abs(x) > Float(kTrigLimitF32);
  return any_true(far) ? mend_lanes(far, x, y, [](float v) { return std::cos(v); }) : y;
}
#endif  // HWY_NATIVE_FMA

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_SIMD_MATH_F32_INL_H_
