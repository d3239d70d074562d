// Element types, their properties and the promotion rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/half.h"

namespace deft {

enum class DType : uint8_t { f32, f64, bf16, f16, i8, u8, i32, i64, boolean };
using enum DType;
inline constexpr int kDTypeCount = 9;

namespace detail {
// Not inside size_of(): there GCC 12 copies it to the stack with each call.
inline constexpr uint8_t kDTypeSizes[kDTypeCount] = {4, 8, 2, 2, 1, 1, 4, 8, 1};
}  // namespace detail
constexpr size_t size_of(DType t) { return detail::kDTypeSizes[static_cast<int>(t)]; }
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view names[kDTypeCount] = {"f32", "f64", "bf16", "f16", "i8", "u8", "i32", "i64", "bool"};
  return names[static_cast<int>(t)];
}
constexpr bool is_floating(DType t) { return t <= DType::f16; }
constexpr bool is_integral(DType t) { return t >= DType::i8 && t <= DType::i64; }
// Unit roundoff of a floating type; 0 for the others.
constexpr double epsilon_of(DType t) {
  constexpr double eps[kDTypeCount] = {0x1p-23, 0x1p-52, 0x1p-7, 0x1p-10, 0, 0, 0, 0, 0};
  return eps[static_cast<int>(t)];
}

// The type that holds both, as in PyTorch: bool < integers < floats; bf16 with f16 gives f32; u8 with i8 gives i32.
DType promote(DType a, DType b);

// A set of element types.
struct DTypeSet {
  uint16_t bits = 0;
  constexpr bool contains(DType t) const { return bits >> static_cast<int>(t) & 1; }
  constexpr friend DTypeSet operator|(DTypeSet a, DTypeSet b) { return {static_cast<uint16_t>(a.bits | b.bits)}; }
};
constexpr DTypeSet only(DType t) { return {static_cast<uint16_t>(1u << static_cast<int>(t))}; }
inline constexpr DTypeSet kFloats{0b000001111};
inline constexpr DTypeSet kIntegers{0b011110000};
inline constexpr DTypeSet kBool{0b100000000};
inline constexpr DTypeSet kNumbers = kFloats | kIntegers;
inline constexpr DTypeSet kAllTypes = kNumbers | kBool;

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// Calls f.template operator()<T>() with the C++ type of `t`.
template <class F>
decltype(auto) dispatch_all(DType t, F&& f) {
  switch (t) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::f16:
      return f.template operator()<Half>();
    case DType::i8:
      return f.template operator()<int8_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    default:
      return f.template operator()<bool>();
  }
}
// The same for the four floating types only; the caller has checked that `t` is one.
template <class F>
decltype(auto) dispatch_floating(DType t, F&& f) {
  switch (t) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    default:
      return f.template operator()<Half>();
  }
}
// By element size only (1, 2, 4, 8 bytes): for kernels that only move bits.
template <class F>
decltype(auto) dispatch_bits(DType t, F&& f) {
  switch (size_of(t)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

// The type sums and products of T are accumulated in.
template <class T>
struct AccumulateOf {
  using type = int64_t;
};
template <>
struct AccumulateOf<float> {
  using type = float;
};
template <>
struct AccumulateOf<double> {
  using type = double;
};
template <>
struct AccumulateOf<BFloat16> {
  using type = float;
};
template <>
struct AccumulateOf<Half> {
  using type = float;
};
template <class T>
using accumulate_t = typename AccumulateOf<T>::type;

}  // namespace deft
