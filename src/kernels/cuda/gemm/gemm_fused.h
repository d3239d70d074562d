// A GEMM with its epilogue.
#pragma once

#include "kernels/cuda/gemm/gemm.h"

namespace deft::cuda {

// c = activation(a * b + bias + residual) for one pair of matrices (batch = 1), c dense by rows and not the residual.
// In one kernel where a library has one, else what is left over takes one more pass over c. With `timed` the first call
// of a kind makes the host wait.
void gemm_fused(Encoder& e, const GemmCall& call);

}  // namespace deft::cuda
