// The text for a bad index of gather, scatter and their relatives.
#pragma once

#include "kernels/cuda/index/index.h"
#include "kernels/cuda/index/index_math.cuh"

namespace deft::cuda {

BadIndex bad_index(const Encoder& e, const IndexSpace& s);

}  // namespace deft::cuda
