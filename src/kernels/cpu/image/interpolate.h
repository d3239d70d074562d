// Resizing of 1 to 3 spatial dims. Contiguous data outer x spatial x inner: NCHW with outer = N*C, inner = 1, or NHWC
// with outer = N, inner = C.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

enum class Interpolate : uint8_t { nearest, nearest_exact, linear, cubic };

struct InterpolateCall {
  DType dtype;
  Interpolate mode;
  int spatial;
  int64_t outer, inner;
  int64_t in[3], out[3];
  double scale[3];     // out / in as the user gave it; 0: derived from the sizes
  bool align_corners;  // linear and cubic
};

// Nearest: all dtypes; linear and cubic: floats. Sources are those of PyTorch 2.
void interpolate_forward(const InterpolateCall& call, const void* x, void* y);
// Floats.
void interpolate_backward(const InterpolateCall& call, const void* dy, void* dx);

}  // namespace deft::cpu
