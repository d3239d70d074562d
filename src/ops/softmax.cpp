#include "ops/softmax.h"

#include "base/check.h"
#include "kernels/cpu/norm/softmax_norm.h"
#include "ops/softmax_common.h"
#include "runtime/context.h"

namespace deft {

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

}  // namespace

Meta Softmax::infer(const Meta& x, Params& p) { return infer_rows(x, p, info.name); }
void Softmax::cpu(KernelCall& c) { rows::run<cpu::RowsView>(c, c.params<Softmax>().dim, cpu::softmax); }
void Softmax::vjp(VjpContext& c) {
  c.grad_in(0) = call<SoftmaxBackward>(c.node.site, c.params<Softmax>(), c.grad(), c.saved_output());
}

Meta LogSoftmax::infer(const Meta& x, Params& p) { return infer_rows(x, p, info.name); }
void LogSoftmax::cpu(KernelCall& c) { rows::run<cpu::RowsView>(c, c.params<LogSoftmax>().dim, cpu::log_softmax); }
void LogSoftmax::vjp(VjpContext& c) {
  c.grad_in(0) = call<LogSoftmaxBackward>(c.node.site, c.params<LogSoftmax>(), c.grad(), c.saved_output());
}

Meta SoftmaxBackward::infer(const Meta& g, const Meta& y, Params& p) { return infer_backward(g, y, p, info.name); }
void SoftmaxBackward::cpu(KernelCall& c) {
  rows::run_backward<cpu::RowsView>(c, c.params<SoftmaxBackward>().dim, cpu::softmax_backward);
}
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
  rows::run_backward<cpu::RowsView>(c, c.params<LogSoftmaxBackward>().dim, cpu::log_softmax_backward);
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
