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

// Of every plane: the mean, and the sum of squared deviations from it. s > 0.
void plane_moments(const ChannelsView& v, const void* x, double* mean, double* squares);
// Of every plane: sum of g, and of g * (x - center).
void plane_grad_sums(const ChannelsView& v, const void* g, const void* x, const double* center, double* sum,
                     double* product);

// Coefficients, one per plane. g and its factor may be null.
struct PlaneMap {
  const double *of_g, *of_x, *center, *offset;
};
// out = of_g * g + of_x * (x - center) + offset; out may be g or x.
void plane_map(const ChannelsView& v, const void* g, const void* x, const PlaneMap& m, void* out);

}  // namespace deft::cpu
