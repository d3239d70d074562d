#include "ops/gather_scatter.h"

#include "base/check.h"
#include "core/describe.h"
#include "core/graph_stats.h"
#include "kernels/cpu/index/index.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/index_common.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/strided.h"
#include "ops/ternary.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {

namespace {

void check_index(const char* op, const Meta& index) {
  DEFT_CHECK(index.defined, ValueError, "{}: the index is an undefined tensor", op);
  DEFT_CHECK(index.dtype == DType::i64, DTypeError, "{}: the index must be i64, found {}; convert it with to()", op,
             describe(index));
}
void check_mask(const char* op, const Tensor& mask) {
  detail::check_defined(mask, op);
  DEFT_CHECK(mask.dtype() == DType::boolean, DTypeError,
             "{}: the mask must be bool, found {}; compare or convert it first", op, describe(mask.meta()));
}

}  // namespace

namespace indexing {

Tensor at_least_1d(const Tensor& t) {
  if (t.dim() > 0) return t;
  Meta m = t.meta();
  m.sizes = Shape{1};
  m.strides = Shape{1};
  return Tensor(make_alias(*t.impl(), m, 0));
}

void start_from(const Tensor& x, const Tensor& out) {
  if (x.data_ptr() != out.data_ptr()) copy_values(x, out);
}

Tensor blank_gradient(const VjpContext& c) {
  return zeros({}, {c.grad().dtype(), c.input_device(0)}).expand(c.input_sizes(0));
}

Tensor apart_from(const Tensor& input, const Tensor& out) {
  if (input.data_ptr() != out.data_ptr() || input.numel() == 0) return input;
  Tensor copy(make_tensor(Meta::dense(input.sizes(), input.dtype(), input.device())));
  copy_values(input, copy);
  return copy;
}

const char* name_of(ScatterReduce r) {
  return r == ScatterReduce::assign ? "scatter" : r == ScatterReduce::add ? "scatter_add" : "scatter_reduce";
}

}  // namespace indexing

using indexing::apart_from;
using indexing::at_least_1d;
using indexing::blank_gradient;
using indexing::name_of;
using indexing::start_from;

// --- gather, scatter -------------------------------------------------------------------------------------------

Meta Gather::infer(const Meta& x, const Meta& index, Params& p) {
  check_index("gather", index);
  p.dim = normalize_dim(p.dim, x.rank(), "gather");
  DEFT_CHECK(index.rank() == x.rank() || (x.rank() <= 1 && index.rank() <= 1), ShapeError,
             "gather: the index has shape {}, expected rank {} like the input {}", to_string(index.sizes), x.rank(),
             to_string(x.sizes));
  for (int i = 0; i < index.rank() && i < x.rank(); ++i)
    DEFT_CHECK(i == p.dim || index.sizes[i] <= x.sizes[i], ShapeError,
               "gather: the index {} is larger than the input {} at dimension {}", to_string(index.sizes),
               to_string(x.sizes), i);
  return Meta::dense(index.sizes, x.dtype, x.device);
}
void Gather::cpu(KernelCall& c) {
  Tensor x = at_least_1d(c.in(0)), index = at_least_1d(c.in(1)), out = at_least_1d(c.out());
  cpu::gather(x.dtype(), x.data_ptr(), strided(x), static_cast<int>(c.params<Gather>().dim),
              index.data<const int64_t>(), strided(index), out.data_ptr(), strided(out));
}
void Gather::vjp(VjpContext& c) {
  c.grad_in(0) = scatter_add(blank_gradient(c), c.params<Gather>().dim, c.saved_input(1), c.grad());
}

namespace {

Meta infer_scatter(const char* op, const Meta& x, const Meta& index, const Meta& source, Scatter::Params& p) {
  check_index(op, index);
  DEFT_CHECK(source.defined, ValueError, "{}: the source is an undefined tensor", op);
  DEFT_CHECK(source.dtype == x.dtype, DTypeError, "{}: the source is {}, the tensor {}; they must have one type", op,
             name_of(source.dtype), name_of(x.dtype));
  p.dim = normalize_dim(p.dim, x.rank(), op);
  bool ranks =
      std::max(index.rank(), 1) == std::max(x.rank(), 1) && std::max(source.rank(), 1) == std::max(x.rank(), 1);
  DEFT_CHECK(ranks, ShapeError, "{}: tensor {}, index {} and source {} must have the same rank", op, to_string(x.sizes),
             to_string(index.sizes), to_string(source.sizes));
  for (int i = 0; i < index.rank() && i < x.rank(); ++i) {
    DEFT_CHECK(i == p.dim || index.sizes[i] <= x.sizes[i], ShapeError,
               "{}: the index {} is larger than the tensor {} at dimension {}", op, to_string(index.sizes),
               to_string(x.sizes), i);
    DEFT_CHECK(source.rank() <= i || index.sizes[i] <= source.sizes[i], ShapeError,
               "{}: the index {} is larger than the source {} at dimension {}", op, to_string(index.sizes),
               to_string(source.sizes), i);
  }
  return Meta::dense(x.sizes, x.dtype, x.device);
}

void run_scatter(KernelCall& c, const Scatter::Params& p) {
  constexpr cpu::Scatter kinds[] = {cpu::Scatter::assign, cpu::Scatter::add, cpu::Scatter::mul, cpu::Scatter::min,
                                    cpu::Scatter::max};
  Tensor index = at_least_1d(apart_from(c.in(1), c.out())), source = at_least_1d(apart_from(c.in(2), c.out()));
  Tensor out = at_least_1d(c.out());
  start_from(c.in(0), c.out());
  cpu::scatter(name_of(p.reduce), out.dtype(), kinds[static_cast<int>(p.reduce)], out.data_ptr(), strided(out),
               static_cast<int>(p.dim), index.data<const int64_t>(), strided(index), source.data_ptr(),
               strided(source));
}

// The gradient of the source is read back at its indices; positions of a larger source that took no part get zero.
Tensor source_gradient(const Tensor& g, int64_t dim, const Tensor& index, const Shape& source_sizes) {
  Tensor read = gather(g, dim, index);
  if (read.numel() == checked_numel(source_sizes, g.dtype())) return read.reshape(source_sizes);
  Tensor whole = zeros(source_sizes, {g.dtype(), g.device()});
  return as_strided_scatter(whole, read, read.sizes(), whole.strides(), 0);
}

}  // namespace

Meta ScatterAdd::infer(const Meta& x, const Meta& index, const Meta& source, Params& p) {
  return infer_scatter(name_of(p.reduce), x, index, source, p);
}
void ScatterAdd::cpu(KernelCall& c) { run_scatter(c, c.params<ScatterAdd>()); }
void ScatterAdd::vjp(VjpContext& c) {
  const Params& p = c.params<ScatterAdd>();
  Tensor index = c.saved_input(1);
  if (c.needs(0)) {
    c.grad_in(0) = c.grad();
    if (p.reduce == ScatterReduce::assign)
      c.grad_in(0) = scatter(c.grad(), p.dim, index, zeros(index.sizes(), {c.grad().dtype(), c.grad().device()}));
  }
  if (c.needs(2)) c.grad_in(2) = source_gradient(c.grad(), p.dim, index, c.input_sizes(2));
}

Meta Scatter::infer(const Meta& x, const Meta& index, const Meta& source, Params& p) {
  return infer_scatter(name_of(p.reduce), x, index, source, p);
}
void Scatter::cpu(KernelCall& c) { run_scatter(c, c.params<Scatter>()); }

namespace {

// Ties share the gradient equally, the old value included.
void extreme_vjp(VjpContext& c, int64_t dim, const Tensor& index) {
  Tensor x = c.saved_input(0), source = c.saved_input(2), y = c.saved_output();
  DType t = c.grad().dtype();
  Tensor x_wins = eq(x, y).to(t), source_wins = eq(source, gather(y, dim, index)).to(t);
  Tensor share = c.grad() / scatter_add(x_wins, dim, index, source_wins);
  if (c.needs(0)) c.grad_in(0) = share * x_wins;
  if (c.needs(2)) c.grad_in(2) = gather(share, dim, index) * source_wins;
}

// Products without one factor, exact also where factors are zero: the other zeros come in as their sum where there is
// one and as nothing where there are more, which keeps second derivatives right.
void product_vjp(VjpContext& c, int64_t dim, const Tensor& index) {
  Tensor x = c.saved_input(0), source = c.saved_input(2);
  Tensor one = ones_like(x);
  Tensor product = scatter_reduce(one, dim, index, source, ScatterReduce::mul);
  if (c.needs(0)) c.grad_in(0) = c.grad() * product;
  if (!c.needs(2)) return;
  Tensor is_zero = eq(source, 0), nonzero = masked_fill(source, is_zero, 1);
  auto sum_of_others = [&](const Tensor& t) {
    return gather(scatter_add(zeros(x.sizes(), {t.dtype(), t.device()}), dim, index, t), dim, index) - t;
  };
  Tensor others = gather(scatter_reduce(one, dim, index, nonzero, ScatterReduce::mul), dim, index) / nonzero;
  Tensor zero_count = sum_of_others(is_zero.to(DType::i64));
  Tensor other_zeros = where(eq(zero_count, 1), sum_of_others(masked_fill(source, logical_not(is_zero), 0)), 0);
  c.grad_in(2) = gather(c.grad() * x, dim, index) * others * masked_fill(other_zeros, eq(zero_count, 0), 1);
}

}  // namespace

void Scatter::vjp(VjpContext& c) {
  const Params& p = c.params<Scatter>();
  Tensor index = c.saved_input(1);
  if (p.reduce == ScatterReduce::mul) return product_vjp(c, p.dim, index);
  extreme_vjp(c, p.dim, index);
}

// --- index_select, index_add -----------------------------------------------------------------------------------

Meta IndexSelect::infer(const Meta& x, const Meta& index, Params& p) {
  check_index("index_select", index);
  DEFT_CHECK(index.rank() <= 1, ShapeError, "index_select: the index must be 1-d, found shape {}",
             to_string(index.sizes));
  p.dim = normalize_dim(p.dim, x.rank(), "index_select");
  Shape sizes = x.sizes;
  if (x.rank() > 0) sizes[static_cast<int>(p.dim)] = index.numel;
  DEFT_CHECK(x.rank() > 0 || index.numel == 1, ShapeError, "index_select: a 0-d tensor takes one index, found {}",
             index.numel);
  return Meta::dense(sizes, x.dtype, x.device);
}
void IndexSelect::cpu(KernelCall& c) {
  Tensor x = at_least_1d(c.in(0)), index = at_least_1d(c.in(1)), out = at_least_1d(c.out());
  cpu::index_select(x.dtype(), x.data_ptr(), strided(x), static_cast<int>(c.params<IndexSelect>().dim),
                    index.data<const int64_t>(), index.strides()[0], false, out.data_ptr(), strided(out));
}
void IndexSelect::vjp(VjpContext& c) {
  c.grad_in(0) = index_add(blank_gradient(c), c.params<IndexSelect>().dim, c.saved_input(1), c.grad());
}

Meta IndexAdd::infer(const Meta& x, const Meta& index, const Meta& source, Params& p) {
  check_index("index_add", index);
  DEFT_CHECK(source.defined, ValueError, "index_add: the source is an undefined tensor");
  DEFT_CHECK(source.dtype == x.dtype, DTypeError, "index_add: the source is {}, the tensor {}; they must have one type",
             name_of(source.dtype), name_of(x.dtype));
  DEFT_CHECK(index.rank() <= 1, ShapeError, "index_add: the index must be 1-d, found shape {}", to_string(index.sizes));
  DEFT_CHECK(x.rank() > 0 || index.numel == 1, ShapeError, "index_add: a 0-d tensor takes one index, found {}",
             index.numel);
  p.dim = normalize_dim(p.dim, x.rank(), "index_add");
  Shape want = x.sizes;
  if (x.rank() > 0) want[static_cast<int>(p.dim)] = index.numel;
  DEFT_CHECK(source.sizes == want, ShapeError, "index_add: the source has shape {}, expected {}",
             to_string(source.sizes), to_string(want));
  return Meta::dense(x.sizes, x.dtype, x.device);
}
void IndexAdd::cpu(KernelCall& c) {
  Tensor index = at_least_1d(apart_from(c.in(1), c.out())), source = at_least_1d(apart_from(c.in(2), c.out()));
  Tensor out = at_least_1d(c.out());
  int dim = static_cast<int>(c.params<IndexAdd>().dim);
  start_from(c.in(0), c.out());
  cpu::index_add(out.dtype(), out.data_ptr(), strided(out), dim, index.data<const int64_t>(), index.strides()[0], false,
                 source.data_ptr(), strided(source));
}
void IndexAdd::vjp(VjpContext& c) {
  if (c.needs(0)) c.grad_in(0) = c.grad();
  if (c.needs(2))
    c.grad_in(2) = index_select(c.grad(), c.params<IndexAdd>().dim, c.saved_input(1)).reshape(c.input_sizes(2));
}

// --- embedding -------------------------------------------------------------------------------------------------

Meta Embedding::infer(const Meta& table, const Meta& index, const Params&) {
  check_index("embedding", index);
  DEFT_CHECK(table.rank() == 2, ShapeError, "embedding: the table must be [rows, width], found shape {}",
             to_string(table.sizes));
  Shape sizes = index.sizes;
  sizes.push_back(table.sizes[1]);
  return Meta::dense(sizes, table.dtype, table.device);
}
void Embedding::cpu(KernelCall& c) {
  Tensor table = c.in(0).strides()[1] == 1 || c.in(0).sizes()[1] <= 1 ? c.in(0) : as_dense(c.in(0));
  Tensor index = as_dense(c.in(1));
  cpu::take_rows(table.dtype(), table.data_ptr(), table.sizes()[0], table.strides()[0], table.sizes()[1],
                 index.data<const int64_t>(), index.numel(), c.out().data_ptr());
}
void Embedding::vjp(VjpContext& c) {
  c.grad_in(0) = call<EmbeddingBackward>(c.node.site, {c.input_sizes(0)[0], c.params<Embedding>().padding_index},
                                         c.grad(), c.saved_input(1));
}

Meta EmbeddingBackward::infer(const Meta& grad, const Meta&, const Params& p) {
  return Meta::dense(Shape{p.rows, grad.sizes.back()}, grad.dtype, grad.device);
}
void EmbeddingBackward::cpu(KernelCall& c) {
  const Params& p = c.params<EmbeddingBackward>();
  Tensor grad = as_dense(c.in(0)), index = as_dense(c.in(1));
  cpu::add_rows(grad.dtype(), grad.data_ptr(), index.numel(), c.out().sizes()[1], index.data<const int64_t>(),
                p.padding_index, c.out().data_ptr(), p.rows, false);
}
void EmbeddingBackward::vjp(VjpContext& c) {
  const Params& p = c.params<EmbeddingBackward>();
  Tensor index = c.saved_input(1);
  Tensor g = embedding(index, c.grad());
  if (p.padding_index >= 0) g = masked_fill(g, unsqueeze(eq(index, p.padding_index), -1), 0);
  c.grad_in(0) = g;
}

// --- masks -----------------------------------------------------------------------------------------------------

void MaskedSelect::cpu(KernelCall& c) {
  const Tensor &x = c.in(0), &mask = c.in(1);
  int64_t n = cpu::count_nonzero(DType::boolean, mask.data_ptr(), strided(mask));
  c.out() = Tensor(make_tensor(Meta::dense(Shape{n}, x.dtype(), x.device())));
  if (n)
    cpu::masked_select(x.dtype(), x.data_ptr(), strided(x), mask.data<const bool>(), strided(mask), c.out().data_ptr());
}
void MaskedSelect::vjp(VjpContext& c) {
  c.grad_in(0) = call<MaskedUnpack>(c.node.site, {}, c.grad(), c.saved_input(1));
}

Meta MaskedUnpack::infer(const Meta& values, const Meta& mask, NoParams&) {
  return Meta::dense(mask.sizes, values.dtype, values.device);
}
void MaskedUnpack::cpu(KernelCall& c) {
  Tensor values = as_dense(c.in(0));
  Tensor& out = c.out();
  __builtin_memset(out.data_ptr(), 0, static_cast<size_t>(out.numel()) * out.element_size());
  const Tensor& mask = c.in(1);
  cpu::masked_scatter(values.dtype(), values.data_ptr(), mask.data<const bool>(), strided(mask), out.data_ptr(),
                      strided(out));
}
void MaskedUnpack::vjp(VjpContext& c) { c.grad_in(0) = masked_select(c.grad(), c.saved_input(1)); }

void Nonzero::cpu(KernelCall& c) {
  const Tensor& x = c.in();
  int64_t n = cpu::count_nonzero(x.dtype(), x.data_ptr(), strided(x));
  c.out() = Tensor(make_tensor(Meta::dense(Shape{n, x.dim()}, DType::i64, x.device())));
  if (n && x.dim()) cpu::nonzero(x.dtype(), x.data_ptr(), strided(x), c.out().data<int64_t>());
}

// --- functions -------------------------------------------------------------------------------------------------

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Site site) {
  return call<Gather>(site, {dim}, x, index);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Site site) {
  return call<ScatterAdd>(site, {dim, ScatterReduce::assign}, x, index, source);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value, Site site) {
  detail::check_defined(x, "scatter");
  detail::check_defined(index, "scatter");
  return scatter(x, dim, index, full(index.sizes(), value, {x.dtype(), x.device()}, site), site);
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Site site) {
  return call<ScatterAdd>(site, {dim, ScatterReduce::add}, x, index, source);
}
namespace {

// x with what any value that is written may replace.
Tensor without_targets(const Tensor& x, int64_t dim, const Tensor& index, ScatterReduce reduce, const Site& site) {
  bool largest = reduce == ScatterReduce::amax, smallest = reduce == ScatterReduce::amin;
  Scalar start = reduce == ScatterReduce::mul;
  if (is_floating(x.dtype()) && (largest || smallest)) {
    start = largest ? -INFINITY : INFINITY;
  } else if (largest || smallest) {
    dispatch_all(x.dtype(), [&]<class T>() {
      using Limits = std::numeric_limits<T>;
      start = static_cast<int64_t>(largest ? Limits::lowest() : Limits::max());
    });
  }
  return scatter(x, dim, index, start, site);
}

Tensor scatter_mean(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, bool include_self,
                    const Site& site) {
  Tensor sums = scatter_add(x, dim, index, source, site);
  TensorOptions counted(DType::i64, x.device());
  Tensor counts = ones(x.sizes(), counted);
  if (!include_self) counts = scatter(counts, dim, index, 0);
  counts = scatter_add(counts, dim, index, ones(index.sizes(), counted)).clamp(1);
  counts = counts.to(x.dtype());
  return is_floating(x.dtype()) ? div(sums, counts) : floor_divide(sums, counts);
}

}  // namespace

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, ScatterReduce reduce,
                      bool include_self, Site site) {
  if (!include_self && reduce != ScatterReduce::assign) {
    SiteScope scope(site);
    Tensor start = without_targets(x, dim, index, reduce, site);
    if (reduce == ScatterReduce::mean) return scatter_mean(start, dim, index, source, false, site);
    return scatter_reduce(start, dim, index, source, reduce, true, site);
  }
  if (reduce == ScatterReduce::mean) {
    SiteScope scope(site);
    return scatter_mean(x, dim, index, source, true, site);
  }
  if (reduce == ScatterReduce::assign || reduce == ScatterReduce::add)
    return call<ScatterAdd>(site, {dim, reduce}, x, index, source);
  // Only the part of a larger source that takes part: the gradient reads index and source together.
  SiteScope scope(site);
  Tensor part = source;
  if (source.defined() && index.defined() && source.dim() == index.dim())
    for (int i = 0; i < index.dim(); ++i)
      if (source.sizes()[i] > index.sizes()[i]) part = narrow(part, i, 0, index.sizes()[i]);
  return call<Scatter>(site, {dim, reduce}, x, index, part);
}
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Site site) {
  return call<IndexSelect>(site, {dim}, x, index);
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Site site) {
  return call<IndexAdd>(site, {dim}, x, index, source);
}

Tensor take(const Tensor& x, const Tensor& index, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "take");
  detail::check_defined(index, "take");
  check_index("take", index.meta());
  Tensor positions = call_list<LinearIndex>(site, {Shape{x.numel()}, Shape{LinearIndex::kTake}}, {&index, 1});
  return call<Index>(site, {0, 1}, x.reshape({-1}), positions);
}

Tensor embedding(const Tensor& index, const Tensor& table, std::optional<int64_t> padding_index, Site site) {
  detail::check_defined(table, "embedding");
  int64_t pad = padding_index.value_or(-1);
  if (padding_index) {
    int64_t rows = table.dim() ? table.sizes()[0] : 0;
    DEFT_CHECK(pad >= -rows && pad < rows, IndexError, "embedding: padding index {} is outside the {} rows", pad, rows);
    if (pad < 0) pad += rows;
  }
  return call<Embedding>(site, {pad}, table, index);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "masked_fill");
  check_mask("masked_fill", mask);
  detail::check_defined(value, "masked_fill");
  DEFT_CHECK(value.dim() == 0, ShapeError, "masked_fill: the value must be one number, found shape {}",
             to_string(value.sizes()));
  return where(mask, value.dtype() == x.dtype() ? value : value.to(x.dtype()), x);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "masked_fill");
  check_mask("masked_fill", mask);
  check_fits(value, x.dtype(), "masked_fill");
  // A number of the kind of x, which then decides the type.
  Scalar number = is_floating(x.dtype()) ? value : is_integral(x.dtype()) ? Scalar(value.to_int64()) : value.to_bool();
  return where(mask, number, x);
}

Tensor masked_select(const Tensor& x, const Tensor& mask, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "masked_select");
  check_mask("masked_select", mask);
  Shape both = broadcast_shapes(x.sizes(), mask.sizes(), "masked_select");
  return call<MaskedSelect>(site, {}, x.expand(both), mask.expand(both));
}

Tensor nonzero(const Tensor& x, Site site) { return call<Nonzero>(site, {}, x); }

// --- Tensor's methods ------------------------------------------------------------------------------------------

Tensor Tensor::gather(int64_t dim, const Tensor& index, Site site) const {
  return deft::gather(*this, dim, index, site);
}
Tensor Tensor::index_select(int64_t dim, const Tensor& index, Site site) const {
  return deft::index_select(*this, dim, index, site);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value, Site site) const {
  return deft::masked_fill(*this, mask, value, site);
}
Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value, Site site) {
  Tensor filled = deft::masked_fill(*this, mask, value, site);
  DEFT_CHECK(filled.sizes() == sizes(), ShapeError, "masked_fill_: a mask of shape {} does not fit into {}",
             deft::to_string(mask.sizes()), deft::to_string(sizes()));
  return copy_(filled, site);
}
Tensor Tensor::scatter_reduce(int64_t dim, const Tensor& index, const Tensor& source, ScatterReduce reduce,
                              bool include_self, Site site) const {
  return deft::scatter_reduce(*this, dim, index, source, reduce, include_self, site);
}
Tensor Tensor::masked_select(const Tensor& mask, Site site) const { return deft::masked_select(*this, mask, site); }
Tensor& Tensor::scatter_(int64_t dim, const Tensor& index, const Tensor& source, Site site) {
  return call_inplace<ScatterAdd>(site, {dim, ScatterReduce::assign}, *this, index, source);
}
Tensor& Tensor::scatter_add_(int64_t dim, const Tensor& index, const Tensor& source, Site site) {
  return call_inplace<ScatterAdd>(site, {dim, ScatterReduce::add}, *this, index, source);
}
Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& source, Site site) {
  return call_inplace<IndexAdd>(site, {dim}, *this, index, source);
}

}  // namespace deft
