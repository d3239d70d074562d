// The empty kernel: what a launch costs.
#pragma once

#include "kernels/cuda/encoder.h"

namespace deft::cuda {

void launch_nothing(Encoder& e);

}  // namespace deft::cuda
