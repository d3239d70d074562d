// Convolutions through cuDNN's graph API: one execution plan per problem, cached.
#pragma once

#include <string>

#include "kernels/cuda/conv/conv.h"

namespace deft::cuda {

std::string cudnn_version();  // "9.19.0", or "none" in a build without it

// `call` has three spatial dims (with_three_dims) and no empty tensors. False: cuDNN has nothing for it. With
// `accumulate` the weight's gradient is added to what is there. See runtime/numerics.h for what decides the choice;
// under deterministic mode only kernels that give the same result every time are considered.
bool cudnn_conv(Encoder& e, ConvKind kind, const ConvCall& call, bool accumulate);

}  // namespace deft::cuda
