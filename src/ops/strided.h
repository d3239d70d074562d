// From tensors to the sizes and strides that index kernels take.
#pragma once

#include "core/tensor.h"
#include "kernels/cpu/copy/strided_walk.h"

namespace deft {

inline cpu::Strided strided(const Tensor& t) {
  cpu::Strided s;
  s.ndim = t.dim();
  for (int i = 0; i < t.dim(); ++i) {
    s.sizes[i] = t.sizes()[i];
    s.strides[i] = t.strides()[i];
  }
  return s;
}
// The same, broadcast to `sizes`.
inline cpu::Strided strided_as(const Tensor& t, const Shape& sizes) {
  cpu::Strided s;
  s.ndim = sizes.size();
  int shift = sizes.size() - t.dim();
  for (int i = 0; i < sizes.size(); ++i) {
    int d = i - shift;
    s.sizes[i] = sizes[i];
    s.strides[i] = d < 0 || (t.sizes()[d] == 1 && sizes[i] != 1) ? 0 : t.strides()[d];
  }
  return s;
}

}  // namespace deft
