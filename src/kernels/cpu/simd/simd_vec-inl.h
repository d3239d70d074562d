// Vec<T> and Mask<T>: a SIMD register of float or double with the operators and functions formulas use.
// Compiled once per target. Functions here are plain inline, not always_inline: formulas are instantiated outside the
// per-target region, where an always_inline function of a target would be an error (see DEFT_HD in base/math.h).
// Error bounds: docs/guide/vector_math.md.
#if defined(DEFT_KERNELS_CPU_SIMD_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_SIMD_VEC_INL_H_
#undef DEFT_KERNELS_CPU_SIMD_VEC_INL_H_
#else
#define DEFT_KERNELS_CPU_SIMD_VEC_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/math.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "runtime/half.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Mask {
  using D = hn::ScalableTag<T>;
  hn::Mask<D> raw;

  // One byte, 0 or 1, per lane.
  void store(uint8_t* p) const {
    using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const hn::Rebind<U, D> du;
    const hn::Rebind<uint8_t, D> d8;
    auto ones = hn::And(hn::BitCast(du, hn::VecFromMask(D(), raw)), hn::Set(du, U{1}));
    hn::StoreU(hn::TruncateTo(d8, ones), d8, p);
  }
};

template <class T>
struct Vec {
  using Scalar = T;
  using D = hn::ScalableTag<T>;
  using Raw = hn::Vec<D>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  Raw raw;

  Vec() = default;
  explicit inline Vec(Raw r) : raw(r) {}
  template <class S>
  requires std::is_arithmetic_v<S>
  explicit inline Vec(S s) : raw(hn::Set(D(), static_cast<T>(s))) {}
  static inline Vec load(const T* p) { return Vec(hn::LoadU(D(), p)); }
  inline void store(T* p) const { hn::StoreU(raw, D(), p); }

  inline Vec& operator+=(Vec b) { return *this = *this + b; }
  inline Vec& operator-=(Vec b) { return *this = *this - b; }
  inline Vec& operator*=(Vec b) { return *this = *this * b; }
  inline Vec& operator/=(Vec b) { return *this = *this / b; }
};

// Not friends inside the classes: GCC gives those the baseline target.
template <class T>
inline Mask<T> operator&(Mask<T> a, Mask<T> b) {
  return Mask<T>{hn::And(a.raw, b.raw)};
}
template <class T>
inline Mask<T> operator|(Mask<T> a, Mask<T> b) {
  return Mask<T>{hn::Or(a.raw, b.raw)};
}
template <class T>
inline Mask<T> operator^(Mask<T> a, Mask<T> b) {
  return Mask<T>{hn::Xor(a.raw, b.raw)};
}
template <class T>
inline Mask<T> operator&&(Mask<T> a, Mask<T> b) {
  return a & b;
}
template <class T>
inline Mask<T> operator||(Mask<T> a, Mask<T> b) {
  return a | b;
}
template <class T>
inline Mask<T> operator!(Mask<T> a) {
  return Mask<T>{hn::Not(a.raw)};
}
template <class T>
inline Vec<T> operator+(Vec<T> a, Vec<T> b) {
  return Vec<T>(hn::Add(a.raw, b.raw));
}
template <class T>
inline Vec<T> operator-(Vec<T> a, Vec<T> b) {
  return Vec<T>(hn::Sub(a.raw, b.raw));
}
template <class T>
inline Vec<T> operator*(Vec<T> a, Vec<T> b) {
  return Vec<T>(hn::Mul(a.raw, b.raw));
}
template <class T>
inline Vec<T> operator/(Vec<T> a, Vec<T> b) {
  return Vec<T>(hn::Div(a.raw, b.raw));
}
template <class T>
inline Vec<T> operator-(Vec<T> a) {
  return Vec<T>(hn::Neg(a.raw));
}
template <class T>
inline Mask<T> operator==(Vec<T> a, Vec<T> b) {
  return {hn::Eq(a.raw, b.raw)};
}
template <class T>
inline Mask<T> operator!=(Vec<T> a, Vec<T> b) {
  // Not Ne(): on x86 that is the ordered comparison, false for NaN.
  return {hn::Not(hn::Eq(a.raw, b.raw))};
}
template <class T>
inline Mask<T> operator<(Vec<T> a, Vec<T> b) {
  return {hn::Lt(a.raw, b.raw)};
}
template <class T>
inline Mask<T> operator<=(Vec<T> a, Vec<T> b) {
  return {hn::Le(a.raw, b.raw)};
}
template <class T>
inline Mask<T> operator>(Vec<T> a, Vec<T> b) {
  return {hn::Gt(a.raw, b.raw)};
}
template <class T>
inline Mask<T> operator>=(Vec<T> a, Vec<T> b) {
  return {hn::Ge(a.raw, b.raw)};
}

template <class T>
inline Vec<T> select(Mask<T> m, Vec<T> a, Vec<T> b) {
  return Vec<T>(hn::IfThenElse(m.raw, a.raw, b.raw));
}
template <class T>
inline bool all_true(Mask<T> m) {
  return hn::AllTrue(typename Mask<T>::D(), m.raw);
}
template <class T>
inline bool any_true(Mask<T> m) {
  return !hn::AllFalse(typename Mask<T>::D(), m.raw);
}
template <class T>
inline Vec<T> infinity() {
  return Vec<T>(std::numeric_limits<T>::infinity());
}
template <class T>
inline Vec<T> abs(Vec<T> x) {
  return Vec<T>(hn::Abs(x.raw));
}
template <class T>
inline Mask<T> isnan(Vec<T> x) {
  return x != x;
}
template <class T>
inline Mask<T> isinf(Vec<T> x) {
  return abs(x) == infinity<T>();
}
template <class T>
inline Mask<T> isfinite(Vec<T> x) {
  return abs(x) < infinity<T>();
}
template <class T>
inline Vec<T> sqrt(Vec<T> x) {
  return Vec<T>(hn::Sqrt(x.raw));
}
template <class T>
inline Vec<T> rsqrt(Vec<T> x) {
  return Vec<T>(1) / sqrt(x);
}
template <class T>
inline Vec<T> reciprocal(Vec<T> x) {
  return Vec<T>(1) / x;
}
template <class T>
inline Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
  return Vec<T>(hn::MulAdd(a.raw, b.raw, c.raw));
}
// The scalar target rounds through integers and loses the sign of a zero.
template <class T>
inline Vec<T> rounded(hn::Vec<hn::ScalableTag<T>> r, [[maybe_unused]] Vec<T> x) {
#if HWY_TARGET == HWY_SCALAR
  return Vec<T>(hn::CopySign(r, x.raw));
#else
  return Vec<T>(r);
#endif
}
template <class T>
inline Vec<T> floor(Vec<T> x) {
  return rounded<T>(hn::Floor(x.raw), x);
}
template <class T>
inline Vec<T> ceil(Vec<T> x) {
  return rounded<T>(hn::Ceil(x.raw), x);
}
template <class T>
inline Vec<T> trunc(Vec<T> x) {
  return rounded<T>(hn::Trunc(x.raw), x);
}
template <class T>
inline Vec<T> round(Vec<T> x) {
  return rounded<T>(hn::Round(x.raw), x);
}
template <class T>
inline Vec<T> copysign(Vec<T> magnitude, Vec<T> sign) {
  return Vec<T>(hn::CopySign(magnitude.raw, sign.raw));
}
template <class T>
inline Vec<T> sign(Vec<T> x) {
  return select(x > Vec<T>(0), Vec<T>(1), select(x < Vec<T>(0), Vec<T>(-1), x));
}
template <class T>
inline Vec<T> min(Vec<T> a, Vec<T> b) {
#if HWY_TARGET == HWY_NEON
  if constexpr (sizeof(T) == 4) {  // Highway's Min is the instruction that drops NaN
    return Vec<T>(typename Vec<T>::Raw(vminq_f32(a.raw.raw, b.raw.raw)));
  } else {
    return Vec<T>(typename Vec<T>::Raw(vminq_f64(a.raw.raw, b.raw.raw)));
  }
#else
  return select((a < b) | isnan(a), a, b);
#endif
}
template <class T>
inline Vec<T> max(Vec<T> a, Vec<T> b) {
#if HWY_TARGET == HWY_NEON
  if constexpr (sizeof(T) == 4) {  // Highway's Max is the instruction that drops NaN
    return Vec<T>(typename Vec<T>::Raw(vmaxq_f32(a.raw.raw, b.raw.raw)));
  } else {
    return Vec<T>(typename Vec<T>::Raw(vmaxq_f64(a.raw.raw, b.raw.raw)));
  }
#else
  return select((a > b) | isnan(a), a, b);
#endif
}

// y, but f(x) in the marked lanes; the results of the other lanes do not depend on them.
template <class T, class F>
[[gnu::noinline]] inline Vec<T> mend_lanes(Mask<T> marked, Vec<T> x, Vec<T> y, F f) {
  T from[Vec<T>::kLanes], to[Vec<T>::kLanes];
  uint8_t mark[Vec<T>::kLanes];
  x.store(from);
  y.store(to);
  marked.store(mark);
  for (size_t i = 0; i < Vec<T>::kLanes; ++i) {
    if (mark[i]) to[i] = f(from[i]);
  }
  return Vec<T>::load(to);
}
// One call of a scalar function per lane.
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

// ---- Loads and stores of other storage types: bf16 and f16 are computed in float.
#undef DEFT_NATIVE_F16
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define DEFT_NATIVE_F16 1
#else
#define DEFT_NATIVE_F16 0  // Highway's emulation does not round to nearest even
#endif

inline Vec<float> load_vec(const float* p) { return Vec<float>::load(p); }
inline Vec<double> load_vec(const double* p) { return Vec<double>::load(p); }
inline void store_vec(Vec<float> v, float* p) { v.store(p); }
inline void store_vec(Vec<double> v, double* p) { v.store(p); }

inline Vec<float> load_vec(const BFloat16* p) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  auto h = hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p));
#if HWY_TARGET == HWY_NEON
  return Vec<float>(hn::BitCast(df, hn::Vec128<uint32_t>(vshll_n_u16(h.raw, 16))));
#else
  const hn::Rebind<uint32_t, decltype(df)> du;
  return Vec<float>(hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, h))));
#endif
}
// The bits as bf16, rounded to nearest even.
inline auto bf16_bits(Vec<float> v) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint32_t, decltype(df)> du;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  auto u = hn::BitCast(du, v.raw);
  auto high = hn::ShiftRight<16>(u);
  auto odd = hn::And(high, hn::Set(du, 1u));
  auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
  auto nan = hn::RebindMask(du, hn::Not(hn::Eq(v.raw, v.raw)));
  auto bits = hn::IfThenElse(nan, hn::Or(high, hn::Set(du, 0x40u)), rounded);
  return hn::TruncateTo(dh, bits);
}
inline void store_vec(Vec<float> v, BFloat16* p) {
#if HWY_TARGET == HWY_NEON
  if (kConvertsBf16) [[likely]] {
    uint16x4_t half;
    // Volatile, or GCC moves it above the test.
    asm volatile(".arch armv8.2-a+bf16\n\tbfcvtn %0.4h, %1.4s" : "=w"(half) : "w"(v.raw.raw));
    return vst1_u16(reinterpret_cast<uint16_t*>(p), half);
  }
#endif
  const hn::Rebind<uint16_t, hn::ScalableTag<float>> dh;
  hn::StoreU(bf16_bits(v), dh, reinterpret_cast<uint16_t*>(p));
}
// Past the caches (kernels/cpu/copy/streaming_store.h), to a place aligned to what is written.
template <class T>
inline void stream_vec(Vec<T> v, T* p) {
  hn::Stream(v.raw, typename Vec<T>::D(), p);
}
inline void stream_vec(Vec<float> v, BFloat16* p) {
#if HWY_TARGET == HWY_SSE4
  store_vec(v, p);  // eight bytes, of which Highway would write 16
#else
  const hn::Rebind<uint16_t, hn::ScalableTag<float>> dh;
  hn::Stream(bf16_bits(v), dh, reinterpret_cast<uint16_t*>(p));
#endif
}
inline void stream_vec(Vec<float> v, Half* p);
inline Vec<float> load_vec(const Half* p) {
  const hn::ScalableTag<float> df;
#if DEFT_NATIVE_F16
  const hn::Rebind<hwy::float16_t, decltype(df)> dh;
  return Vec<float>(hn::PromoteTo(df, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p))));
#else
  const hn::Rebind<uint32_t, decltype(df)> du;
  const hn::Rebind<int32_t, decltype(df)> di;
  const hn::Rebind<uint16_t, decltype(df)> dh;
  auto h = hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(p)));
  auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
  auto a = hn::BitCast(di, hn::And(h, hn::Set(du, 0x7fffu)));
  auto shifted = hn::ShiftLeft<13>(a);
  auto normal = hn::Add(shifted, hn::Set(di, 0x38000000));
  auto special = hn::Or(shifted, hn::Set(di, 0x7f800000));
  auto tiny = hn::BitCast(di, hn::Mul(hn::ConvertTo(df, a), hn::Set(df, 0x1p-24f)));
  auto bits = hn::IfThenElse(hn::Lt(a, hn::Set(di, 0x0400)), tiny, normal);
  bits = hn::IfThenElse(hn::Gt(a, hn::Set(di, 0x7bff)), special, bits);
  return Vec<float>(hn::BitCast(df, hn::Or(hn::BitCast(du, bits), sign)));
#endif
}
// The bits of each as f16, rounded to nearest even.
inline auto half_bits(Vec<float> v) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint16_t, decltype(df)> dh;
#if DEFT_NATIVE_F16
  return hn::BitCast(dh, hn::DemoteTo(hn::Rebind<hwy::float16_t, decltype(df)>(), v.raw));
#else
  const hn::Rebind<uint32_t, decltype(df)> du;
  const hn::Rebind<int32_t, decltype(df)> di;
  auto u = hn::BitCast(du, v.raw);
  auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 0x8000u));
  auto a = hn::BitCast(di, hn::And(u, hn::Set(du, 0x7fffffffu)));
  auto odd = hn::And(hn::ShiftRight<13>(a), hn::Set(di, 1));
  auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(a, odd), hn::Set(di, 0x0fff - 0x38000000)));
  // A subnormal result: let the float adder round.
  auto tiny = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, a), hn::Set(df, 0.5f))), hn::Set(di, 0x3f000000));
  auto bits = hn::IfThenElse(hn::Lt(a, hn::Set(di, 0x38800000)), tiny, normal);
  bits = hn::IfThenElse(hn::Gt(a, hn::Set(di, 0x477fefff)), hn::Set(di, 0x7c00), bits);
  bits = hn::IfThenElse(hn::Gt(a, hn::Set(di, 0x7f800000)), hn::Set(di, 0x7e00), bits);
  return hn::TruncateTo(dh, hn::Or(hn::BitCast(du, bits), sign));
#endif
}
inline void store_vec(Vec<float> v, Half* p) {
  const hn::Rebind<uint16_t, hn::ScalableTag<float>> dh;
  hn::StoreU(half_bits(v), dh, reinterpret_cast<uint16_t*>(p));
}
inline void stream_vec(Vec<float> v, Half* p) { store_vec(v, p); }

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_SIMD_VEC_INL_H_
