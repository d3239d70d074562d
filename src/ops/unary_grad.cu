// CUDA kernels of the gradients of unary formulas.
#include "ops/elementwise_table.cuh"
#include "ops/unary.h"

namespace deft {

const cuda::ElementwiseKernel* unary_cuda_grad_table() {
  static const cuda::ElementwiseKernel table[][kDTypeCount] = {
#define DEFT_UNARY(Type, function) DEFT_CUDA_GRAD_ROW(Type)
#include "ops/unary.def"
#undef DEFT_UNARY
  };
  return table[0];
}

}  // namespace deft
