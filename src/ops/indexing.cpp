#include "ops/indexing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/describe.h"
#include "kernels/cpu/index/index.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/gather_scatter.h"
#include "ops/index_common.h"
#include "ops/strided.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

// --- linear_index ----------------------------------------------------------------------------------------------

Meta LinearIndex::infer(std::span<const Meta* const> inputs, Params& p) {
  DEFT_CHECK(static_cast<int>(inputs.size()) == p.sizes.size(), ValueError, "index: {} index tensors for {} dimensions",
             inputs.size(), p.sizes.size());
  Shape sizes;
  for (const Meta* m : inputs) {
    DEFT_CHECK(m->defined && m->dtype == DType::i64, DTypeError, "index: the index tensors must all be i64, found {}",
               m->defined ? describe(*m) : "an undefined one");
    sizes = broadcast_shapes(sizes, m->sizes, "index");
  }
  checked_numel(p.sizes, DType::boolean);
  return Meta::dense(sizes, DType::i64, inputs[0]->device);
}

namespace {

void check_taken(const Tensor& index, int64_t n) {
  Tensor flat = as_dense(index);
  const int64_t* p = flat.data<const int64_t>();
  for (int64_t i = 0; i < flat.numel(); ++i)
    DEFT_CHECK(p[i] >= -n && p[i] < n, IndexError, "take: index {} at element {} is outside {} to {}", p[i], i, -n,
               n - 1);
}

}  // namespace

void LinearIndex::cpu(KernelCall& c) {
  const Params& p = c.params<LinearIndex>();
  for (int i = 0; i < c.input_count; ++i) {
    if (p.dims[i] == kTake) {
      check_taken(c.in(i), p.sizes[i]);
      continue;
    }
    char name[48];
    *fmt::format_to_n(name, sizeof(name) - 1, "index at dimension {}", p.dims[i]).out = 0;
    cpu::check_indices(name, c.in(i).data<const int64_t>(), strided(c.in(i)), p.sizes[i], true);
  }
  int64_t* linear = c.out().data<int64_t>();
  std::fill_n(linear, c.out().numel(), int64_t{0});
  for (int i = 0; i < c.input_count; ++i)
    cpu::fold_index(linear, c.in(i).data<const int64_t>(), strided_as(c.in(i), c.out().sizes()), p.sizes[i]);
}

// --- index, index_put ------------------------------------------------------------------------------------------

namespace indexing {

Shape indexed_sizes(const Meta& x, const Meta& linear, int64_t first, int64_t count) {
  DEFT_CHECK(first >= 0 && count >= 1 && first <= x.rank() && count <= x.rank() - first, IndexError,
             "index: dimensions {} and {} more are not all in shape {}", first, count, to_string(x.sizes));
  Shape sizes;
  for (int i = 0; i < first; ++i) sizes.push_back(x.sizes[i]);
  for (int64_t n : linear.sizes) sizes.push_back(n);
  for (int i = static_cast<int>(first + count); i < x.rank(); ++i) sizes.push_back(x.sizes[i]);
  return sizes;
}

void replace_dims(cpu::Strided& s, int first, int count, int64_t size, int64_t stride) {
  for (int d = s.ndim - 1; count == 0 && d >= first; --d) s.sizes[d + 1] = s.sizes[d], s.strides[d + 1] = s.strides[d];
  s.sizes[first] = size;
  s.strides[first] = stride;
  for (int d = first + count; count > 0 && d < s.ndim; ++d) {
    s.sizes[d - count + 1] = s.sizes[d];
    s.strides[d - count + 1] = s.strides[d];
  }
  s.ndim -= count - 1;
}
bool merge_dims(cpu::Strided& s, int first, int count) {
  int64_t size = 1, stride = 1;
  for (int d = first + count - 1; d >= first; --d) {
    if (s.sizes[d] == 1) continue;
    if (size == 1) stride = s.strides[d];
    if (s.strides[d] != stride * size) return false;
    size *= s.sizes[d];
  }
  replace_dims(s, first, count, size, stride);
  return true;
}

cpu::Strided value_strides(Tensor& value, const Shape& sizes, int first, int count) {
  cpu::Strided s = strided_as(value, sizes);
  if (merge_dims(s, first, count)) return s;
  Tensor wide(make_tensor(Meta::dense(sizes, value.dtype(), value.device())));
  copy_values(value, wide);
  value = wide;
  s = strided(value);
  merge_dims(s, first, count);
  return s;
}

}  // namespace indexing

using namespace indexing;

namespace {

// One dim in the place of the indexed ones, and the positions in it: linear ones, or offsets in memory where the
// strides do not allow that.
struct Positions {
  cpu::Strided s;
  Tensor list;
  Positions(const Tensor& x, const Tensor& linear, int first, int count) : s(strided(x)), list(as_dense(linear)) {
    if (merge_dims(s, first, count)) return;
    Tensor offsets(make_tensor(Meta::dense(Shape{linear.numel()}, DType::i64, linear.device())));
    cpu::index_offsets(list.data<const int64_t>(), linear.numel(), count, s.sizes + first, s.strides + first,
                       offsets.data<int64_t>());
    int64_t span = 1;
    for (int d = first; d < first + count; ++d) span += (s.sizes[d] - 1) * s.strides[d];
    list = offsets;
    replace_dims(s, first, count, x.numel() ? span : 0, 1);
  }
};

}  // namespace

Meta Index::infer(const Meta& x, const Meta& linear, const Params& p) {
  return Meta::dense(indexed_sizes(x, linear, p.first, p.count), x.dtype, x.device);
}
void Index::cpu(KernelCall& c) {
  const Params& p = c.params<Index>();
  int first = static_cast<int>(p.first);
  if (c.out().numel() == 0) return;
  Positions at(c.in(0), c.in(1), first, static_cast<int>(p.count));
  cpu::Strided out = strided(c.out());
  merge_dims(out, first, c.in(1).dim());
  cpu::index_select(c.in(0).dtype(), c.in(0).data_ptr(), at.s, first, at.list.data<const int64_t>(), 1, false,
                    c.out().data_ptr(), out);
}
void Index::vjp(VjpContext& c) {
  const Params& p = c.params<Index>();
  c.grad_in(0) =
      call<IndexPut>(c.node.site, {p.first, p.count, true}, indexing::blank_gradient(c), c.saved_input(1), c.grad());
}

Meta IndexPut::infer(const Meta& x, const Meta& linear, const Meta& value, const Params& p) {
  DEFT_CHECK(value.defined, ValueError, "index_put: the value is an undefined tensor");
  DEFT_CHECK(value.dtype == x.dtype, DTypeError, "index_put: the value is {}, the tensor {}; they must have one type",
             name_of(value.dtype), name_of(x.dtype));
  Shape sizes = indexed_sizes(x, linear, p.first, p.count);
  Shape both = broadcast_shapes(sizes, value.sizes, "index_put");
  DEFT_CHECK(both == sizes, ShapeError, "index_put: a value of shape {} does not fit into the indexed {}",
             to_string(value.sizes), to_string(sizes));
  return Meta::dense(x.sizes, x.dtype, x.device);
}
void IndexPut::cpu(KernelCall& c) {
  const Params& p = c.params<IndexPut>();
  int first = static_cast<int>(p.first);
  Tensor out = c.out(), value = c.in(2);
  start_from(c.in(0), out);
  Shape sizes = indexed_sizes(out.meta(), c.in(1).meta(), p.first, p.count);
  if (checked_numel(sizes, out.dtype()) == 0) return;
  Positions at(out, c.in(1), first, static_cast<int>(p.count));
  cpu::Strided source = value_strides(value, sizes, first, c.in(1).dim());
  auto write = p.accumulate ? cpu::index_add : cpu::index_copy;
  write(out.dtype(), out.data_ptr(), at.s, first, at.list.data<const int64_t>(), 1, false, value.data_ptr(), source);
}
void IndexPut::vjp(VjpContext& c) {
  const Params& p = c.params<IndexPut>();
  if (c.needs(0)) {
    c.grad_in(0) = c.grad();
    if (!p.accumulate)
      c.grad_in(0) = call<IndexPut>(c.node.site, {p.first, p.count, false}, c.grad(), c.saved_input(1),
                                    scalar_tensor(0, {c.grad().dtype(), c.grad().device()}));
  }
  if (c.needs(2)) c.grad_in(2) = call<Index>(c.node.site, {p.first, p.count}, c.grad(), c.saved_input(1));
}

// --- From a list of indices to views and ops -------------------------------------------------------------------

namespace {

// How many dims of the indexed tensor an index takes up; Ellipsis takes what is left.
int dims_taken(const TensorIndex& i) {
  if (const Tensor* t = std::get_if<Tensor>(&i.value)) {
    detail::check_defined(*t, "index");
    return t->dtype() == DType::boolean ? t->dim() : 1;
  }
  return std::holds_alternative<int64_t>(i.value) || std::holds_alternative<Slice>(i.value);
}

// Applies indices one after the other: the basic ones to `view`, the tensors are collected.
class Resolver {
 public:
  Tensor view;
  Tensor linear;  // undefined: the view is all there is
  int64_t first = 0, count = 0;

  // With `writes` the view, or the linear index into it, says where to.
  Resolver(const Tensor& x, IndexList indices, bool writes = false) : view(x), writes_(writes) {
    detail::check_defined(x, "index");
    shape_ = x.sizes();
    int ellipses = 0;
    left_ = x.dim();
    for (const TensorIndex& i : indices) {
      left_ -= dims_taken(i);
      ellipses += std::holds_alternative<Ellipsis>(i.value);
    }
    DEFT_CHECK(left_ >= 0, IndexError, "index: the indices take {} dimensions, but the tensor has shape {}",
               x.dim() - left_, to_string(shape_));
    DEFT_CHECK(ellipses <= 1, IndexError, "index: only one Ellipsis may be given, found {}", ellipses);
    for (const TensorIndex& i : indices) std::visit([&](const auto& value) { apply(value); }, i.value);
    collect();
  }

 private:
  void apply(int64_t i) {
    int64_t n = shape_[source_];
    DEFT_CHECK(i >= -n && i < n, IndexError,
               "index: {} is out of range for dimension {} of shape {}, expected {} <= index < {}", i, source_,
               to_string(shape_), -n, n);
    view = select(view, at_, i);
    ++source_;
  }
  void apply(Slice r) {
    if (r.start || r.stop || r.step != 1) view = slice(view, at_, r);
    ++at_;
    ++source_;
  }
  void apply(Ellipsis) {
    at_ += left_;
    source_ += left_;
  }
  void apply(NewAxis) { view = unsqueeze(view, at_++); }
  void apply(bool on) {
    view = unsqueeze(view, at_);
    add(zeros({on ? 1 : 0}, {DType::i64, view.device()}), -1);
  }
  void apply(const Tensor& t) {
    if (t.dtype() == DType::boolean) return t.dim() ? apply_mask(t) : apply(t.item<bool>());
    DEFT_CHECK(t.dtype() == DType::i64, DTypeError,
               "index: a tensor of indices must be i64 or bool, found {}; convert it with to()", describe(t.meta()));
    if (t.dim() == 0) return apply_number(t);
    add(t, source_++);
  }
  // A number. Where a capture could not hold on to its value, the element is looked up by an op.
  void apply_number(const Tensor& t) {
    CaptureHook* capture = active_capture();
    if (!capture || capture->is_constant(t)) return apply(t.item<int64_t>());
    if (writes_) {
      numbers_ = t;
      return add(t, source_++);
    }
    Tensor place = call_list<LinearIndex>(Site::current(), {Shape{shape_[source_]}, Shape{source_}}, {&t, 1});
    Tensor part = call<Index>(Site::current(), {at_, 1}, view, place);
    capture->copied_view(view, part);
    view = part;
    ++source_;
  }
  void apply_mask(const Tensor& mask) {
    for (int i = 0; i < mask.dim(); ++i)
      DEFT_CHECK(mask.sizes()[i] == shape_[source_ + i], IndexError,
                 "index: a mask of shape {} does not fit dimension {} of shape {}; its sizes must be the same",
                 to_string(mask.sizes()), source_ + i, to_string(shape_));
    Tensor places = nonzero(mask);
    for (int i = 0; i < mask.dim(); ++i) add(select(places, 1, i), source_++);
  }
  void add(const Tensor& index, int source) {
    tensors_.push_back(index);
    dims_.push_back(at_++);
    sources_.push_back(source);
  }

  void collect() {
    count = dims_.size();
    if (count == 0) return;
    first = dims_[0];
    if (dims_.back() - first + 1 != count) {  // a slice lies between: the indexed dims go first
      // But those of numbers do not count in that, so the value would need to know which is which.
      if (numbers_.defined() && std::any_of(tensors_.begin(), tensors_.end(), [](auto& t) { return t.dim() > 0; }))
        note_host_read("item", numbers_, Site());
      Shape order = dims_;
      for (int d = 0, next = 0; d < view.dim(); ++d)
        if (next < dims_.size() && dims_[next] == d)
          ++next;
        else
          order.push_back(d);
      view = permute(view, order);
      first = 0;
    }
    Shape sizes;
    for (int i = 0; i < count; ++i) sizes.push_back(view.sizes()[static_cast<int>(first) + i]);
    linear = call_list<LinearIndex>(Site::current(), {sizes, sources_}, tensors_);
  }

  bool writes_;
  Tensor numbers_;  // one of the 0-d tensors among tensors_, if there are any
  Shape shape_;
  int left_ = 0;             // dims that no index names: what Ellipsis stands for
  int at_ = 0, source_ = 0;  // the next dim of view, and of the tensor
  std::vector<Tensor> tensors_;
  Shape dims_, sources_;  // of the tensors: dim of view, dim of the tensor
};

}  // namespace

Tensor index(const Tensor& x, IndexList indices, Site site) {
  SiteScope scope(site);
  Resolver r(x, indices);
  return r.linear.defined() ? call<Index>(site, {r.first, r.count}, r.view, r.linear) : r.view;
}

Tensor index_put(const Tensor& x, IndexList indices, const Tensor& value, bool accumulate, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "index_put");
  Tensor out = x.clone(MemoryFormat::contiguous);
  out.index_put_(indices, value, accumulate, site);
  return out;
}

Tensor Tensor::index(IndexList indices, Site site) const { return deft::index(*this, indices, site); }

Tensor& Tensor::index_put_(IndexList indices, const Tensor& value, bool accumulate, Site site) {
  SiteScope scope(site);
  detail::check_defined(value, "index_put");
  Resolver r(*this, indices, true);
  DEFT_CHECK(value.dtype() == dtype(), DTypeError, "index_put: the value is {}, the tensor {}; they must have one type",
             name_of(value.dtype()), name_of(dtype()));
  if (r.linear.defined())
    call_inplace<IndexPut>(site, {r.first, r.count, accumulate}, r.view, r.linear, value);
  else if (accumulate)
    r.view.add_(value, site);
  else
    r.view.copy_(value, site);
  return *this;
}
Tensor& Tensor::index_put_(IndexList indices, Scalar value, bool accumulate, Site site) {
  detail::check_defined(*this, "index_put");
  return index_put_(indices, scalar_tensor(value, {dtype(), device()}, site), accumulate, site);
}

}  // namespace deft
