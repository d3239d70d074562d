// CUDA kernels of the ternary formulas.
#include "ops/elementwise_table.cuh"
#include "ops/ternary.h"

namespace deft {

const cuda::ElementwiseKernel* ternary_cuda_table() {
  static const cuda::ElementwiseKernel table[][kDTypeCount] = {
#define DEFT_TERNARY(Type, function) DEFT_CUDA_ROW(Type)
#include "ops/ternary.def"
#undef DEFT_TERNARY
  };
  return table[0];
}

}  // namespace deft
