// Convolution over 1 to 3 spatial dims and its two gradients, on plain device pointers.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/gemm/epilogue.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// Which of x, w and y is computed from the other two. backward_input is the forward of a transposed convolution.
enum class ConvKind : uint8_t { forward, backward_input, backward_weight };

// x [n, c_in, in...], w [c_out, c_in / groups, kernel...], y [n, c_out, out...]; all dense.
struct ConvCall {
  DType dtype;
  int spatial;  // 1, 2 or 3: how many entries of the arrays below count
  int64_t n, c_in, c_out, groups;
  int64_t in[3], kernel[3], out[3], stride[3], pad[3], dilation[3];
  bool channels_last;    // memory order of x and y
  bool w_channels_last;  // memory order of w
  void* x;
  void* w;
  void* y;
  const void* bias;  // nullable; one value per channel of the result; none with backward_weight
  // The forward convolution may end with more: activation(the result plus residual, which lies like y and may be y).
  const void* residual;  // nullable
  Activation activation;
  bool timed;  // choose the kernel by timing those there are, whatever conv_benchmark() says
};

// Replaces a residual that is y itself by a copy, for kernels that write y before they have read all of it.
class ResidualApart {
 public:
  ResidualApart(Encoder& e, ConvCall& call);

 private:
  std::optional<Workspace> copy_;
};

size_t bytes_of_y(const ConvCall& call);
inline bool in_place(const ConvCall& call) { return call.residual && call.residual == call.y; }

// The call with three spatial dims, ones in front.
ConvCall with_three_dims(const ConvCall& call);

// By cuDNN. False where it has no way to compute this (or is not part of the build); nothing of value is written then.
// 16-bit floats accumulate in f32. f32 uses TF32 only if allow_tf32().
bool conv_library(Encoder& e, ConvKind kind, ConvCall call);

}  // namespace deft::cuda
