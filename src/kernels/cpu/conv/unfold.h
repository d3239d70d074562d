// im2col (unfold) and its adjoint col2im (fold), over 1 to 3 spatial dims.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

struct UnfoldCall {
  DType dtype;
  int spatial;
  int64_t n, channels;
  int64_t in[3], kernel[3], out[3], stride[3], pad[3], dilation[3];
};

// columns[n, c * taps + tap, position] = x[n, c, ...], zero outside; both contiguous. All dtypes.
void unfold(const UnfoldCall& call, const void* x, void* columns);
// The adjoint: x is the sum of every column value where unfold read it. Numbers, summed in the accumulation type;
// integers wrap.
void fold(const UnfoldCall& call, const void* columns, void* x);

}  // namespace deft::cpu
