#include "ops/view.h"

#include <algorithm>

#include "base/checked.h"
#include "core/describe.h"
#include "ops/creation.h"
#include "ops/operand.h"

namespace deft {

namespace {

ViewSpec reshaped(const Meta& x, const Shape& sizes, const Shape& strides, int64_t offset = 0) {
  ViewSpec v{x, offset};
  v.meta.sizes = sizes;
  v.meta.numel = checked_numel(sizes, x.dtype);
  v.meta.set_strides(strides);
  return v;
}

// Replaces a single -1 by what is left, and checks the element count.
Shape complete_sizes(const Meta& x, Shape sizes, const char* op) {
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1) {
      DEFT_CHECK(open < 0, ShapeError, "{}: only one size may be -1, found {}", op, to_string(sizes));
      open = i;
    } else {
      DEFT_CHECK(sizes[i] >= 0, ShapeError, "{}: a size must not be negative, found {}", op, to_string(sizes));
      DEFT_CHECK(!__builtin_mul_overflow(known, sizes[i], &known), ShapeError, "{}: shape {} has too many elements", op,
                 to_string(sizes));
    }
  }
  if (open >= 0) {
    DEFT_CHECK(known > 0 && x.numel % known == 0, ShapeError, "{}: {} elements of shape {} cannot be shown as {}", op,
               x.numel, to_string(x.sizes), to_string(sizes));
    sizes[open] = x.numel / known;
  } else {
    DEFT_CHECK(known == x.numel, ShapeError, "{}: shape {} has {} elements, but {} has {}", op, to_string(sizes), known,
               to_string(x.sizes), x.numel);
  }
  checked_numel(sizes, x.dtype);  // with a size of 0, the others may be anything so far
  return sizes;
}

}  // namespace

// --- view ------------------------------------------------------------------------------------------------------

bool View::strides_for(const Meta& x, const Shape& sizes, Shape& strides) {
  strides = contiguous_strides(sizes);
  if (x.contiguous || x.numel == 0) return true;
  // Walk both shapes from the back; each run of old dims that is contiguous in itself may be cut anew.
  int to = sizes.size() - 1;
  int64_t old_count = 1, new_count = 1;
  int64_t step = x.rank() ? x.strides.back() : 1;
  for (int from = x.rank() - 1; from >= 0; --from) {
    old_count *= x.sizes[from];
    bool run_ends = from == 0 || (x.sizes[from - 1] != 1 && x.strides[from - 1] != old_count * step);
    if (!run_ends) continue;
    while (to >= 0 && (new_count < old_count || sizes[to] == 1)) {
      strides[to] = new_count * step;
      new_count *= sizes[to];
      --to;
    }
    if (new_count != old_count) return false;
    if (from > 0) {
      step = x.strides[from - 1];
      old_count = new_count = 1;
    }
  }
  return to == -1;
}

ViewSpec View::view(const Meta& x, Params& p) {
  p.sizes = complete_sizes(x, p.sizes, "view");
  Shape strides;
  DEFT_CHECK(strides_for(x, p.sizes, strides), ShapeError,
             "view: a tensor of shape {} and strides {} cannot be shown as {} without a copy; use reshape()",
             to_string(x.sizes), to_string(x.strides), to_string(p.sizes));
  return reshaped(x, p.sizes, strides);
}
void View::vjp(VjpContext& c) { c.grad_in(0) = c.grad().reshape(c.input_sizes(0)); }

// --- permute, expand, squeeze, unsqueeze -----------------------------------------------------------------------

ViewSpec Permute::view(const Meta& x, Params& p) {
  int r = x.rank();
  DEFT_CHECK(p.dims.size() == r, ShapeError, "permute: {} dims given for a tensor of shape {}", p.dims.size(),
             to_string(x.sizes));
  Shape sizes = x.sizes, strides = x.strides;
  uint32_t seen = 0;
  for (int i = 0; i < r; ++i) {
    int d = static_cast<int>(normalize_dim(p.dims[i], r, "permute"));
    DEFT_CHECK(!(seen >> d & 1), ShapeError, "permute: dimension {} is named twice in {}", d, to_string(p.dims));
    seen |= 1u << d;
    p.dims[i] = d;
    sizes[i] = x.sizes[d];
    strides[i] = x.strides[d];
  }
  return reshaped(x, sizes, strides);
}
void Permute::vjp(VjpContext& c) {
  const Shape& dims = c.params<Permute>().dims;
  Shape back = dims;
  for (int i = 0; i < dims.size(); ++i) back[static_cast<int>(dims[i])] = i;
  c.grad_in(0) = c.grad().permute(back);
}

ViewSpec Expand::view(const Meta& x, Params& p) {
  int add = p.sizes.size() - x.rank();
  DEFT_CHECK(add >= 0, ShapeError, "expand: a tensor of shape {} cannot be expanded to fewer dimensions {}",
             to_string(x.sizes), to_string(p.sizes));
  Shape strides = p.sizes;
  for (int i = 0; i < p.sizes.size(); ++i) {
    int64_t have = i < add ? 1 : x.sizes[i - add];
    int64_t want = p.sizes[i];
    if (want == -1 && i >= add) want = have;
    DEFT_CHECK(want >= 0 && (have == want || have == 1), ShapeError,
               "expand: size {} at dimension {} cannot become {} (from {} to {}); only sizes of 1 expand", have, i,
               want, to_string(x.sizes), to_string(p.sizes));
    p.sizes[i] = want;
    strides[i] = i < add || (have == 1 && want != 1) ? 0 : x.strides[i - add];
  }
  return reshaped(x, p.sizes, strides);
}

ViewSpec Squeeze::view(const Meta& x, Params& p) {
  Shape sizes, strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.sizes[i] == 1 && (p.dims >> i & 1)) continue;
    sizes.push_back(x.sizes[i]);
    strides.push_back(x.strides[i]);
  }
  return reshaped(x, sizes, strides);
}
void Squeeze::vjp(VjpContext& c) { c.grad_in(0) = c.grad().reshape(c.input_sizes(0)); }

ViewSpec Unsqueeze::view(const Meta& x, Params& p) {
  p.dim = normalize_dim(p.dim, x.rank() + 1, "unsqueeze");
  int at = static_cast<int>(p.dim);
  Shape sizes = x.sizes, strides = x.strides;
  int64_t stride = at < x.rank() ? x.strides[at] * std::max<int64_t>(x.sizes[at], 1) : 1;
  sizes.insert(at, 1);
  strides.insert(at, stride);
  return reshaped(x, sizes, strides);
}
void Unsqueeze::vjp(VjpContext& c) { c.grad_in(0) = c.grad().squeeze(c.params<Unsqueeze>().dim); }

// --- slice, select, as_strided, diagonal -----------------------------------------------------------------------

ViewSpec SliceOp::view(const Meta& x, Params& p) {
  DEFT_CHECK(x.rank() > 0, ShapeError, "slice: a 0-d tensor has no dimension to slice");
  p.dim = normalize_dim(p.dim, x.rank(), "slice");
  DEFT_CHECK(p.step >= 1, ValueError, "slice: the step must be at least 1, found {}; use flip() to reverse", p.step);
  int d = static_cast<int>(p.dim);
  int64_t n = x.sizes[d];
  auto clip = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  p.start = clip(p.start);
  p.stop = std::max(clip(p.stop), p.start);
  Shape sizes = x.sizes, strides = x.strides;
  p.step = std::min(p.step, std::max<int64_t>(1, p.stop - p.start));  // a longer one has nowhere to go either
  sizes[d] = (p.stop - p.start + p.step - 1) / p.step;
  if (sizes[d] > 1) strides[d] *= p.step;
  int64_t offset = sizes[d] ? p.start * x.strides[d] : 0;
  return reshaped(x, sizes, strides, offset);
}
void SliceOp::vjp(VjpContext& c) {
  const Params& p = c.params<SliceOp>();
  if (Tensor* sum = c.sum_so_far(0)) {
    slice(*sum, p.dim, Slice(p.start, p.stop, p.step)).add_(c.grad());
    return;
  }
  c.grad_in(0) = call<SliceBackward>(c.node.site, {c.input_sizes(0), p.dim, p.start, p.step}, c.grad());
}

ViewSpec Select::view(const Meta& x, Params& p) {
  DEFT_CHECK(x.rank() > 0, IndexError, "select: a 0-d tensor cannot be indexed; use item()");
  p.dim = normalize_dim(p.dim, x.rank(), "select");
  int d = static_cast<int>(p.dim);
  int64_t n = x.sizes[d];
  DEFT_CHECK(p.index >= -n && p.index < n, IndexError, "select: index {} is out of range for dimension {} of shape {}",
             p.index, d, to_string(x.sizes));
  if (p.index < 0) p.index += n;
  Shape sizes = x.sizes, strides = x.strides;
  int64_t offset = p.index * strides[d];
  sizes.erase(d);
  strides.erase(d);
  return reshaped(x, sizes, strides, offset);
}
void Select::vjp(VjpContext& c) {
  const Params& p = c.params<Select>();
  if (Tensor* sum = c.sum_so_far(0)) {
    select(*sum, p.dim, p.index).add_(c.grad());
    return;
  }
  c.grad_in(0) = call<SliceBackward>(c.node.site, {c.input_sizes(0), p.dim, p.index, 1}, c.grad().unsqueeze(p.dim));
}

namespace {

// Checks that a strided region lies inside `room` elements that begin at the region's origin.
template <class Params>
void check_region(const Params& p, int64_t room, const char* op) {
  DEFT_CHECK(p.sizes.size() == p.strides.size(), ShapeError, "{}: {} sizes but {} strides", op, p.sizes.size(),
             p.strides.size());
  constexpr int64_t kMost = int64_t{1} << 47;  // more elements than memory holds
  Wide last = p.offset;
  bool empty = false;
  for (int i = 0; i < p.sizes.size(); ++i) {
    DEFT_CHECK(p.sizes[i] >= 0 && p.strides[i] >= 0, ShapeError, "{}: sizes {} and strides {} must not be negative", op,
               to_string(p.sizes), to_string(p.strides));
    DEFT_CHECK(p.strides[i] <= kMost, IndexError, "{}: a stride of {} is longer than memory", op, p.strides[i]);
    empty |= p.sizes[i] == 0;
    last += Wide(p.sizes[i] - 1) * p.strides[i];
  }
  DEFT_CHECK(empty || (p.offset >= 0 && last < room), IndexError,
             "{}: sizes {}, strides {}, offset {} reach outside the {} elements there are", op, to_string(p.sizes),
             to_string(p.strides), p.offset, room);
}

}  // namespace

ViewSpec AsStrided::view(const Meta& x, Params& p) {
  check_region(p, x.span(), "as_strided");
  p.input_strides = x.contiguous ? Shape{} : x.strides;
  ViewSpec v = reshaped(x, p.sizes, p.strides, p.offset);
  if (v.meta.numel == 0) v.offset = p.offset = 0;
  return v;
}
void AsStrided::vjp(VjpContext& c) {
  const Params& p = c.params<AsStrided>();
  TensorOptions options{c.input_dtype(0), c.input_device(0)};
  const Shape& sizes = c.input_sizes(0);
  if (p.input_strides.empty()) {
    c.grad_in(0) = as_strided_scatter(zeros(sizes, options), c.grad(), p.sizes, p.strides, p.offset);
    return;
  }
  // The region is a place in the input's memory: the gradient is laid out like that, and read from there.
  Meta input = Meta::dense(sizes, options.dtype, options.device);
  input.set_strides(p.input_strides);
  Tensor blank = zeros({input.span()}, options);
  Tensor memory = as_strided_scatter(blank, c.grad(), p.sizes, p.strides, p.offset);
  Tensor g = as_strided(memory, sizes, p.input_strides);
  // Elements that share a place share its gradient.
  if (input.overlaps_itself())
    g = g / as_strided(as_strided_scatter(blank, ones(sizes, options), sizes, p.input_strides), sizes, p.input_strides);
  c.grad_in(0) = g;
}

ViewSpec Diagonal::view(const Meta& x, Params& p) {
  DEFT_CHECK(x.rank() >= 2, ShapeError, "diagonal: needs at least 2 dimensions, found shape {}", to_string(x.sizes));
  p.dim1 = normalize_dim(p.dim1, x.rank(), "diagonal");
  p.dim2 = normalize_dim(p.dim2, x.rank(), "diagonal");
  DEFT_CHECK(p.dim1 != p.dim2, ShapeError, "diagonal: the two dimensions must differ, found {} twice", p.dim1);
  int a = static_cast<int>(p.dim1), b = static_cast<int>(p.dim2);
  int64_t rows = x.sizes[a], cols = x.sizes[b];
  int64_t length =
      std::max<int64_t>(0, p.offset >= 0 ? std::min(rows, cols - p.offset) : std::min(rows + p.offset, cols));
  int64_t offset = length == 0 ? 0 : p.offset >= 0 ? p.offset * x.strides[b] : -p.offset * x.strides[a];
  Shape sizes, strides;
  for (int i = 0; i < x.rank(); ++i)
    if (i != a && i != b) {
      sizes.push_back(x.sizes[i]);
      strides.push_back(x.strides[i]);
    }
  sizes.push_back(length);
  strides.push_back(x.strides[a] + x.strides[b]);
  return reshaped(x, sizes, strides, offset);
}
void Diagonal::vjp(VjpContext& c) {
  const Params& p = c.params<Diagonal>();
  Tensor blank = zeros(c.input_sizes(0), {c.input_dtype(0), c.input_device(0)});
  Params q = p;
  ViewSpec spec = Diagonal::view(blank.meta(), q);
  c.grad_in(0) = as_strided_scatter(blank, c.grad(), spec.meta.sizes, spec.meta.strides, spec.offset);
}

Meta SliceBackward::infer(const Meta& g, const Params& p) { return Meta::dense(p.input_sizes, g.dtype, g.device); }
void SliceBackward::cpu(KernelCall& c) {
  const Params& p = c.params<SliceBackward>();
  Tensor& out = c.out();
  __builtin_memset(out.data_ptr(), 0, static_cast<size_t>(out.numel()) * out.element_size());
  SliceOp::Params s{p.dim, p.start, p.input_sizes[static_cast<int>(p.dim)], p.step};
  ViewSpec spec = SliceOp::view(out.meta(), s);
  int d = static_cast<int>(p.dim);
  spec.meta.sizes[d] = c.in().sizes()[d];
  spec.meta.numel = c.in().numel();
  copy_values(c.in(), Tensor(make_alias(*out.impl(), spec.meta, spec.offset)));
}
void SliceBackward::vjp(VjpContext& c) {
  const Params& p = c.params<SliceBackward>();
  int64_t n = c.input_sizes(0)[static_cast<int>(p.dim)];
  c.grad_in(0) = slice(c.grad(), p.dim, Slice(p.start, p.start + n * p.step, p.step));
}

Meta AsStridedScatter::infer(const Meta& base, const Meta& source, const Params& p) {
  Meta out = Meta::dense(base.sizes, base.dtype, base.device);
  check_region(p, out.span(), "as_strided_scatter");
  DEFT_CHECK(source.sizes == p.sizes, ShapeError, "as_strided_scatter: the source has shape {}, the region {}",
             to_string(source.sizes), to_string(p.sizes));
  return out;
}
Tensor AsStridedScatter::copy_apart(KernelCall& c) {
  const Params& p = c.params<AsStridedScatter>();
  Tensor& out = c.out();
  copy_values(c.in(0), out);
  Meta m = out.meta();
  m.sizes = p.sizes;
  m.numel = c.in(1).numel();
  m.set_strides(p.strides);
  Tensor region(make_alias(*out.impl(), m, p.offset));
  if (m.overlaps_itself()) return region;
  copy_values(c.in(1), region);
  return {};
}
void AsStridedScatter::cpu(KernelCall& c) {
  Tensor region = copy_apart(c);
  if (!region.defined()) return;
  const Meta& m = region.meta();
  // Overlapping regions are rare (gradients of expanded views): one element at a time, in order.
  Tensor source = Tensor(make_tensor(Meta::dense(m.sizes, m.dtype, m.device)));
  copy_values(c.in(1), source);
  dispatch_all(m.dtype, [&]<class T>() {
    T* to = static_cast<T*>(region.data_ptr());
    const T* from = static_cast<const T*>(source.data_ptr());
    auto walk = [&](auto& self, int d, int64_t at) -> void {
      if (d == m.rank()) {
        to[at] = static_cast<T>(to[at] + *from++);
        return;
      }
      for (int64_t i = 0; i < m.sizes[d]; ++i) self(self, d + 1, at + i * m.strides[d]);
    };
    auto clear = [&](auto& self, int d, int64_t at) -> void {
      if (d == m.rank()) {
        to[at] = T{};
        return;
      }
      for (int64_t i = 0; i < m.sizes[d]; ++i) self(self, d + 1, at + i * m.strides[d]);
    };
    clear(clear, 0, 0);
    walk(walk, 0, 0);
  });
}
void AsStridedScatter::vjp(VjpContext& c) {
  const Params& p = c.params<AsStridedScatter>();
  Tensor g = c.grad().contiguous();
  if (c.needs(0)) {
    Tensor blank = zeros(p.sizes, {g.dtype(), g.device()});
    c.grad_in(0) = as_strided_scatter(g, blank, p.sizes, p.strides, p.offset);
  }
  if (c.needs(1)) c.grad_in(1) = as_strided(g, p.sizes, p.strides, p.offset);
}

// --- functions -------------------------------------------------------------------------------------------------

Tensor view(const Tensor& x, IntList sizes, Site site) { return call_view<View>(site, {Shape(sizes)}, x); }

Tensor reshape(const Tensor& x, IntList sizes, Site site) {
  detail::check_defined(x, "reshape");
  Shape full = complete_sizes(x.meta(), Shape(sizes), "reshape");
  Shape strides;
  if (View::strides_for(x.meta(), full, strides)) return call_view<View>(site, {full}, x);
  return call_view<View>(site, {full}, x.contiguous(MemoryFormat::contiguous, site));
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end, Site site) {
  detail::check_defined(x, "flatten");
  int64_t a = normalize_dim(start, x.dim(), "flatten"), b = normalize_dim(end, x.dim(), "flatten");
  DEFT_CHECK(a <= b, ShapeError, "flatten: start dimension {} comes after end dimension {}", start, end);
  if (x.dim() == 0) return reshape(x, {1}, site);
  Shape sizes;
  for (int i = 0; i < x.dim(); ++i) {
    if (i > a && i <= b)
      sizes[sizes.size() - 1] *= x.sizes()[i];
    else
      sizes.push_back(x.sizes()[i]);
  }
  return reshape(x, sizes, site);
}

Tensor permute(const Tensor& x, IntList dims, Site site) { return call_view<Permute>(site, {Shape(dims)}, x); }

Tensor transpose(const Tensor& x, int64_t a, int64_t b, Site site) {
  detail::check_defined(x, "transpose");
  int64_t i = normalize_dim(a, x.dim(), "transpose"), j = normalize_dim(b, x.dim(), "transpose");
  Shape dims;
  for (int d = 0; d < x.dim(); ++d) dims.push_back(d == i ? j : d == j ? i : d);
  return call_view<Permute>(site, {dims}, x);
}

Tensor movedim(const Tensor& x, int64_t from, int64_t to, Site site) {
  detail::check_defined(x, "movedim");
  int64_t i = normalize_dim(from, x.dim(), "movedim"), j = normalize_dim(to, x.dim(), "movedim");
  Shape dims;
  for (int d = 0; d < x.dim(); ++d)
    if (d != i) dims.push_back(d);
  if (x.dim()) dims.insert(static_cast<int>(j), i);
  return call_view<Permute>(site, {dims}, x);
}

Tensor expand(const Tensor& x, IntList sizes, Site site) { return call_view<Expand>(site, {Shape(sizes)}, x); }
Tensor broadcast_to(const Tensor& x, IntList sizes, Site site) { return expand(x, sizes, site); }

Tensor squeeze(const Tensor& x, Site site) { return call_view<Squeeze>(site, {~0u}, x); }
Tensor squeeze(const Tensor& x, int64_t dim, Site site) {
  detail::check_defined(x, "squeeze");
  return call_view<Squeeze>(site, {1u << normalize_dim(dim, x.dim(), "squeeze")}, x);
}
Tensor unsqueeze(const Tensor& x, int64_t dim, Site site) { return call_view<Unsqueeze>(site, {dim}, x); }
Tensor select(const Tensor& x, int64_t dim, int64_t index, Site site) {
  return call_view<Select>(site, {dim, index}, x);
}

Tensor slice(const Tensor& x, int64_t dim, Slice r, Site site) {
  return call_view<SliceOp>(site, {dim, r.start.value_or(0), r.stop.value_or(INT64_MAX), r.step}, x);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Site site) {
  detail::check_defined(x, "narrow");
  DEFT_CHECK(x.dim() > 0, ShapeError, "narrow: a 0-d tensor has no dimension to narrow");
  int64_t n = x.size(dim);
  DEFT_CHECK(start >= -n && start <= n && length >= 0 && length <= n - (start < 0 ? start + n : start), IndexError,
             "narrow: start {} and length {} do not fit into dimension {} of shape {}", start, length, dim,
             to_string(x.sizes()));
  int64_t first = start < 0 ? start + n : start;
  return call_view<SliceOp>(site, {dim, first, first + length, 1}, x);
}

Tensor as_strided(const Tensor& x, IntList sizes, IntList strides, int64_t offset, Site site) {
  return call_view<AsStrided>(site, {Shape(sizes), Shape(strides), offset}, x);
}
Tensor as_strided_scatter(const Tensor& base, const Tensor& source, IntList sizes, IntList strides, int64_t offset,
                          Site site) {
  return call<AsStridedScatter>(site, {Shape(sizes), Shape(strides), offset}, base, source);
}
Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2, Site site) {
  return call_view<Diagonal>(site, {offset, dim1, dim2}, x);
}

Tensor expand_as(const Tensor& x, const Tensor& other, Site site) {
  detail::check_defined(other, "expand_as");
  return expand(x, other.sizes(), site);
}
Tensor view_as(const Tensor& x, const Tensor& other, Site site) {
  detail::check_defined(other, "view_as");
  return view(x, other.sizes(), site);
}
Tensor unflatten(const Tensor& x, int64_t dim, IntList sizes, Site site) {
  detail::check_defined(x, "unflatten");
  DEFT_CHECK(x.dim() > 0 && !sizes.empty(), ShapeError,
             "unflatten: needs a dimension to split and sizes for it, found shape {} and {} sizes",
             to_string(x.sizes()), sizes.size());
  int at = static_cast<int>(normalize_dim(dim, x.dim(), "unflatten"));
  // The sizes alone, -1 among them: by the rules of view() on a stand-in of that one dim.
  Meta one = Meta::dense(Shape{x.sizes()[at]}, x.dtype(), x.device());
  View::Params p{Shape(sizes)};
  View::view(one, p);
  Shape whole;
  for (int i = 0; i < at; ++i) whole.push_back(x.sizes()[i]);
  for (int64_t n : p.sizes) whole.push_back(n);
  for (int i = at + 1; i < x.dim(); ++i) whole.push_back(x.sizes()[i]);
  return view(x, whole, site);
}

std::vector<Tensor> split(const Tensor& x, IntList sizes, int64_t dim, Site site) {
  detail::check_defined(x, "split");
  DEFT_CHECK(x.dim() > 0, ShapeError, "split: a 0-d tensor cannot be split");
  Wide total = 0;
  for (int64_t s : sizes) {
    DEFT_CHECK(s >= 0, ValueError, "split: a size must not be negative, found {}", s);
    total += s;
  }
  DEFT_CHECK(total == x.size(dim), ShapeError, "split: sizes add up to {}, dimension {} of shape {} has {}", total, dim,
             to_string(x.sizes()), x.size(dim));
  std::vector<Tensor> parts;
  int64_t at = 0;
  for (int64_t s : sizes) {
    parts.push_back(call_view<SliceOp>(site, {dim, at, at + s, 1}, x, ViewOrigin::multi_output));
    at += s;
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim, Site site) {
  detail::check_defined(x, "split");
  DEFT_CHECK(size > 0, ValueError, "split: the size must be positive, found {}", size);
  DEFT_CHECK(x.dim() > 0, ShapeError, "split: a 0-d tensor cannot be split");
  int64_t n = x.size(dim);
  std::vector<int64_t> sizes(static_cast<size_t>(n / size), size);
  if (n % size || n == 0) sizes.push_back(n % size);
  return split(x, IntList(sizes), dim, site);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim, Site site) {
  detail::check_defined(x, "chunk");
  DEFT_CHECK(chunks > 0, ValueError, "chunk: the number of chunks must be positive, found {}", chunks);
  DEFT_CHECK(x.dim() > 0, ShapeError, "chunk: a 0-d tensor cannot be split");
  int64_t n = x.size(dim);
  if (n == 0) {  // as many empty ones as were asked for
    constexpr int64_t kMost = 1 << 16;
    DEFT_CHECK(chunks <= kMost, ValueError, "chunk: {} chunks of an empty dimension are more than {}; ask for fewer",
               chunks, kMost);
    return split(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), dim, site);
  }
  return split(x, (n - 1) / chunks + 1, dim, site);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim, Site site) {
  detail::check_defined(x, "unbind");
  DEFT_CHECK(x.dim() > 0, ShapeError, "unbind: a 0-d tensor has no dimension to unbind");
  std::vector<Tensor> parts;
  for (int64_t i = 0, n = x.size(dim); i < n; ++i)
    parts.push_back(call_view<Select>(site, {dim, i}, x, ViewOrigin::multi_output));
  return parts;
}

}  // namespace deft
