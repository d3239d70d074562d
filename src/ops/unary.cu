// CUDA kernels of the unary formulas.
#pragma nv_diag_suppress 186  // sign() compares with zero also where the type is unsigned

#include "ops/elementwise_table.cuh"
#include "ops/unary.h"

namespace deft {

const cuda::ElementwiseKernel* unary_cuda_table() {
  static const cuda::ElementwiseKernel table[][kDTypeCount] = {
#define DEFT_UNARY(Type, function) DEFT_CUDA_ROW(Type)
#include "ops/unary.def"
#undef DEFT_UNARY
  };
  return table[0];
}

}  // namespace deft
