// How sort and topk see their tensors, on every device. Internal.
#pragma once

#include "ops/dense.h"

namespace deft {

// The tensor with `dim` moved to the end, dense: what the row kernels work on.
inline Tensor rows_along(const Tensor& x, int64_t dim) {
  if (x.dim() == 0) return x;
  Meta m = x.meta();
  int d = static_cast<int>(dim);
  Shape sizes = m.sizes, strides = m.strides;
  int64_t n = sizes[d], step = strides[d];
  sizes.erase(d);
  strides.erase(d);
  sizes.push_back(n);
  strides.push_back(step);
  m.sizes = sizes;
  m.set_strides(strides);
  return Tensor(make_alias(*x.impl(), m, 0));
}

// Runs kernel(values, indices) on dense rows, writing straight into the results where they are laid out so.
template <class Kernel>
void by_rows(KernelCall& c, int64_t dim, Kernel kernel) {
  Tensor x = as_dense(rows_along(c.in(), dim));
  Tensor values = rows_along(c.out(0), dim), indices = rows_along(c.out(1), dim);
  if (values.numel() == 0) return;
  bool direct = values.meta().contiguous;
  Tensor v = direct ? values : Tensor(make_tensor(Meta::dense(values.sizes(), values.dtype(), values.device())));
  Tensor i = direct ? indices : Tensor(make_tensor(Meta::dense(indices.sizes(), DType::i64, indices.device())));
  int64_t n = x.dim() ? x.sizes().back() : 1;
  kernel(x, x.numel() / n, n, v.data_ptr(), i.data<int64_t>());
  if (direct) return;
  copy_values(v, values);
  copy_values(i, indices);
}

}  // namespace deft
