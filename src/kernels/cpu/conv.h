// Convolution over 1 to 3 spatial dims and its two gradients. Data contiguous, N,C,spatial or N,spatial,C.
// Floating types; 16-bit ones accumulate in f32 and round once. Results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

struct ConvCall {
  DType dtype;
  int spatial;  // 1, 2 or 3: how many entries of the arrays below count
  int64_t n, c_in, c_out, groups;
  int64_t in[3], kernel[3], out[3], stride[3], pad[3], dilation[3];
  bool channels_last;  // of x and y
  const void* x;
  const void* w;  // c_out, c_in / groups, kernel...: contiguous whatever the layout of x
  const void* bias;
  void* y;
};

// y = conv(x, w) + bias (one value per output channel, nullable).
void conv_forward(const ConvCall& call);
// dx from dy and call.w. call.bias, when given, has c_in values and is added to dx: this function is the forward of a
// transposed convolution. call.x and call.y are not used.
void conv_backward_input(const ConvCall& call, const void* dy, void* dx);
// dw from call.x and dy. call.w, call.bias and call.y are not used.
void conv_backward_weight(const ConvCall& call, const void* dy, void* dw);

}  // namespace deft::cpu
