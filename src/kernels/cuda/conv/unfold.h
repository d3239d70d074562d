// Sliding blocks as columns (im2col) and their sum back (col2im), over two spatial dims of NCHW data.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

struct UnfoldCall {
  DType dtype;
  int64_t planes;  // samples x channels
  int64_t in[2], kernel[2], out[2], stride[2], pad[2], dilation[2];
};

// columns[plane * taps + tap, position] = x[plane, ...], zero outside; both contiguous.
void unfold(Encoder& e, const UnfoldCall& c, const void* x, void* columns);
// x = every column value added where unfold read it, in the accumulation type; integers wrap.
void fold(Encoder& e, const UnfoldCall& c, const void* columns, void* x);

}  // namespace deft::cuda
