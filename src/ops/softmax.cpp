#include "ops/softmax.h"

#include "base/check.h"
#include "kernels/cpu/rows.h"
#include "ops/reduce_common.h"
#include "runtime/context.h"

namespace deft {

using reduction::laid_out_as;

namespace {

Meta infer_rows(const Meta& x, SoftmaxParams& p, const char* op) {
  p.dim = normalize_dim(p.dim, x.rank(), op);
  return reduction::same_layout(x);
}
Meta infer_backward(const Meta& g, const Meta& y, SoftmaxParams& p, const char* op) {
  DEFT_CHECK(g.sizes == y.sizes, ShapeError, "{}: the gradient has shape {}, expected {} like the result", op,
             to_string(g.sizes), to_string(y.sizes));
  DEFT_CHECK(g.dtype == y.dtype, DTypeError, "{}: the gradient is {} but the result is {}; convert one with to()", op,
             name_of(g.dtype), name_of(y.dtype));
  return infer_rows(y, p, op);
}

// In dense memory of any order, a dim of stride s has the s elements of the inner dims within it.
cpu::RowsView rows_of(const Tensor& out, int64_t dim) {
  cpu::RowsView v{out.dtype(), out.numel(), 1, 1};
  if (out.dim() == 0 || out.sizes()[static_cast<int>(dim)] == 1) return v;
  v.n = out.sizes()[static_cast<int>(dim)];
  v.inner = out.strides()[static_cast<int>(dim)];
  v.outer = out.numel() / (v.n * v.inner);
  return v;
}

using ForwardFn = void (*)(const cpu::RowsView&, const void*, void*);
using BackwardFn = void (*)(const cpu::RowsView&, const void*, const void*, void*);

void run(KernelCall& c, ForwardFn kernel, int64_t dim) {
  if (c.out().numel() == 0) return;
  Tensor x = laid_out_as(c.in(), c.out().meta());
  kernel(rows_of(c.out(), dim), x.data_ptr(), c.out().data_ptr());
}
void run_backward(KernelCall& c, BackwardFn kernel, int64_t dim) {
  if (c.out().numel() == 0) return;
  Tensor g = laid_out_as(c.in(0), c.out().meta()), y = laid_out_as(c.in(1), c.out().meta());
  kernel(rows_of(c.out(), dim), g.data_ptr(), y.data_ptr(), c.out().data_ptr());
}

}  // namespace

Meta Softmax::infer(const Meta& x, Params& p) { return infer_rows(x, p, info.name); }
void Softmax::cpu(KernelCall& c) { run(c, cpu::softmax, c.params<Softmax>().dim); }
void Softmax::vjp(VjpContext& c) {
  c.grad_in(0) = call<SoftmaxBackward>(c.node.site, c.params<Softmax>(), c.grad(), c.saved_output());
}

Meta LogSoftmax::infer(const Meta& x, Params& p) { return infer_rows(x, p, info.name); }
void LogSoftmax::cpu(KernelCall& c) { run(c, cpu::log_softmax, c.params<LogSoftmax>().dim); }
void LogSoftmax::vjp(VjpContext& c) {
  c.grad_in(0) = call<LogSoftmaxBackward>(c.node.site, c.params<LogSoftmax>(), c.grad(), c.saved_output());
}

Meta SoftmaxBackward::infer(const Meta& g, const Meta& y, Params& p) { return infer_backward(g, y, p, info.name); }
void SoftmaxBackward::cpu(KernelCall& c) { run_backward(c, cpu::softmax_backward, c.params<SoftmaxBackward>().dim); }
void SoftmaxBackward::vjp(VjpContext& c) {
  const Params& p = c.params<SoftmaxBackward>();
  Tensor h = c.grad(), y = c.saved_input(1);
  if (c.needs(0)) c.grad_in(0) = call<SoftmaxBackward>(c.node.site, p, h, y);
  if (!c.needs(1)) return;
  Tensor g = c.saved_input(0);
  c.grad_in(1) = h * (g - (g * y).sum({p.dim}, true)) - g * (h * y).sum({p.dim}, true);
}

Meta LogSoftmaxBackward::infer(const Meta& g, const Meta& y, Params& p) { return infer_backward(g, y, p, info.name); }
void LogSoftmaxBackward::cpu(KernelCall& c) {
  run_backward(c, cpu::log_softmax_backward, c.params<LogSoftmaxBackward>().dim);
}
void LogSoftmaxBackward::vjp(VjpContext& c) {
  const Params& p = c.params<LogSoftmaxBackward>();
  Tensor h = c.grad();
  Tensor weighted = h * c.saved_input(1).exp();
  if (c.needs(0)) c.grad_in(0) = h - weighted.sum({p.dim}, true);
  if (c.needs(1)) c.grad_in(1) = -(weighted * c.saved_input(0).sum({p.dim}, true));
}

Tensor softmax(const Tensor& x, int64_t dim, Site site) { return call<Softmax>(site, {dim}, x); }
Tensor log_softmax(const Tensor& x, int64_t dim, Site site) { return call<LogSoftmax>(site, {dim}, x); }
Tensor Tensor::softmax(int64_t dim, Site site) const { return call<Softmax>(site, {dim}, *this); }
Tensor Tensor::log_softmax(int64_t dim, Site site) const { return call<LogSoftmax>(site, {dim}, *this); }
Tensor softmin(const Tensor& x, int64_t dim, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "softmin");
  return softmax(x.neg(site), dim, site);
}
Tensor softmax(const Tensor& x, int64_t dim, DType dtype, Site site) {
  SiteScope scope(site);
  return softmax(x.to(dtype, site), dim, site);
}
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype, Site site) {
  SiteScope scope(site);
  return log_softmax(x.to(dtype, site), dim, site);
}

}  // namespace deft
