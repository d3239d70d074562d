// Arithmetic on sizes and steps as callers give them: formed in 128 bits, where sums of products of two int64 fit, and
// checked once.
#pragma once

#include <cstdint>
#include <limits>

#include "base/check.h"

namespace deft {

using Wide = __int128;

// `value` as int64; ShapeError that names the op and what the value is where it does not fit.
inline int64_t checked_int64(Wide value, const char* op, const char* what) {
  DEFT_CHECK(value >= std::numeric_limits<int64_t>::min() && value <= std::numeric_limits<int64_t>::max(), ShapeError,
             "{}: {} is beyond what 64 bits hold; use smaller numbers", op, what);
  return static_cast<int64_t>(value);
}
// What lies beyond [low, high] as the nearer end.
inline int64_t saturated(Wide value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : static_cast<int64_t>(value);
}

}  // namespace deft
