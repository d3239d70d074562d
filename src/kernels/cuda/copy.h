// Copies of strided data within a device, with conversion.
#pragma once

#include "kernels/cuda/encoder.h"
#include "kernels/cuda/iteration.h"

namespace deft::cuda {

// to[i] = from[i] for every index, converted as in convert(). The two may not overlap, unless they are the same
// elements in the same order and of the same type. Stride 0 in `to` is not allowed for sizes > 1.
void copy_strided(Encoder& e, const Operand& from, const Operand& to, int ndim, const int64_t* sizes);

}  // namespace deft::cuda
