// Element types on the device: what formulas are computed in, and conversion with the rules of cpu::convert().
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "runtime/dtype.h"

namespace deft::cuda {

template <class T>
inline constexpr bool is_half_v = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;
template <class T>
inline constexpr bool is_float_v = std::is_floating_point_v<T> || is_half_v<T>;
// The type formulas run in: float for 16-bit floats, T itself otherwise.
template <class T>
using compute_t = std::conditional_t<is_half_v<T>, float, T>;

__device__ __forceinline__ float to_float(BFloat16 v) { return __uint_as_float(static_cast<uint32_t>(v.bits) << 16); }
// Instructions instead of cuda_fp16.h, which NVRTC would have to find.
__device__ __forceinline__ float to_float(Half v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
template <class T>
__device__ __forceinline__ T from_float(float v) {
  T r;
  if constexpr (std::is_same_v<T, BFloat16>)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}

// float -> integer truncates and saturates, NaN gives 0; i8 and u8 keep the low 8 bits of i64 (0 beyond it); integer ->
// narrower integer wraps; anything -> bool is != 0.
template <class To, class From>
__device__ __forceinline__ To convert(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (is_half_v<From>) {
    return convert<To>(to_float(v));
  } else if constexpr (is_half_v<To>) {
    return from_float<To>(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) == 1) {
    return v < From(0x1p63) && v > From(-0x1p63) ? static_cast<To>(static_cast<int64_t>(v)) : To(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    if (v != v) return To(0);
    // The largest value below max + 1 that From can hold decides; comparing with max itself would round it up.
    if (v >= static_cast<From>(Limits::max() / 2 + 1) * From(2)) return Limits::max();
    if (v <= static_cast<From>(Limits::min())) return Limits::min();
    return static_cast<To>(v);
  } else {
    return static_cast<To>(v);
  }
}

// Element `i` of memory of a type known only at run time. The branch is the same for all threads.
template <class C>
__device__ __forceinline__ C load_as(const void* p, DType t, int64_t i) {
  switch (t) {
    case DType::f32:
      return convert<C>(static_cast<const float*>(p)[i]);
    case DType::f64:
      return convert<C>(static_cast<const double*>(p)[i]);
    case DType::bf16:
      return convert<C>(static_cast<const BFloat16*>(p)[i]);
    case DType::f16:
      return convert<C>(static_cast<const Half*>(p)[i]);
    case DType::i8:
      return convert<C>(static_cast<const int8_t*>(p)[i]);
    case DType::u8:
      return convert<C>(static_cast<const uint8_t*>(p)[i]);
    case DType::i32:
      return convert<C>(static_cast<const int32_t*>(p)[i]);
    case DType::i64:
      return convert<C>(static_cast<const int64_t*>(p)[i]);
    default:
      return convert<C>(static_cast<const uint8_t*>(p)[i] != 0);
  }
}
template <class C>
__device__ __forceinline__ void store_as(void* p, DType t, int64_t i, C v) {
  switch (t) {
    case DType::f32:
      static_cast<float*>(p)[i] = convert<float>(v);
      return;
    case DType::f64:
      static_cast<double*>(p)[i] = convert<double>(v);
      return;
    case DType::bf16:
      static_cast<BFloat16*>(p)[i] = convert<BFloat16>(v);
      return;
    case DType::f16:
      static_cast<Half*>(p)[i] = convert<Half>(v);
      return;
    case DType::i8:
      static_cast<int8_t*>(p)[i] = convert<int8_t>(v);
      return;
    case DType::u8:
      static_cast<uint8_t*>(p)[i] = convert<uint8_t>(v);
      return;
    case DType::i32:
      static_cast<int32_t*>(p)[i] = convert<int32_t>(v);
      return;
    case DType::i64:
      static_cast<int64_t*>(p)[i] = convert<int64_t>(v);
      return;
    default:
      static_cast<bool*>(p)[i] = convert<bool>(v);
  }
}

// 16 bytes at a time.
template <class T, int N = 16 / sizeof(T)>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};

}  // namespace deft::cuda
