// What the kernels of the convolutions share on all devices. `Call` is the device's ConvCall.
#pragma once

#include <algorithm>
#include <memory>

#include "ops/conv.h"

namespace deft {

namespace cpu {
struct ConvCall;
class ConvWeight;
}  // namespace cpu

// The weight in panels if it is kept from earlier calls.
std::shared_ptr<const cpu::ConvWeight> kept_conv_weight(const Tensor& weight, const cpu::ConvCall& call);

// The kernel's view of a convolution from `x` (or its gradient) to `y` (or its gradient) with kernel sizes at `kernel`.
template <class Call>
Call conv_call(const ConvGeometry& p, const Meta& x, const Meta& y, const int64_t* kernel) {
  Call k{};
  k.dtype = x.dtype;
  k.spatial = p.spatial;
  k.n = x.sizes[0];
  k.c_in = x.sizes[1];
  k.c_out = y.sizes[1];
  k.groups = p.groups;
  for (int d = 0; d < p.spatial; ++d) {
    auto i = static_cast<size_t>(d);
    k.in[d] = x.sizes[d + 2];
    k.out[d] = y.sizes[d + 2];
    k.kernel[d] = kernel[d];
    // Where there is only one position, or one tap, the steps between them mean nothing: kernels go by them.
    k.stride[d] = std::min(p.stride[i], std::max<int64_t>(1, k.in[d] + 2 * p.padding[i]));
    k.pad[d] = p.padding[i];
    k.dilation[d] = kernel[d] == 1 ? 1 : p.dilation[i];
  }
  k.channels_last = p.channels_last;
  return k;
}

// The weight's gradient is computed in the memory order of the input.
inline ConvGeometry weight_geometry(ConvGeometry p, const Meta& x) {
  p.channels_last |= !x.contiguous && x.is_channels_last();
  return p;
}

}  // namespace deft
