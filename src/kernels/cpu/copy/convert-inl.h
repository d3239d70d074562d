// Conversion of contiguous elements between all element types. Compiled once per target.
#if defined(DEFT_KERNELS_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_CONVERT_INL_H_
#undef DEFT_KERNELS_CPU_CONVERT_INL_H_
#else
#define DEFT_KERNELS_CPU_CONVERT_INL_H_
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/simd/simd-inl.h"
#include "runtime/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

// bool is read as a byte, so that any non-zero byte counts as true.
template <class T>
using storage_t = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class To, class From>
inline storage_t<To> convert_value(storage_t<From> v) {
  if constexpr (std::is_same_v<From, bool>) {
    return storage_t<To>(v != 0 ? 1 : 0);
  } else if constexpr (kIsHalf<From>) {
    return convert_value<To, float>(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (kIsHalf<To>) {
    return To(static_cast<float>(v));
  } else if constexpr (std::is_floating_point_v<From> && sizeof(To) == 1) {
    return std::abs(v) < From(0x1p63) ? static_cast<To>(static_cast<int64_t>(v)) : To(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using L = std::numeric_limits<To>;
    // The largest integer may round up as a float, hence >=. A 32-bit or narrower target is exact.
    constexpr From kLow = static_cast<From>(L::min()), kHigh = static_cast<From>(L::max());
    if (!(v > kLow)) return v == v ? L::min() : To(0);
    return v >= kHigh ? L::max() : static_cast<To>(v);
  } else {
    return static_cast<To>(v);
  }
}

// One side is f32, the other bf16, f16 or f32.
template <class To, class From>
inline void convert_vectors(const From* src, To* dst, size_t n) {
  constexpr size_t kLanes = Vec<float>::kLanes;
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    Vec<float> a = load_vec(src + i), b = load_vec(src + i + kLanes);
    store_vec(a, dst + i);
    store_vec(b, dst + i + kLanes);
  }
  for (; i < n; ++i) dst[i] = To(static_cast<float>(src[i]));
}

template <class To, class From>
void convert_range(const void* src, void* dst, size_t n) {
  const auto* s = static_cast<const storage_t<From>*>(src);
  auto* d = static_cast<storage_t<To>*>(dst);
  constexpr bool kVector =
      (kIsHalf<From> && (kIsHalf<To> || std::is_same_v<To, float>)) || (kIsHalf<To> && std::is_same_v<From, float>);
  if constexpr (std::is_same_v<To, From> && !std::is_same_v<To, bool>) {
    if (n) std::memmove(dst, src, n * sizeof(To));
  } else if constexpr (kVector) {
    convert_vectors(s, d, n);
  } else {
    for (size_t i = 0; i < n; ++i) d[i] = convert_value<To, From>(s[i]);
  }
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_CONVERT_INL_H_
