// Convolutions with stride 2 over few channels, as the first layers of image networks have: two by two pixels become
// one with four times the channels, and the stride becomes 1. Tensor cores multiply eight channels at a time or more.
#pragma once

#include "kernels/cuda/conv/conv.h"

namespace deft::cuda {

// True for two spatial dims, at most 4 channels, one group, stride 2, kernels of 3 x 3 or larger, channels_last, and
// types that tensor cores take.
bool can_deepen(const ConvCall& call);

// The same convolution on the deeper image; x and w are still to be set.
ConvCall deepened(const ConvCall& call);

// Writes x and w of `deep` from those of `call`, which may have any layout: strides in elements, [n, c, h, w] and
// [c_out, c, h, w]. The weights are few: the same launch writes them.
void deepen(Encoder& e, const ConvCall& call, const int64_t* x_strides, const int64_t* w_strides, const ConvCall& deep);

}  // namespace deft::cuda
