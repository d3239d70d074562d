// Converts tensors to the arguments of the CUDA index kernels.
#pragma once

#include "kernels/cuda/device/iteration.h"
#include "ops/strided.h"

namespace deft {

inline cuda::Operand device_operand(const Tensor& t, const cpu::Strided& s) {
  cuda::Operand o{t.data_ptr(), t.dtype(), {}};
  for (int i = 0; i < s.ndim; ++i) o.strides[i] = s.strides[i];
  return o;
}
inline cuda::Operand device_operand(const Tensor& t) { return device_operand(t, strided(t)); }

}  // namespace deft
