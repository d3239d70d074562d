#include "ops/shape_ops.h"

#include <algorithm>

#include "base/checked.h"
#include "core/describe.h"
#include "ops/dense.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "runtime/context.h"
#include "runtime/parallel.h"

namespace deft {

// --- cat, stack ------------------------------------------------------------------------------------------------

namespace {
// torch.cat skips 1-d tensors of size 0 whatever the other ranks.
bool is_nothing(const Meta& m) { return m.rank() == 1 && m.numel == 0; }
}  // namespace

void Cat::for_each_part(KernelCall& c, FunctionRef<void(const Tensor&, const Tensor&)> f) {
  int d = static_cast<int>(c.params<Cat>().dim);
  Tensor& out = c.out();
  int64_t at = 0;
  for (int i = 0; i < c.input_count; ++i) {
    const Tensor& x = c.in(i);
    if (x.numel() == 0) continue;
    Meta part = out.meta();
    part.sizes = x.sizes();
    part.numel = x.numel();
    part.set_strides(out.strides());
    f(x, Tensor(make_alias(*out.impl(), part, at * out.strides()[d])));
    at += x.sizes()[d];
  }
}

Meta Cat::infer(std::span<const Meta* const> inputs, Params& p) {
  DEFT_CHECK(!inputs.empty(), ValueError, "cat: needs at least one tensor");
  const Meta* first = nullptr;
  DType type = inputs[0]->dtype;
  for (const Meta* m : inputs) {
    DEFT_CHECK(m->defined, ValueError, "cat: one of the tensors is undefined");
    type = promote(type, m->dtype);
    if (!first && !is_nothing(*m)) first = m;
  }
  if (!first) first = inputs[0];
  DEFT_CHECK(first->rank() > 0, ShapeError, "cat: 0-d tensors cannot be joined; use stack()");
  p.dim = normalize_dim(p.dim, first->rank(), "cat");
  Shape sizes = first->sizes;
  int d = static_cast<int>(p.dim);
  sizes[d] = 0;
  for (const Meta* m : inputs) {
    if (is_nothing(*m) && first->rank() != 1) continue;
    Shape other = m->sizes;
    DEFT_CHECK(other.size() == sizes.size(), ShapeError, "cat: shapes {} and {} have different ranks",
               to_string(first->sizes), to_string(other));
    sizes[d] = checked_int64(Wide(sizes[d]) + other[d], "cat", "the sum of the sizes");
    other[d] = sizes[d];
    DEFT_CHECK(other == sizes, ShapeError, "cat: shapes {} and {} differ outside dimension {}", to_string(first->sizes),
               to_string(m->sizes), d);
  }
  Meta out = Meta::dense(sizes, type, first->device);
  if (first->rank() >= 3 && !first->contiguous && first->is_channels_last())
    out.set_strides(channels_last_strides(sizes));
  return out;
}

void Cat::cpu(KernelCall& c) {
  for_each_part(c, [](const Tensor& x, const Tensor& part) { copy_values(x, part); });
}

void Cat::vjp(VjpContext& c) {
  int64_t dim = c.params<Cat>().dim, at = 0;
  for (int i = 0; i < c.input_count(); ++i) {
    const Shape& sizes = c.input_sizes(i);
    if (sizes.size() <= dim || c.grad().dim() != sizes.size()) {  // an empty tensor that was skipped
      c.set_zeros(i);
      continue;
    }
    int64_t n = sizes[static_cast<int>(dim)];
    if (c.needs(i)) c.grad_in(i) = narrow(c.grad(), dim, at, n);
    at += n;
  }
}

Tensor cat(std::span<const Tensor> tensors, int64_t dim, Site site) { return call_list<Cat>(site, {dim}, tensors); }
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim, Site site) {
  return cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim, site);
}

Tensor stack(std::span<const Tensor> tensors, int64_t dim, Site site) {
  SiteScope scope(site);
  DEFT_CHECK(!tensors.empty(), ValueError, "stack: needs at least one tensor");
  detail::check_defined(tensors[0], "stack");
  dim = normalize_dim(dim, tensors[0].dim() + 1, "stack");
  std::vector<Tensor> rows;
  for (const Tensor& t : tensors) {
    detail::check_defined(t, "stack");
    DEFT_CHECK(t.sizes() == tensors[0].sizes(), ShapeError, "stack: shapes {} and {} differ; all must be the same",
               to_string(tensors[0].sizes()), to_string(t.sizes()));
    rows.push_back(unsqueeze(t, dim));
  }
  return cat(rows, dim);
}
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim, Site site) {
  return stack(std::span<const Tensor>(tensors.begin(), tensors.size()), dim, site);
}

// --- repeat, flip, roll ----------------------------------------------------------------------------------------

Tensor repeat(const Tensor& x, IntList counts, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "repeat");
  int rank = static_cast<int>(counts.size());
  DEFT_CHECK(rank >= x.dim(), ShapeError, "repeat: {} counts given for a tensor of shape {}; give one per dimension",
             rank, to_string(x.sizes()));
  DEFT_CHECK(2 * rank <= kMaxDims, ShapeError, "repeat: at most {} dimensions, found {}", kMaxDims / 2, rank);
  // [a, b] -> [1, a, 1, b] -> [n, a, m, b] -> [n a, m b]: one copy in the last step.
  Shape split, wide, out;
  for (int i = 0; i < rank; ++i) {
    int64_t n = counts[static_cast<size_t>(i)];
    DEFT_CHECK(n >= 0, ValueError, "repeat: a count must not be negative, found {}", n);
    int d = i - (rank - x.dim());
    int64_t size = d < 0 ? 1 : x.sizes()[d];
    split.push_back(1);
    split.push_back(size);
    wide.push_back(n);
    wide.push_back(size);
    out.push_back(n);
  }
  Tensor copies = x.reshape(split).expand(wide).clone(MemoryFormat::contiguous);  // checks the element count
  for (int i = 0; i < rank; ++i) out[i] *= split[2 * i + 1];
  return copies.view(out);
}

Tensor repeat_interleave(const Tensor& x, int64_t count, int64_t dim, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "repeat_interleave");
  DEFT_CHECK(count >= 0, ValueError, "repeat_interleave: the count must not be negative, found {}", count);
  DEFT_CHECK(x.dim() > 0, ShapeError, "repeat_interleave: a 0-d tensor has no dimension to repeat");
  int64_t d = normalize_dim(dim, x.dim(), "repeat_interleave");
  Shape wide = x.sizes(), out = x.sizes();
  wide.insert(static_cast<int>(d) + 1, count);
  Tensor copies = unsqueeze(x, d + 1).expand(wide).clone(MemoryFormat::contiguous);  // checks the element count
  out[static_cast<int>(d)] *= count;
  return copies.view(out);
}

Meta Flip::infer(const Meta& x, const Params&) { return Meta::dense(x.sizes, x.dtype, x.device); }
void Flip::run(KernelCall& c) {
  const Tensor& x = c.in();
  if (x.numel() == 0) return;
  uint32_t dims = c.params<Flip>().dims;
  Meta m = x.meta();
  Shape strides = x.strides();
  int64_t last = 0;  // where the first element of the result lies
  for (int i = 0; i < x.dim(); ++i) {
    if (!(dims >> i & 1)) continue;
    last += (x.sizes()[i] - 1) * strides[i];
    strides[i] = -strides[i];
  }
  m.set_strides(strides);
  copy_values(Tensor(make_alias(*x.impl(), m, last)), c.out());
}
void Flip::vjp(VjpContext& c) { c.grad_in(0) = call<Flip>(c.node.site, c.params<Flip>(), c.grad()); }

Tensor flip(const Tensor& x, IntList dims, Site site) {
  detail::check_defined(x, "flip");
  uint32_t bits = 0;
  for (int64_t d : dims) {
    uint32_t bit = 1u << normalize_dim(d, x.dim(), "flip");
    DEFT_CHECK(!(bits & bit), IndexError, "flip: dimension {} is named twice", d);
    bits |= bit;
  }
  return call<Flip>(site, {x.dim() ? bits : 0}, x);
}

Tensor roll(const Tensor& x, int64_t shift, int64_t dim, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "roll");
  DEFT_CHECK(x.dim() > 0, ShapeError, "roll: a 0-d tensor has no dimension to roll");
  dim = normalize_dim(dim, x.dim(), "roll");
  int64_t n = x.sizes()[static_cast<int>(dim)];
  if (n == 0) return x.clone();
  int64_t start = (n - shift % n) % n;
  return cat({narrow(x, dim, start, n - start), narrow(x, dim, 0, start)}, dim);
}

// --- tril, triu, one_hot ---------------------------------------------------------------------------------------

Meta Triangle::infer(const Meta& x, const Params& p) {
  DEFT_CHECK(x.rank() >= 2, ShapeError, "{}: needs at least 2 dimensions, found shape {}", p.upper ? "triu" : "tril",
             to_string(x.sizes));
  return Meta::dense(x.sizes, x.dtype, x.device);
}
void Triangle::cpu(KernelCall& c) {
  const Params& p = c.params<Triangle>();
  Tensor x = as_dense(c.in());
  int64_t rows = x.size(-2), cols = x.size(-1);
  int64_t diagonal = std::clamp(p.diagonal, -rows, cols);  // further away changes nothing
  if (x.numel() == 0) return;
  dispatch_bits(x.dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(x.data_ptr());
    T* to = static_cast<T*>(c.out().data_ptr());
    parallel_for(0, x.numel() / cols, std::max<int64_t>(1, 32768 / cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        // First column of the upper part: cut = row + diagonal, clipped.
        int64_t row = r % rows;
        int64_t cut = std::clamp<int64_t>(p.upper ? row + diagonal : row + diagonal + 1, 0, cols);
        const T* a = from + r * cols;
        T* b = to + r * cols;
        std::fill(b, b + cols, T{});
        if (p.upper)
          std::copy(a + cut, a + cols, b + cut);
        else
          std::copy(a, a + cut, b);
      }
    });
  });
}
void Triangle::vjp(VjpContext& c) { c.grad_in(0) = call<Triangle>(c.node.site, c.params<Triangle>(), c.grad()); }

Tensor tril(const Tensor& x, int64_t diagonal, Site site) { return call<Triangle>(site, {diagonal, false}, x); }
Tensor triu(const Tensor& x, int64_t diagonal, Site site) { return call<Triangle>(site, {diagonal, true}, x); }

Meta OneHot::infer(const Meta& index, const Params& p) {
  DEFT_CHECK(p.classes > 0, ValueError, "one_hot: the number of classes must be positive, found {}", p.classes);
  Shape sizes = index.sizes;
  sizes.push_back(p.classes);
  return Meta::dense(sizes, DType::i64, index.device);
}
void OneHot::cpu(KernelCall& c) {
  int64_t classes = c.params<OneHot>().classes;
  Tensor index = as_dense(c.in());
  const int64_t* from = index.data<const int64_t>();
  for (int64_t i = 0; i < index.numel(); ++i)
    DEFT_CHECK(from[i] >= 0 && from[i] < classes, IndexError, "one_hot: class {} at element {} is outside 0 to {}",
               from[i], i, classes - 1);
  int64_t* to = c.out().data<int64_t>();
  std::fill(to, to + c.out().numel(), 0);
  for (int64_t i = 0; i < index.numel(); ++i) to[i * classes + from[i]] = 1;
}

Tensor one_hot(const Tensor& index, int64_t classes, Site site) {
  detail::check_defined(index, "one_hot");
  if (classes == -1) {
    DEFT_CHECK(index.numel() > 0, ValueError, "one_hot: the number of classes of an empty tensor is unknown; pass it");
    DEFT_CHECK(index.dtype() == DType::i64, DTypeError, "one_hot: class numbers are i64, found {}",
               name_of(index.dtype()));
    const int64_t last = max(index, site).item<int64_t>(site);
    DEFT_CHECK(last >= 0, IndexError, "one_hot: class numbers must not be negative");
    DEFT_CHECK(last < INT64_MAX, IndexError, "one_hot: the class number {} is too large", last);
    classes = last + 1;
  }
  return call<OneHot>(site, {classes}, index);
}

}  // namespace deft
