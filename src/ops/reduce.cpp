#include "ops/reduce.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/core_ops.h"
#include "core/describe.h"
#include "kernels/cpu/reduce/amax_backward.h"
#include "kernels/cpu/reduce/reduce.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/operand.h"
#include "ops/reduce_call.h"
#include "ops/reduce_common.h"
#include "ops/ternary.h"
#include "ops/unary.h"
#include "runtime/context.h"
#include "runtime/parallel.h"

namespace deft {

using namespace reduction;

namespace {

void run(cpu::ReduceOp op, const Tensor& x, const Tensor& out, uint32_t dims, double param = 0) {
  if (out.numel() == 0) return;
  auto call = reduce_call<cpu::ReduceCall>(x, out, dims);
  call.op = op;
  call.param = param;
  cpu::reduce(call);
}

template <class Params>
Meta reduced(const Meta& x, const Params& p, DType dtype) {
  return Meta::dense(reduced_sizes(x.sizes, p.dims, p.keepdim), dtype, x.device);
}
DType sum_type(DType t) { return is_floating(t) ? t : DType::i64; }

void check_not_empty(const Meta& x, uint32_t dims, const char* op) {
  for (int i = 0; i < x.rank(); ++i)
    DEFT_CHECK(!(dims >> i & 1) || x.sizes[i] > 0, ValueError,
               "{}: dimension {} of shape {} is empty and has no extreme; reduce over dimensions that are not empty",
               op, i, to_string(x.sizes));
}

// The gradient, and what else a formula reads, in the input's number of dims.
template <class Op>
Tensor grad_with_dims(const VjpContext& c) {
  return with_dims(c.grad(), c.input_sizes(0), c.params<Op>().dims);
}
template <class Op>
Tensor output_with_dims(const VjpContext& c) {
  return with_dims(c.saved_output(0), c.input_sizes(0), c.params<Op>().dims);
}
Shape dim_list(uint32_t bits) {
  Shape dims;
  for (int i = 0; i < kMaxDims; ++i)
    if (bits >> i & 1) dims.push_back(i);
  return dims;
}
// Sum over the dims of `bits`, kept. No bits: nothing to sum.
Tensor sum_kept(const Tensor& x, uint32_t bits) { return bits ? x.sum(dim_list(bits), true) : x; }
Tensor mean_kept(const Tensor& x, uint32_t bits) { return bits ? x.mean(dim_list(bits), true) : x; }

}  // namespace

// --- sum and mean ----------------------------------------------------------------------------------------------

Meta Sum::infer(const Meta& x, const Params& p) { return reduced(x, p, sum_type(x.dtype)); }
namespace {

// A few values in a row: setting up the general walk would cost more than the sum.
constexpr int64_t kFew = 64;
template <class T>
void sum_few(const Tensor& x, const Tensor& out) {
  const T* v = static_cast<const T*>(x.data_ptr());
  double sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += v[i];
  *static_cast<T*>(out.data_ptr()) = static_cast<T>(sum);
}

}  // namespace

void Sum::cpu(KernelCall& c) {
  const Tensor& x = c.in();
  if (x.numel() <= kFew && c.out().numel() == 1 && x.meta().contiguous) {
    if (x.dtype() == DType::f32) return sum_few<float>(x, c.out());
    if (x.dtype() == DType::f64) return sum_few<double>(x, c.out());
  }
  run(cpu::ReduceOp::sum, x, c.out(), c.params<Sum>().dims);
}
void Sum::vjp(VjpContext& c) {
  const Shape& sizes = c.input_sizes(0);
  if (c.grad().dim() == 0 && !c.create_graph) {
    // The usual end of a loss: the one number, seen at every place. No graph is made here, so no view op is needed.
    Meta m = c.grad().meta();
    m.sizes = m.strides = sizes;
    for (int i = 0; i < sizes.size(); ++i) {
      m.numel *= sizes[i];
      m.strides[i] = 0;
    }
    m.contiguous = m.numel <= 1;
    c.grad_in(0) = Tensor(make_alias(*c.grad().impl(), m, 0));
    return;
  }
  c.grad_in(0) = grad_with_dims<Sum>(c).expand(sizes);
}

Meta Mean::infer(const Meta& x, const Params& p) { return reduced(x, p, x.dtype); }
void Mean::cpu(KernelCall& c) { run(cpu::ReduceOp::mean, c.in(), c.out(), c.params<Mean>().dims); }
void Mean::vjp(VjpContext& c) {
  // At least 1: over nothing there is no gradient, but there is a gradient of the gradient, and it is 0.
  auto n = static_cast<double>(std::max<int64_t>(reduced_count(c.input_sizes(0), c.params<Mean>().dims), 1));
  c.grad_in(0) = grad_with_dims<Mean>(c).div(n).expand(c.input_sizes(0));
}

// --- prod ------------------------------------------------------------------------------------------------------

Meta Prod::infer(const Meta& x, const Params& p) { return reduced(x, p, sum_type(x.dtype)); }
void Prod::cpu(KernelCall& c) { run(cpu::ReduceOp::prod, c.in(), c.out(), c.params<Prod>().dims); }

namespace {

// Product of the other factors, for each factor. Right up to first order: where one factor is zero, only its own
// derivative is not; where several are, none is.
Tensor product_of_others(const Tensor& x, const Tensor& zero, uint32_t dims) {
  Tensor nonzero = x.masked_fill(zero, 1);
  Tensor others = call<Prod>(Site::current(), {dims, true}, nonzero) / nonzero;
  return others.masked_fill(sum_kept(zero, dims).gt(zero.to(DType::i64)), 0);
}

// The same as a polynomial in x, so that it can be differentiated again. Memory grows with the square of the count.
Tensor product_of_others_smooth(const Tensor& x, uint32_t dims) {
  Shape order, sizes;
  for (int i = 0; i < x.dim(); ++i)
    if (!(dims >> i & 1)) order.push_back(i), sizes.push_back(x.sizes()[i]);
  for (int i = 0; i < x.dim(); ++i)
    if (dims >> i & 1) order.push_back(i);
  sizes.push_back(reduced_count(x.sizes(), dims));
  Tensor rows = x.permute(order);
  Shape moved = rows.sizes(), back = order;
  for (int i = 0; i < order.size(); ++i) back[static_cast<int>(order[i])] = i;
  return omit_each(rows.reshape(sizes)).prod({-1}).reshape(moved).permute(back);
}

}  // namespace

void Prod::vjp(VjpContext& c) {
  uint32_t dims = c.params<Prod>().dims;
  Tensor g = grad_with_dims<Prod>(c);
  if (dims == 0) {
    c.grad_in(0) = g;
    return;
  }
  Tensor x = c.saved_input(0);
  Tensor zero = x.eq(0);
  // Asking a device whether there are zeros would make the host wait, and a plan serves any values: there they are
  // always reckoned with.
  if (x.device().is_cpu() && !(context().bits & kCapture) && !zero.any().item<bool>())
    c.grad_in(0) = g * output_with_dims<Prod>(c) / x;
  else
    c.grad_in(0) = g * (c.create_graph ? product_of_others_smooth(x, dims) : product_of_others(x, zero, dims));
}

// --- Extremes --------------------------------------------------------------------------------------------------

namespace {

// Where x is the extreme, and how often: counted as numbers of its type, which are summed with vectors.
struct Hits {
  Tensor hit, count;
  Hits(const Tensor& x, const Tensor& y, uint32_t dims)
      : hit(logical_or(x.eq(y), logical_and(isnan(x), isnan(y)))), count(sum_kept(hit.to(x.dtype()), dims)) {}
};

// Sizes before, of and after the reduced dims, if these follow each other.
struct Middle {
  int64_t outer = 1, n = 1, inner = 1;
  bool found = true;
  Middle(const Shape& sizes, uint32_t dims) {
    for (int i = 0; i < sizes.size(); ++i) {
      bool reduced = dims >> i & 1;
      if (reduced) found &= inner == 1;
      int64_t& part = reduced ? n : (dims & ((1u << i) - 1)) ? inner : outer;
      part *= sizes[i];
    }
  }
};

template <class Op>
void extreme_vjp(VjpContext& c) {
  uint32_t dims = c.params<Op>().dims;
  Tensor x = c.saved_input(0), y = output_with_dims<Op>(c), g = grad_with_dims<Op>(c);
  if (x.device().is_cpu() && x.numel() > 0 && Middle(x.sizes(), dims).found) {
    c.grad_in(0) = call<ExtremeBackward>(c.node.site, {dims}, g, x, y);
    return;
  }
  Hits h(x, y, dims);
  c.grad_in(0) = where(h.hit, g / h.count, 0);  // also of a gradient that is NaN the others get nothing
}

}  // namespace

Meta ExtremeBackward::infer(const Meta&, const Meta& x, const Meta&, const Params&) {
  return Meta::dense(x.sizes, x.dtype, x.device);
}
void ExtremeBackward::cpu(KernelCall& c) {
  Middle m(c.in(1).sizes(), c.params<ExtremeBackward>().dims);
  Tensor g = as_dense(c.in(0)), x = as_dense(c.in(1)), y = as_dense(c.in(2));
  cpu::extreme_backward(
      {x.dtype(), m.outer, m.n, m.inner, g.data_ptr(), x.data_ptr(), y.data_ptr(), c.out().data_ptr()});
}
void ExtremeBackward::vjp(VjpContext& c) {
  if (!c.needs(0)) return;  // shares do not change with x
  uint32_t dims = c.params<ExtremeBackward>().dims;
  Hits h(c.saved_input(1), c.saved_input(2), dims);
  c.grad_in(0) = sum_kept(where(h.hit, c.grad(), 0), dims) / h.count;
}

Meta Amax::infer(const Meta& x, const Params& p) {
  check_not_empty(x, p.dims, info.name);
  return reduced(x, p, x.dtype);
}
void Amax::cpu(KernelCall& c) { run(cpu::ReduceOp::max, c.in(), c.out(), c.params<Amax>().dims); }
void Amax::vjp(VjpContext& c) { extreme_vjp<Amax>(c); }

Meta Amin::infer(const Meta& x, const Params& p) {
  check_not_empty(x, p.dims, info.name);
  return reduced(x, p, x.dtype);
}
void Amin::cpu(KernelCall& c) { run(cpu::ReduceOp::min, c.in(), c.out(), c.params<Amin>().dims); }
void Amin::vjp(VjpContext& c) { extreme_vjp<Amin>(c); }

Meta ArgMax::infer(const Meta& x, const Params& p) {
  check_not_empty(x, p.dims, info.name);
  return reduced(x, p, DType::i64);
}
void ArgMax::cpu(KernelCall& c) { run(cpu::ReduceOp::argmax, c.in(), c.out(), c.params<ArgMax>().dims); }

Meta ArgMin::infer(const Meta& x, const Params& p) {
  check_not_empty(x, p.dims, info.name);
  return reduced(x, p, DType::i64);
}
void ArgMin::cpu(KernelCall& c) { run(cpu::ReduceOp::argmin, c.in(), c.out(), c.params<ArgMin>().dims); }

namespace {

std::array<Meta, 2> infer_extreme(const Meta& x, MaxDim::Params& p, const char* op) {
  p.dim = normalize_dim(p.dim, x.rank(), op);
  ReduceParams r = one_dim(p, x.rank());
  check_not_empty(x, r.dims, op);
  return {reduced(x, r, x.dtype), reduced(x, r, DType::i64)};
}

void run_extreme(KernelCall& c, const MaxDim::Params& p, cpu::ReduceOp value, cpu::ReduceOp index) {
  uint32_t dims = one_dim(p, c.in().dim()).dims;
  run(value, c.in(), c.out(0), dims);
  run(index, c.in(), c.out(1), dims);
}

void indexed_vjp(VjpContext& c, const MaxDim::Params& p) {
  if (!c.grad(0).defined()) return;
  const Shape& sizes = c.input_sizes(0);
  if (sizes.empty()) {
    c.grad_in(0) = c.grad(0);
    return;
  }
  uint32_t dims = one_dim(p, sizes.size()).dims;
  Tensor g = zeros(sizes, {c.input_dtype(0), c.input_device(0)}, c.node.site);
  g.scatter_(p.dim, with_dims(c.saved_output(1), sizes, dims), with_dims(c.grad(0), sizes, dims));
  c.grad_in(0) = g;
}

}  // namespace

std::array<Meta, 2> MaxDim::infer(const Meta& x, Params& p) { return infer_extreme(x, p, info.name); }
void MaxDim::cpu(KernelCall& c) { run_extreme(c, c.params<MaxDim>(), cpu::ReduceOp::max, cpu::ReduceOp::argmax); }
void MaxDim::vjp(VjpContext& c) { indexed_vjp(c, c.params<MaxDim>()); }

std::array<Meta, 2> MinDim::infer(const Meta& x, Params& p) { return infer_extreme(x, p, info.name); }
void MinDim::cpu(KernelCall& c) { run_extreme(c, c.params<MinDim>(), cpu::ReduceOp::min, cpu::ReduceOp::argmin); }
void MinDim::vjp(VjpContext& c) { indexed_vjp(c, c.params<MinDim>()); }

// --- any, all, count_nonzero -----------------------------------------------------------------------------------

Meta Any::infer(const Meta& x, const Params& p) { return reduced(x, p, DType::boolean); }
void Any::cpu(KernelCall& c) { run(cpu::ReduceOp::any, c.in(), c.out(), c.params<Any>().dims); }

Meta All::infer(const Meta& x, const Params& p) { return reduced(x, p, DType::boolean); }
void All::cpu(KernelCall& c) { run(cpu::ReduceOp::all, c.in(), c.out(), c.params<All>().dims); }

Meta CountNonzero::infer(const Meta& x, const Params& p) { return reduced(x, p, DType::i64); }
void CountNonzero::cpu(KernelCall& c) {
  run(cpu::ReduceOp::count_nonzero, c.in(), c.out(), c.params<CountNonzero>().dims);
}

// --- var and std -----------------------------------------------------------------------------------------------

Meta Var::infer(const Meta& x, const Params& p) { return reduced(x, p, x.dtype); }
void Var::cpu(KernelCall& c) {
  const Params& p = c.params<Var>();
  run(cpu::ReduceOp::var, c.in(), c.out(), p.dims, p.correction);
}

namespace {

// `g` is the gradient of the variance, in the input's number of dims.
Tensor variance_grad(const VjpContext& c, const Tensor& g, const Var::Params& p) {
  Tensor x = c.saved_input(0);
  double n = static_cast<double>(reduced_count(x.sizes(), p.dims)) - p.correction;
  return g.mul(2 / n) * (x - mean_kept(x, p.dims));
}

}  // namespace

void Var::vjp(VjpContext& c) { c.grad_in(0) = variance_grad(c, grad_with_dims<Var>(c), c.params<Var>()); }

Meta Std::infer(const Meta& x, const Params& p) { return reduced(x, p, x.dtype); }
void Std::cpu(KernelCall& c) {
  const Params& p = c.params<Std>();
  // Through a wider type: the square of a result that fits into 16 bits may not.
  Tensor wide(make_tensor(Meta::dense(c.out().sizes(), DType::f64, c.out().device())));
  run(cpu::ReduceOp::var, c.in(), wide, p.dims, p.correction);
  double* v = wide.data<double>();
  for (int64_t i = 0; i < wide.numel(); ++i) v[i] = std::sqrt(v[i]);
  copy_values(wide, c.out());
}
void Std::vjp(VjpContext& c) {
  Tensor y = output_with_dims<Std>(c);
  Tensor flat = y.eq(0);
  // Dividing by 1 there, and not masking the result, keeps NaN out of second derivatives too.
  Tensor g = (grad_with_dims<Std>(c) / y.mul(2).masked_fill(flat, 1)).masked_fill(flat, 0);
  c.grad_in(0) = variance_grad(c, g, c.params<Std>());
}

// --- norm and logsumexp ----------------------------------------------------------------------------------------

Meta Norm::infer(const Meta& x, const Params& p) {
  DEFT_CHECK(!std::isnan(p.p), ValueError, "norm: p is NaN; give a number or an infinity");
  bool extreme = std::isinf(p.p) || p.p < 0;
  if (extreme) check_not_empty(x, p.dims, "norm");
  return reduced(x, p, x.dtype);
}
void Norm::cpu(KernelCall& c) {
  const Params& p = c.params<Norm>();
  run(cpu::ReduceOp::norm, c.in(), c.out(), p.dims, p.p);
}
void Norm::vjp(VjpContext& c) {
  const Params& p = c.params<Norm>();
  Tensor x = c.saved_input(0), g = grad_with_dims<Norm>(c);
  if (p.p == 0) {
    c.grad_in(0) = zeros_like(x);
    return;
  }
  if (p.p == 1) {
    c.grad_in(0) = g * x.sign();
    return;
  }
  Tensor y = output_with_dims<Norm>(c);
  if (std::isinf(p.p)) {
    Hits h(x.abs(), y, p.dims);
    c.grad_in(0) = (g / h.count) * x.sign().mul(h.hit);
    return;
  }
  // Zeros are replaced before dividing, so that second derivatives do not meet 0/0 either.
  Tensor safe = y.masked_fill(y.eq(0), 1);
  if (p.p == 2)
    c.grad_in(0) = x * (g / safe);
  else
    c.grad_in(0) = g * x.sign() * (x.abs().masked_fill(x.eq(0), 1) / safe).pow(p.p - 1);
}

Meta LogSumExp::infer(const Meta& x, const Params& p) {
  return reduced(x, p, is_floating(x.dtype) ? x.dtype : DType::f32);
}
void LogSumExp::cpu(KernelCall& c) { run(cpu::ReduceOp::logsumexp, c.in(), c.out(), c.params<LogSumExp>().dims); }
void LogSumExp::vjp(VjpContext& c) {
  // All -inf: the weights are NaN, as in PyTorch. There is no distribution.
  c.grad_in(0) = grad_with_dims<LogSumExp>(c) * (c.saved_input(0) - output_with_dims<LogSumExp>(c)).exp();
}

// --- Functions -------------------------------------------------------------------------------------------------

#define DEFT_DEFINE(Op, name)                                           \
  Tensor name(const Tensor& x, IntList dims, bool keepdim, Site site) { \
    return call<Op>(site, {dim_bits(dims, x, #name), keepdim}, x);      \
  }                                                                     \
  Tensor Tensor::name(IntList dims, bool keepdim, Site site) const { return deft::name(*this, dims, keepdim, site); }
DEFT_DEFINE(Sum, sum)
DEFT_DEFINE(Mean, mean)
DEFT_DEFINE(Prod, prod)
DEFT_DEFINE(Amax, amax)
DEFT_DEFINE(Amin, amin)
DEFT_DEFINE(Any, any)
DEFT_DEFINE(All, all)
DEFT_DEFINE(LogSumExp, logsumexp)
#undef DEFT_DEFINE
Tensor count_nonzero(const Tensor& x, IntList dims, bool keepdim, Site site) {
  return call<CountNonzero>(site, {dim_bits(dims, x, "count_nonzero"), keepdim}, x);
}

#define DEFT_DEFINE(name)                                                            \
  Tensor name(const Tensor& x, IntList dims, bool keepdim, DType dtype, Site site) { \
    SiteScope scope(site);                                                           \
    return deft::name(x.to(dtype, site), dims, keepdim, site);                       \
  }
DEFT_DEFINE(sum)
DEFT_DEFINE(mean)
DEFT_DEFINE(prod)
#undef DEFT_DEFINE
Tensor mean(const Tensor& x, Site site) { return mean(x, IntList(), false, site); }
Tensor prod(const Tensor& x, Site site) { return prod(x, IntList(), false, site); }
Tensor sum(const Tensor& x, Site site) {
  uint32_t bits = context().bits;
  bool few = x.defined() && x.numel() <= kFew && x.meta().contiguous && x.device().is_cpu() && x.dtype() == DType::f32;
  if (!few || (bits & (kSlowPath | kAnomaly))) return sum(x, IntList(), false, site);
  Tensor out(make_tensor(Meta()));
  sum_few<float>(x, out);
  Sum::Params params{(1u << x.dim()) - 1, false};
  const Tensor* in[] = {&x};
  if (!(bits & (kGradOff | kInference))) {
    record(op_def<Sum>, in, 1, &out, &params, site, false);
  } else {  // as dispatch() does, so that "no graph" can name the guard
    out.impl()->flags |= kMadeWithGradOff;
    out.impl()->site = context().grad_site;
  }
  return out;
}
Tensor Tensor::sum(Site site) const { return deft::sum(*this, site); }
Tensor Tensor::mean(Site site) const { return deft::mean(*this, site); }

#define DEFT_DEFINE(Op, name)                                                         \
  Tensor name(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Site site) { \
    uint32_t bits = dim ? dim_bits({*dim}, x, #name) : dim_bits({}, x, #name);        \
    return call<Op>(site, {bits, keepdim}, x);                                        \
  }                                                                                   \
  Tensor Tensor::name(std::optional<int64_t> dim, bool keepdim, Site site) const {    \
    return deft::name(*this, dim, keepdim, site);                                     \
  }
DEFT_DEFINE(ArgMax, argmax)
DEFT_DEFINE(ArgMin, argmin)
#undef DEFT_DEFINE

Tensor max(const Tensor& x, Site site) { return amax(x, {}, false, site); }
Tensor min(const Tensor& x, Site site) { return amin(x, {}, false, site); }
namespace {
// Of bools the kernels have no row; as numbers they keep their order.
template <class Op>
std::array<Tensor, 2> extreme_along(const Tensor& x, int64_t dim, bool keepdim, const Site& site) {
  if (!x.defined() || x.dtype() != DType::boolean) return call<Op>(site, {dim, keepdim}, x);
  std::array<Tensor, 2> found = call<Op>(site, {dim, keepdim}, x.to(DType::u8, site));
  return {found[0].to(DType::boolean, site), found[1]};
}
}  // namespace
std::array<Tensor, 2> max(const Tensor& x, int64_t dim, bool keepdim, Site site) {
  return extreme_along<MaxDim>(x, dim, keepdim, site);
}
std::array<Tensor, 2> min(const Tensor& x, int64_t dim, bool keepdim, Site site) {
  return extreme_along<MinDim>(x, dim, keepdim, site);
}
Tensor normalize(const Tensor& x, double p, int64_t dim, double eps, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "normalize");
  dim = normalize_dim(dim, x.dim(), "normalize");
  const double least = x.dtype() == DType::f16 ? std::max(eps, 0x1p-24) : eps;  // a smaller one is 0 there
  return x / clamp_min(norm(x, p, {dim}, true), least);
}
std::array<Tensor, 2> aminmax(const Tensor& x, IntList dims, bool keepdim, Site site) {
  return {amin(x, dims, keepdim, site), amax(x, dims, keepdim, site)};
}

#define DEFT_DEFINE(Op, name)                                                              \
  Tensor name(const Tensor& x, IntList dims, double correction, bool keepdim, Site site) { \
    return call<Op>(site, {dim_bits(dims, x, #name), keepdim, correction}, x);             \
  }                                                                                        \
  Tensor Tensor::name(IntList dims, double correction, bool keepdim, Site site) const {    \
    return deft::name(*this, dims, correction, keepdim, site);                             \
  }
DEFT_DEFINE(Var, var)
DEFT_DEFINE(Std, std)
#undef DEFT_DEFINE
std::array<Tensor, 2> var_mean(const Tensor& x, IntList dims, double correction, bool keepdim, Site site) {
  return {var(x, dims, correction, keepdim, site), mean(x, dims, keepdim, site)};
}

Tensor norm(const Tensor& x, double p, IntList dims, bool keepdim, Site site) {
  return call<Norm>(site, {dim_bits(dims, x, "norm"), keepdim, p}, x);
}
Tensor Tensor::norm(double p, IntList dims, bool keepdim, Site site) const {
  return deft::norm(*this, p, dims, keepdim, site);
}

Tensor nansum(const Tensor& x, IntList dims, bool keepdim, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "nansum");
  return sum(is_floating(x.dtype()) ? x.masked_fill(x.ne(x), 0) : x, dims, keepdim, site);
}

namespace {

template <class T>
bool any_nan(const T* p, int64_t n) {
  bool found = false;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (sizeof(T) == 2)
      found |= std::isnan(static_cast<float>(p[i]));
    else
      found |= p[i] != p[i];
  }
  return found;
}

}  // namespace

bool has_nan(const Tensor& x) {
  note_host_read("has_nan", x, Site());
  if (!x.defined() || !is_floating(x.dtype()) || x.numel() == 0) return false;
  if (!x.device().is_cpu()) {
    ExecContext quiet = context();
    quiet.bits |= kGradOff;
    quiet.bits &= ~static_cast<uint32_t>(kAnomaly | kAutocast);
    ContextGuard guard(quiet);
    Tensor found = x.ne(x).any();
    return detail::to_host(found, "has_nan", Site()).item<bool>();
  }
  Tensor dense = x;
  if (!x.meta().is_dense()) {
    dense = Tensor(make_tensor(Meta::dense(x.sizes(), x.dtype(), x.device())));
    copy_values(x, dense);
  }
  constexpr int64_t kBlock = 16384;
  std::atomic<bool> found{false};
  dispatch_floating(x.dtype(), [&]<class T>() {
    const T* p = static_cast<const T*>(dense.data_ptr());
    parallel_for(0, dense.numel(), 4 * kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end && !found.load(std::memory_order_relaxed); at += kBlock)
        if (any_nan(p + at, std::min(kBlock, end - at))) found.store(true, std::memory_order_relaxed);
    });
  });
  return found.load();
}

Tensor sum_to_size(const Tensor& x, IntList sizes, Site site) {
  Shape want(sizes);
  detail::check_defined(x, "sum_to_size");
  if (x.sizes() == want) return x;
  int lead = x.dim() - want.size();
  bool fits = lead >= 0;
  uint32_t dims = fits ? (1u << lead) - 1 : 0;
  for (int i = 0; fits && i < want.size(); ++i) {
    int64_t have = x.sizes()[lead + i];
    fits = have == want[i] || want[i] == 1;
    if (have != want[i]) dims |= 1u << (lead + i);
  }
  DEFT_CHECK(fits, ShapeError, "sum_to_size: {} cannot be summed to {}; sizes may only be dropped in front or become 1",
             to_string(x.sizes()), to_string(want));
  Tensor y = call<Sum>(site, {dims, true}, x);
  return lead ? y.reshape(want, site) : y;
}

}  // namespace deft
