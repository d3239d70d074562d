#include "ops/indexing.h"

#include "kernels/cuda/index/index.h"
#include "ops/dense.h"
#include "ops/index_common.h"
#include "ops/index_cuda.h"
#include "runtime/context.h"

namespace deft {

using namespace indexing;

void LinearIndex::cuda(KernelCall& c) {
  const Params& p = c.params<LinearIndex>();
  cuda::Encoder e(c.out().device(), p.dims[0] == kTake ? "take" : "index");
  const Shape& sizes = c.out().sizes();
  for (int i = 0; i < c.input_count; ++i) {
    const Tensor& index = c.in(i);
    cuda::FoldIndex f{};
    f.ndim = sizes.size();
    cpu::Strided s = strided_as(index, sizes);
    Shape dense = contiguous_strides(index.sizes());
    for (int d = 0; d < f.ndim; ++d) {
      int own = d - (f.ndim - index.dim());
      f.sizes[d] = sizes[d];
      f.strides[d] = s.strides[d];
      f.position_strides[d] = own < 0 || index.sizes()[own] == 1 ? 0 : dense[own];
    }
    f.index = index.data<const int64_t>();
    f.size = p.sizes[i];
    f.first = i == 0;
    if (p.dims[i] == kTake) {
      f.site = e.fault_site(cuda::FaultKind::index, "{0}: index {1} at element {3} is outside -{2} to {4}");
      f.last = f.size - 1;
    } else {
      f.site = e.fault_site(cuda::FaultKind::index,
                            index.dim() < 2
                                ? "{0} at dimension {4}: found index {1} at position {3}, expected -{2} <= index < {2}"
                                : "{0} at dimension {4}: found index {1} at position {3} of the flat index, expected "
                                  "-{2} <= index < {2}");
      f.last = p.dims[i];
    }
    cuda::fold_index(e, f, c.out().data<int64_t>());
  }
}

namespace {

// One dim in the place of the indexed ones, and the positions in it: linear ones, or offsets in memory where the
// strides do not allow that.
struct Positions {
  cpu::Strided s;
  Tensor list;
  Positions(cuda::Encoder& e, const Tensor& x, const Tensor& linear, int first, int count)
      : s(strided(x)), list(as_dense(linear)) {
    if (merge_dims(s, first, count)) return;
    Tensor offsets(make_tensor(Meta::dense(Shape{linear.numel()}, DType::i64, linear.device())));
    cuda::index_offsets(e, list.data<const int64_t>(), linear.numel(), count, s.sizes + first, s.strides + first,
                        offsets.data<int64_t>());
    int64_t span = 1;
    for (int d = first; d < first + count; ++d) span += (s.sizes[d] - 1) * s.strides[d];
    list = offsets;
    replace_dims(s, first, count, x.numel() ? span : 0, 1);
  }
};

cuda::IndexSpace index_space(const cpu::Strided& walked, int dim, const Positions& at) {
  cuda::IndexSpace s{};
  s.ndim = walked.ndim;
  for (int d = 0; d < s.ndim; ++d) s.sizes[d] = walked.sizes[d];
  s.dim = dim;
  s.dim_size = at.s.sizes[dim];
  s.list = s.checked = true;
  return s;
}
cuda::Operand positions_operand(const Positions& at, int dim) {
  cuda::Operand o{at.list.data_ptr(), DType::i64, {}};
  o.strides[dim] = 1;
  return o;
}

}  // namespace

void Index::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  if (c.out().numel() == 0) return;
  const Params& p = c.params<Index>();
  int first = static_cast<int>(p.first);
  Positions at(e, c.in(0), c.in(1), first, static_cast<int>(p.count));
  cpu::Strided out = strided(c.out());
  merge_dims(out, first, c.in(1).dim());
  cuda::index_select(e, index_space(out, first, at), device_operand(c.in(0), at.s), positions_operand(at, first),
                     device_operand(c.out(), out));
}

void IndexPut::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const Params& p = c.params<IndexPut>();
  int first = static_cast<int>(p.first);
  Tensor out = c.out(), value = c.in(2);
  if (value.data_ptr() == out.data_ptr() && value.numel() > 0) {  // written in place into itself
    value = Tensor(make_tensor(Meta::dense(value.sizes(), value.dtype(), value.device())));
    copy_values(c.in(2), value);
  }
  start_from(c.in(0), out);
  Shape sizes = indexed_sizes(out.meta(), c.in(1).meta(), p.first, p.count);
  if (checked_numel(sizes, out.dtype()) == 0) return;
  Positions at(e, out, c.in(1), first, static_cast<int>(p.count));
  cpu::Strided source = value_strides(value, sizes, first, c.in(1).dim());
  cuda::scatter(e, p.accumulate ? cuda::ScatterOp::add : cuda::ScatterOp::assign, index_space(source, first, at),
                device_operand(out, at.s), positions_operand(at, first), device_operand(value, source),
                context().bits & kDeterministic);
}

}  // namespace deft
