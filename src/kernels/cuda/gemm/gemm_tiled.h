// GEMM by a kernel of our own: integers, k = 0, and strides or sizes that cuBLASLt does not take.
#pragma once

#include "kernels/cuda/gemm/gemm.h"

namespace deft::cuda {

// m, n and batch are positive; batch is at most 65535.
void gemm_tiled(Encoder& e, const GemmCall& call);

}  // namespace deft::cuda
