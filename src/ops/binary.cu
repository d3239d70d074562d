// CUDA kernels of the binary formulas.
#include "ops/binary.h"
#include "ops/elementwise_table.cuh"

namespace deft {

const cuda::ElementwiseKernel* binary_cuda_table() {
  static const cuda::ElementwiseKernel table[][kDTypeCount] = {
#define DEFT_BINARY(Type, function) DEFT_CUDA_ROW(Type)
#include "ops/binary.def"
#undef DEFT_BINARY
  };
  return table[0];
}

}  // namespace deft
