// From tensors to the plain operands kernels take.
#pragma once

#include "core/tensor.h"
#include "kernels/cpu/elementwise.h"

namespace deft {

inline cpu::Operand operand(const Tensor& t) {
  cpu::Operand o;
  o.data = t.data_ptr();
  o.dtype = t.dtype();
  for (int i = 0; i < t.dim(); ++i) o.strides[i] = t.strides()[i];
  return o;
}
// The same, broadcast to `sizes`.
inline cpu::Operand operand_as(const Tensor& t, const Shape& sizes) {
  cpu::Operand o;
  o.data = t.data_ptr();
  o.dtype = t.dtype();
  int shift = sizes.size() - t.dim();
  for (int i = 0; i < sizes.size(); ++i) {
    int s = i - shift;
    o.strides[i] = s < 0 || (t.sizes()[s] == 1 && sizes[i] != 1) ? 0 : t.strides()[s];
  }
  return o;
}

// Raw copy with broadcasting and conversion, and raw fill; no autograd, no version bump.
void copy_values(const Tensor& from, const Tensor& to);
void fill_values(const Tensor& out, Scalar value);

}  // namespace deft
