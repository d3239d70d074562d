#include "kernels/cpu/random_values.h"

#include <algorithm>
#include <cstring>
#include <numbers>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random_values.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/simd_vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using Double = Vec<double>;
using D = Double::D;
using DBits = hn::Rebind<uint64_t, D>;
using DWord = hn::Rebind<uint32_t, D>;
using DFloat = hn::Rebind<float, D>;
using Bits = hn::Vec<DBits>;
constexpr int64_t kLanes = Double::kLanes;

HWY_INLINE Double as_double(Bits bits) { return Double(hn::BitCast(D(), bits)); }

// a * b + c with both roundings, as other devices have it: GCC would make one fused operation of them.
HWY_INLINE Double multiply_add(Double a, Double b, Double c) {
  Double product = a * b;
#if defined(__x86_64__) && !defined(__clang__)
  asm("" : "+v"(product.raw.raw));
#elif defined(__aarch64__) && !defined(__clang__)
  asm("" : "+w"(product.raw.raw));
#endif
  return product + c;
}

HWY_INLINE hn::Vec<DFloat> to_float(Double v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Vec<DFloat>(static_cast<float>(v.raw.raw));  // Highway's never gives infinity
#else
  return hn::DemoteTo(DFloat(), v.raw);
#endif
}

// ---- Uniform

struct Uniform {
  double low, range;
  HWY_INLINE Double operator()(const uint32_t* words) const {
    const hn::Rebind<int32_t, D> di;
    const auto upper = hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(DWord(), words)));
    return multiply_add(Double(hn::PromoteTo(D(), upper)) * Double(0x1p-24), Double(range), Double(low));
  }
};

HWY_INLINE void store_below(Double v, double end, double low, double* out) {
  select(v < Double(end), v, Double(low)).store(out);
}
HWY_INLINE void store_below(Double v, float end, double low, float* out) {
  const DFloat d;
  const auto f = to_float(v);
  hn::StoreU(hn::IfThenElse(hn::Lt(f, hn::Set(d, end)), f, hn::Set(d, static_cast<float>(low))), d, out);
}

template <class T>
void uniforms(const uint32_t* words, int64_t n, double low, double high, T end, T* out) {
  const Uniform uniform{low, high - low};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_below(uniform(words + i), end, low, out + i);
  if (i == n) return;
  uint32_t last_words[kLanes] = {};
  T last[kLanes];
  std::copy_n(words + i, n - i, last_words);
  store_below(uniform(last_words), end, low, last);
  std::copy_n(last, n - i, out + i);
}

// ---- Normal

// Even words in the lower, odd words in the upper halves.
HWY_INLINE Bits load_pairs(const uint32_t* words) {
#if HWY_TARGET == HWY_SCALAR
  uint64_t pair;
  std::memcpy(&pair, words, sizeof pair);
  return hn::Set(DBits(), pair);
#else
  return hn::BitCast(DBits(), hn::LoadU(hn::Repartition<uint32_t, DBits>(), words));
#endif
}

HWY_INLINE void store_pairs(Double even, Double odd, double* out) {
  hn::StoreInterleaved2(even.raw, odd.raw, D(), out);
}
HWY_INLINE void store_pairs(Double even, Double odd, float* out) {
  hn::StoreInterleaved2(to_float(even), to_float(odd), DFloat(), out);
}

constexpr uint64_t kBitsOf2To52 = 0x4330000000000000;  // the last bits of 2^52 + n are those of n

// Exact.
HWY_INLINE Double plus_half(Bits word) {
  return as_double(hn::Or(word, hn::Set(DBits(), kBitsOf2To52))) - Double(0x1p52 - 0.5);
}

template <size_t n>
HWY_INLINE Double polynomial(Double x, const double (&coefficients)[n]) {
  Double sum(coefficients[n - 1]);
  for (size_t i = n - 1; i-- > 0;) sum = fma(sum, x, Double(coefficients[i]));
  return sum;
}

// -2 log(x / 2^32) for x in (0, 2^32), x / 2^32 below 1.
HWY_INLINE Double minus_two_log(Double x) {
  const DBits d;
  constexpr uint64_t kRoot = 0x3fe6a09e667f3bcd;  // sqrt(1 / 2)
  // x = 2^e m with m in [sqrt(1 / 2), sqrt(2)).
  const Bits above = hn::Add(hn::BitCast(d, x.raw), hn::Set(d, 0x3ff0000000000000 - kRoot));
  const Double m = as_double(hn::Add(hn::And(above, hn::Set(d, 0x000fffffffffffff)), hn::Set(d, kRoot)));
  const Double e = as_double(hn::Or(hn::ShiftRight<52>(above), hn::Set(d, kBitsOf2To52))) - Double(0x1p52 + 1023 + 32);
  // With s = (m - 1) / (m + 1), log m = 2 (s + s^3 / 3 + s^5 / 5 ...). Minimax: 2^-59 of the whole.
  constexpr double kSeries[] = {-0x1.5555555555592p+0, -0x1.999999997fd73p-1, -0x1.24924941f5297p-1,
                                -0x1.c71c5205e8d8cp-2, -0x1.74663fa7d5e0cp-2, -0x1.39a1a66db5808p-2,
                                -0x1.2f0639c884aa8p-2};
  const Double s = (m - Double(1)) / (m + Double(1)), z = s * s;
  return fma(e, Double(-2 * std::numbers::ln2), s * fma(z, polynomial(z, kSeries), Double(-4)));
}

// Cosine and sine of 2 pi x / 2^32 with x = word + 0.5, more exactly of that angle rounded to double: other devices
// round it as well, and where the result is near zero the rounding is most of it.
HWY_INLINE void cosine_and_sine(Bits word, Double x, Double& cosine, Double& sine) {
  const DBits d;
  const Double angle = x * Double(2 * std::numbers::pi * 0x1p-32), quarters = round(x * Double(0x1p-30));
  // From the nearest multiple of pi / 2. The latter has two parts, and products with the first are exact.
  Double r = fma(quarters, Double(-0x1.921fb54442p+0), angle);
  r = fma(quarters, Double(-0x1.a308d313198a3p-41), r);
  // Minimax: 2^-58 of the sine, 2^-64.
  constexpr double kSine[] = {-0x1.5555555555549p-3, 0x1.111111110f87dp-7,   -0x1.a01a019c1201fp-13,
                              0x1.71de357815b95p-19, -0x1.ae5e66882578fp-26, 0x1.5d93184eabbd0p-33};
  constexpr double kCosine[] = {0x1.555555555554cp-5,   -0x1.6c16c16c15181p-10, 0x1.a01a019cb219ap-16,
                                -0x1.27e4f80a35a8cp-22, 0x1.1ee9ec19d5108p-29,  -0x1.8faeb6857817ep-37};
  const Double y = r * r;
  const Double s = fma(r * y, polynomial(y, kSine), r);
  const Double c = fma(y * y, polynomial(y, kCosine), fma(y, Double(-0.5), Double(1)));
  // Odd quarters swap the two. Cosines of quarters 1 and 2 and sines of quarters 2 and 3 are negative.
  const Bits turned = hn::Add(word, hn::Set(d, uint64_t{1} << 29)), sign = hn::Set(d, uint64_t{1} << 63);
  const Bits next = hn::Add(turned, hn::Set(d, uint64_t{1} << 30));
  const Mask<double> odd{hn::RebindMask(D(), hn::TestBit(turned, hn::Set(d, uint64_t{1} << 30)))};
  const Double sine_sign = as_double(hn::And(hn::ShiftLeft<32>(turned), sign));
  const Double cosine_sign = as_double(hn::And(hn::ShiftLeft<32>(next), sign));
  cosine = Double(hn::Xor(select(odd, s, c).raw, cosine_sign.raw));
  sine = Double(hn::Xor(select(odd, c, s).raw, sine_sign.raw));
}

template <class T>
HWY_INLINE void normal_pairs(const uint32_t* words, double mean, double std, T* out) {
  const Bits pairs = load_pairs(words), second = hn::ShiftRight<32>(pairs);
  const Double radius = sqrt(minus_two_log(plus_half(hn::And(pairs, hn::Set(DBits(), 0xffffffff)))));
  Double cosine, sine;
  cosine_and_sine(second, plus_half(second), cosine, sine);
  store_pairs(multiply_add(Double(std), radius * cosine, Double(mean)),
              multiply_add(Double(std), radius * sine, Double(mean)), out);
}

template <class T>
void normals(const uint32_t* words, int64_t n, double mean, double std, T* out) {
  constexpr int64_t kStep = 2 * kLanes;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) normal_pairs(words + i, mean, std, out + i);
  if (i == n) return;
  uint32_t last_words[kStep] = {};
  T last[kStep];
  std::copy_n(words + i, (n - i + 1) / 2 * 2, last_words);
  normal_pairs(last_words, mean, std, last);
  std::copy_n(last, n - i, out + i);
}

void uniforms_f32(const uint32_t* words, int64_t n, double low, double high, float end, float* out) {
  uniforms(words, n, low, high, end, out);
}
void uniforms_f64(const uint32_t* words, int64_t n, double low, double high, double end, double* out) {
  uniforms(words, n, low, high, end, out);
}
void normals_f32(const uint32_t* words, int64_t n, double mean, double std, float* out) {
  normals(words, n, mean, std, out);
}
void normals_f64(const uint32_t* words, int64_t n, double mean, double std, double* out) {
  normals(words, n, mean, std, out);
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(uniforms_f32);
HWY_EXPORT(uniforms_f64);
HWY_EXPORT(normals_f32);
HWY_EXPORT(normals_f64);

void uniform_values(const uint32_t* words, int64_t n, double low, double high, float end, float* out) {
  HWY_DYNAMIC_DISPATCH(uniforms_f32)(words, n, low, high, end, out);
}
void uniform_values(const uint32_t* words, int64_t n, double low, double high, double end, double* out) {
  HWY_DYNAMIC_DISPATCH(uniforms_f64)(words, n, low, high, end, out);
}
void normal_values(const uint32_t* words, int64_t n, double mean, double std, float* out) {
  HWY_DYNAMIC_DISPATCH(normals_f32)(words, n, mean, std, out);
}
void normal_values(const uint32_t* words, int64_t n, double mean, double std, double* out) {
  HWY_DYNAMIC_DISPATCH(normals_f64)(words, n, mean, std, out);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
