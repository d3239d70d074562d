#include "kernels/cpu/elementwise/random_values.h"

#include <algorithm>
#include <cstring>
#include <numbers>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise/random_values.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/simd/simd-inl.h"

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

template <class T>
HWY_INLINE void normal_pairs(const uint32_t* words, double mean, double std, T* out) {
  const Bits pairs = load_pairs(words);
  const Double u = plus_half(hn::And(pairs, hn::Set(DBits(), 0xffffffff))) * Double(0x1p-32);
  const Double angle = plus_half(hn::ShiftRight<32>(pairs)) * Double(2 * std::numbers::pi * 0x1p-32);
  const Double radius = sqrt(Double(-2) * log(u));
  store_pairs(multiply_add(Double(std), radius * cos(angle), Double(mean)),
              multiply_add(Double(std), radius * sin(angle), Double(mean)), out);
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
