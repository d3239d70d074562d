#include "ops/cuda_ops.h"

#include "ops/all_ops.h"

namespace deft {

constinit CudaOps cuda_ops{};

constinit KernelFn elementwise::cuda_kernel_slot = nullptr;
constinit ElementwiseCuda unary_cuda{}, activation_cuda{}, binary_cuda{}, ternary_cuda{};

template <class Op>
constinit KernelFn CudaKernel<Op>::fn = nullptr;
#define DEFT_OP(Type) template struct CudaKernel<Type>;
#include "ops/all_ops.def"
#include "ops/inner_ops.def"
#undef DEFT_OP

}  // namespace deft
