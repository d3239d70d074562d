// Convolution over 1 to 3 spatial dims and its two gradients. Data contiguous, NCHW or NHWC with 1 to 3 spatial dims.
// Floating types and bytes; 16-bit floats accumulate in f32 and round once. Results do not depend on the number of
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/gemm/blocked_gemm.h"
#include "kernels/cpu/workspace.h"
#include "runtime/dtype.h"

namespace deft::cpu {

class ConvWeight;

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
  // Forward only.
  const ConvWeight* packed = nullptr;  // w from pack_conv_weight(); w itself is then not read
  const void* residual = nullptr;      // of y's dtype and layout, added before the activation
  Activation activation = Activation::none;
  // conv_backward_weight() of 16-bit floats in one group: dw is f32 and not rounded.
  bool wide_gradient = false;
};

// y = activation(conv(x, w) + bias + residual); bias: one value per output channel, nullable.
void conv_forward(const ConvCall& call);
// dx from dy and call.w. call.bias, when given, has c_in values and is added to dx: this function is the forward of a
// transposed convolution. call.x and call.y are not used.
void conv_backward_input(const ConvCall& call, const void* dy, void* dx);
// dw from call.x and dy. call.w, call.bias and call.y are not used.
void conv_backward_weight(const ConvCall& call, const void* dy, void* dw);

// Bytes: call.dtype is that of x (i8 or u8), w is i8, bias f32, sums int32.
// y = store(activation((sum of (x - x_zero) * w) * scale + bias + residual)); padding counts as x_zero.
struct ConvQuant {
  int32_t x_zero = 0;
  const float* scale = nullptr;  // one per output channel: scale of x times scale of w. Null: ones
  DType y_dtype = DType::f32;    // any float; i8 or u8: q = round_to_even(value / y_scale) + y_zero, saturated; i32: no
                                 // scale, bias, residual or activation, the exact sum
  float y_scale = 1;
  int32_t y_zero = 0;
};
void conv_forward_int8(const ConvCall& call, const ConvQuant& quant);

// Packed weights, kept for many forward calls of the same channels, groups, kernel, layout and dtype. dtype and layout
// are the kernel's: NCHW may become NHWC, 16-bit groups f32 (conv_relayout.cpp).
class ConvWeight {
 public:
  int64_t bytes() const;
  DType dtype;
  bool channels_last, winograd;
  int64_t c_in, c_out, groups, kernel[3];
  std::vector<std::unique_ptr<PackedMatrix>> parts;  // one per group; 36 for Winograd
  std::unique_ptr<Workspace<char>> filters;          // depthwise, groups of few channels
  int64_t filter_bytes = 0;
};
// Reads dtype, channels, groups, kernel, layout and w of the call; for Winograd, chosen as conv_forward() would, its
// whole geometry. `tile`: null for the best one. Returns null where the weight is used unpacked.
std::unique_ptr<ConvWeight> pack_conv_weight(const ConvCall& call, const GemmTile* tile = nullptr);

// The format of pack_conv_weight()'s result: calls of one weight with the same form, groups and layout can share it.
struct ConvWeightForm {
  bool packs;  // false: the weight is used unpacked
  bool winograd;
  const GemmTile* tile;  // null where no GEMM tile is used: depthwise, groups of few channels
};
ConvWeightForm conv_weight_form(const ConvCall& call);

}  // namespace deft::cpu
