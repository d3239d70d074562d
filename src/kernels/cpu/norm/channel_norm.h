// Kernels of the norms that keep statistics per channel (batch, group, instance norm). Tensors are dense, of one
// floating dtype; bf16 and f16 are computed in f32. Results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

// n images of c channels of s elements. Element k of channel ch of image i lies at (i * c + ch) * s + k, or with
// `last` at (i * s + k) * c + ch. A plane is one channel of one image: i * c + ch.
struct ChannelsView {
  DType dtype;
  int64_t n, c, s;
  bool last;
};

// The mean of every plane, and the sum of squared deviations from it. s > 0.
void plane_moments(const ChannelsView& v, const void* x, double* mean, double* squares);

// A relu between the norm and g: its gradient is g only where its result is not <= 0. That result is y, if given; then
// g + more (or g), zeroed by the relu, is written to `masked`. Otherwise it is of_x * (x - center) + offset, with
// coefficients per plane, rounded as it was stored.
struct FusedRelu {
  const double *of_x = nullptr, *offset = nullptr;
  const void *y = nullptr, *more = nullptr;
  void* masked = nullptr;
};
// The sums of g and of g * (x - center) over every plane.
void plane_grad_sums(const ChannelsView& v, const void* g, const void* x, const double* center, double* sum,
                     double* product, const FusedRelu* relu = nullptr);

// Coefficients, one per plane. g and its factor may be null.
struct PlaneAffine {
  const double *of_g, *of_x, *center, *offset;
};
// out = of_g * g + of_x * (x - center) + offset; out may be g or x. A relu without y is one of g.
void apply_affine(const ChannelsView& v, const void* g, const void* x, const PlaneAffine& m, void* out,
                  const FusedRelu* relu = nullptr);
// out = relu(of_x * (x - center) + offset + residual), rounded as if each step were stored; the residual may be null.
void apply_affine_relu(const ChannelsView& v, const void* x, const void* residual, const PlaneAffine& m, void* out);

}  // namespace deft::cpu
