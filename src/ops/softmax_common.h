// What the softmax kernels of all devices are called with. Internal.
#pragma once

#include "ops/reduce_common.h"
#include "ops/softmax.h"

namespace deft::rows {

// In dense memory of any order, a dim of stride s has the s elements of the inner dims within it.
template <class View>
View view_of(const Tensor& out, int64_t dim) {
  View v{out.dtype(), out.numel(), 1, 1};
  if (out.dim() == 0 || out.sizes()[static_cast<int>(dim)] == 1) return v;
  v.n = out.sizes()[static_cast<int>(dim)];
  v.inner = out.strides()[static_cast<int>(dim)];
  v.outer = out.numel() / (v.n * v.inner);
  return v;
}

// kernel(view, x, y)
template <class View, class F>
void run(KernelCall& c, int64_t dim, F&& kernel) {
  if (c.out().numel() == 0) return;
  Tensor x = reduction::laid_out_as(c.in(), c.out().meta());
  kernel(view_of<View>(c.out(), dim), x.data_ptr(), c.out().data_ptr());
}
// kernel(view, g, y, dx)
template <class View, class F>
void run_backward(KernelCall& c, int64_t dim, F&& kernel) {
  if (c.out().numel() == 0) return;
  Tensor g = reduction::laid_out_as(c.in(0), c.out().meta()), y = reduction::laid_out_as(c.in(1), c.out().meta());
  kernel(view_of<View>(c.out(), dim), g.data_ptr(), y.data_ptr(), c.out().data_ptr());
}

}  // namespace deft::rows
