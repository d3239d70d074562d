// From tensors to the plain operands CUDA kernels take. For *.cuda.cpp files only.
#pragma once

#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/device/iteration.h"

namespace deft {

inline cuda::Operand cuda_operand(const Tensor& t) {
  cuda::Operand o;
  o.data = t.data_ptr();
  o.dtype = t.dtype();
  std::copy_n(t.strides().data(), t.dim(), o.strides);
  return o;
}

}  // namespace deft
