// Norms with statistics per channel (batch norm) or per group of channels of an image (group norm). Tensors are dense,
// of one floating dtype, but for weights and biases; bf16 and f16 are computed in f32, statistics are merged in f64.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// n images of c channels of s elements. Element k of channel ch of image i lies at (i * c + ch) * s + k, or with
// `last` at (i * s + k) * c + ch. A plane is one channel of one image: i * c + ch. Batch norm with `last` has n = 1.
struct ChannelsView {
  DType dtype;
  int64_t n, c, s;
  bool last;
};

// One number per channel in a tensor of any floating type; data may be null.
struct RunningNumbers {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t stride = 1;
};

struct ChannelNormCall {
  ChannelsView view;
  int64_t groups;  // of an image; 0: batch norm
  double eps;
  const void *x, *weight, *bias;  // weight and bias: c elements, or null
  DType factors;                  // of weight and bias
  void* y;
  void *mean, *rstd;  // one per group, or per channel: f32 (f64 for f64); 0 where there is no element
  // Batch norm: the running statistics are used if `training` is false, otherwise moved, if given.
  bool training = true;
  double momentum = 0;
  RunningNumbers running_mean{}, running_var{};
  // Batch norm, if affine is given: y = relu(norm + residual), rounded as if each step were stored. The residual may be
  // null; affine gets the factors and then the offsets of all channels, in the type of the statistics.
  const void* residual = nullptr;
  void* affine = nullptr;
};
void channel_norm(Encoder& e, const ChannelNormCall& c);

struct ChannelNormBackwardCall {
  ChannelsView view;  // of at least one element
  int64_t groups;
  bool moving;  // the statistics depend on x
  const void *g, *x, *weight;
  DType factors;  // of weight, dweight and dbias
  const void *mean, *rstd;
  void *dx, *dweight, *dbias;  // each may be null; dx may be g
  // Batch norm that is `moving`: a relu after it. g counts where the relu's result is not <= 0: y, if given, and then
  // g + more (which may be null) as far as it counts is written to `masked`; or what affine makes of x.
  const void *affine = nullptr, *y = nullptr, *more = nullptr;
  void* masked = nullptr;
};
void channel_norm_backward(Encoder& e, const ChannelNormBackwardCall& c);

}  // namespace deft::cuda
