#include "ops/view.h"

#include "kernels/cuda/copy/shape_ops.h"
#include "kernels/cuda/index/index.h"
#include "ops/dense.h"
#include "ops/index_cuda.h"
#include "runtime/context.h"

namespace deft {

void SliceBackward::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const Params& p = c.params<SliceBackward>();
  if (c.out().numel() == 0) return;
  Tensor g = as_dense(c.in());
  int dim = static_cast<int>(p.dim);
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < dim; ++d) outer *= p.input_sizes[d];
  for (int d = dim + 1; d < p.input_sizes.size(); ++d) inner *= p.input_sizes[d];
  cuda::slice_backward(e, g.dtype(), outer, p.input_sizes[dim], inner, p.start, p.step, g.sizes()[dim], g.data_ptr(),
                       c.out().data_ptr());
}

void AsStridedScatter::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor region = copy_apart(c);
  if (!region.defined()) return;
  // Overlapping regions are rare (gradients of expanded views): their elements are added through a list of places.
  fill_values(region, 0);
  Tensor source = as_dense(c.in(1));
  const Meta& m = region.meta();
  cuda::Workspace places(e, static_cast<size_t>(m.numel) * sizeof(int64_t));
  cuda::region_offsets(e, m.rank(), m.sizes.data(), m.strides.data(), places.as<int64_t>());
  cuda::IndexSpace s{1, {m.numel}, 0, m.span(), true, true};
  cuda::scatter(e, cuda::ScatterOp::add, s, {region.data_ptr(), m.dtype, {1}}, {places.as<void>(), DType::i64, {1}},
                {source.data_ptr(), m.dtype, {1}}, context().bits & kDeterministic);
}

}  // namespace deft
