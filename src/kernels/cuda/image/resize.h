// Changing spatial sizes: interpolation and padding. Every thread gathers for one result, in a fixed order.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"
#include "runtime/limits.h"

namespace deft::cuda {

enum class InterpolateKind : uint8_t { nearest, nearest_exact, linear, cubic };

// Contiguous data outer x 3 axes x inner, axes of size 1 in front of the `spatial` real ones.
struct InterpolateCall {
  DType dtype;  // floating
  InterpolateKind kind;
  int spatial;
  int64_t outer, inner;
  int64_t in[3], out[3];
  double scale[3];  // out / in as the user gave it; 0: derived from the sizes
  bool align_corners;
};
void interpolate_forward(Encoder& e, const InterpolateCall& c, const void* x, void* y);
void interpolate_backward(Encoder& e, const InterpolateCall& c, const void* dy, void* dx);

enum class PadKind : uint8_t { constant, reflect, replicate, circular };

struct PadCall {
  DType dtype;
  PadKind kind;
  int ndim;
  int64_t sizes[kMaxDims];                    // of the input
  int64_t before[kMaxDims], after[kMaxDims];  // constant only: negative values crop
  int64_t strides[kMaxDims];                  // of the input; forward only
  uint64_t value;                             // constant only: the bits of one element
};
void pad_forward(Encoder& e, const PadCall& c, const void* x, void* y);
// Floats, not constant; both contiguous. At most three dims from the first padded one to the last.
void pad_backward(Encoder& e, const PadCall& c, const void* dy, void* dx);

}  // namespace deft::cuda
