// Padding of contiguous data by any number of dims.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"
#include "runtime/limits.h"

namespace deft::cpu {

enum class PadMode : uint8_t { constant, reflect, replicate, circular };

struct PadCall {
  DType dtype;
  PadMode mode;
  int ndim;
  int64_t sizes[kMaxDims];                    // of the input
  int64_t before[kMaxDims], after[kMaxDims];  // constant only: negative values crop
  const void* value;                          // constant only: one element; null is zero
  int64_t out_size(int d) const { return sizes[d] + before[d] + after[d]; }
};

// All dtypes. Throws ShapeError where the mode cannot fill the border: reflect needs pad < size, circular pad <= size,
// replicate size > 0; and where a crop leaves a negative size.
void pad_forward(const PadCall& call, const void* x, void* y);
// Floats, the three modes that repeat input values. At most three dims from the first padded one to the last.
void pad_backward(const PadCall& call, const void* dy, void* dx);

}  // namespace deft::cpu
