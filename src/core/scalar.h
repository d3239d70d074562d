// A number passed to an op. Keeps its kind so that promotion works as with C++ literals.
#pragma once

#include <concepts>
#include <cstdint>

#include "runtime/dtype.h"

namespace deft {

class Scalar {
 public:
  constexpr Scalar(bool v) : kind_(DType::boolean), i_(v) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Scalar(T v) : kind_(DType::i64), i_(static_cast<int64_t>(v)) {}
  template <std::floating_point T>
  constexpr Scalar(T v) : kind_(DType::f64), d_(static_cast<double>(v)) {}
  constexpr DType kind() const { return kind_; }  // boolean, i64 or f64
  constexpr bool is_floating() const { return kind_ == DType::f64; }
  constexpr double to_double() const { return is_floating() ? d_ : static_cast<double>(i_); }
  // Truncates; out-of-range and NaN saturate (NaN gives 0).
  constexpr int64_t to_int64() const;
  constexpr bool to_bool() const { return is_floating() ? d_ != 0 : i_ != 0; }

 private:
  DType kind_;
  union {
    double d_;
    int64_t i_;
  };
};

constexpr int64_t Scalar::to_int64() const {
  if (!is_floating()) return i_;
  if (!(d_ == d_)) return 0;
  if (d_ >= 0x1p63) return INT64_MAX;
  if (d_ <= -0x1p63) return INT64_MIN;
  return static_cast<int64_t>(d_);
}

}  // namespace deft
