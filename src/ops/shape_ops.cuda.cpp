#include "ops/shape_ops.h"

#include <algorithm>

#include "kernels/cuda/copy/shape_ops.h"
#include "ops/dense.h"
#include "ops/index_cuda.h"

namespace deft {

void Cat::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  std::vector<cuda::RowCopy> rows;
  for_each_part(c, [&](const Tensor& x, const Tensor& part) {
    cuda::RowCopy copy;
    if (cuda::as_rows(x.dim(), x.sizes().data(), device_operand(x), device_operand(part), copy))
      rows.push_back(copy);
    else
      copy_values(x, part);
  });
  cuda::copy_rows(e, rows);
}

void Triangle::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const Params& p = c.params<Triangle>();
  const Tensor& x = c.in();
  if (x.numel() == 0) return;
  int64_t diagonal = std::clamp(p.diagonal, -x.size(-2), x.size(-1));  // further away changes nothing
  cuda::triangle(e, x.dim(), x.sizes().data(), device_operand(x), diagonal, p.upper, c.out().data_ptr());
}

void OneHot::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor index = as_dense(c.in());
  cuda::one_hot(e, index.data<const int64_t>(), index.numel(), c.params<OneHot>().classes, c.out().data<int64_t>());
}

}  // namespace deft
