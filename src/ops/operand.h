// From tensors to the plain operands kernels take.
#pragma once

#include "core/tensor.h"
#include "kernels/cpu/elementwise/elementwise.h"

namespace deft {

// For the CPU; operand<cuda::Operand>() for CUDA.
template <class Operand = cpu::Operand>
Operand operand(const Tensor& t) {
  Operand o;
  o.data = t.data_ptr();
  o.dtype = t.dtype();
  for (int i = 0; i < t.dim(); ++i) o.strides[i] = t.strides()[i];
  return o;
}
// The same, broadcast to `sizes`.
template <class Operand = cpu::Operand>
Operand operand_as(const Tensor& t, const Shape& sizes) {
  Operand o;
  o.data = t.data_ptr();
  o.dtype = t.dtype();
  int shift = sizes.size() - t.dim();
  for (int i = 0; i < sizes.size(); ++i) {
    int s = i - shift;
    o.strides[i] = s < 0 || (t.sizes()[s] == 1 && sizes[i] != 1) ? 0 : t.strides()[s];
  }
  return o;
}

// Raw copy with broadcasting and conversion, and raw fill; no autograd, no version bump. Both tensors are on the same
// device, or `from` is one value on the host.
void copy_values(const Tensor& from, const Tensor& to);
void fill_values(const Tensor& out, Scalar value);
// ValueError where `value` lies outside the range of `dtype`; `op` is the name in the message.
void check_fits(Scalar value, DType dtype, const char* op);

namespace detail {

// Defined in copy.cuda.cpp, part of the CUDA plug-in: to be called through cuda_ops.
void cuda_copy(const Tensor& from, const Tensor& to);
void cuda_fill(const Tensor& out, const void* value);  // an element of its type, in host memory
void cuda_zero(const Tensor& out);                     // without gaps
void cuda_arange(const Tensor& out, int64_t start, int64_t step);
void cuda_arange(const Tensor& out, double start, double step);
void cuda_linspace(const Tensor& out, double start, double end, double step);
void cuda_eye(const Tensor& out);

}  // namespace detail

}  // namespace deft
