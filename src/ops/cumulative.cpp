#include "ops/cumulative.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/reduce/scan.h"
#include "ops/creation.h"
#include "ops/operand.h"
#include "ops/reduce_common.h"
#include "runtime/context.h"

namespace deft {

namespace {

Meta infer_scan(const Meta& x, int64_t& dim, const char* op) {
  dim = normalize_dim(dim, x.rank(), op);
  return Meta::dense(x.sizes, is_floating(x.dtype) ? x.dtype : DType::i64, x.device);
}

void run(KernelCall& c, cpu::ScanOp op, int64_t dim, bool reverse) {
  const Tensor& x = c.in();
  if (x.numel() == 0) return;
  if (x.dim() == 0) return copy_values(x, c.out());
  cpu::ScanCall call;
  call.ndim = x.dim();
  std::copy_n(x.sizes().data(), x.dim(), call.sizes);
  call.dim = static_cast<int>(dim);
  call.in = operand(x);
  call.out = operand(c.out());
  call.op = op;
  call.reverse = reverse;
  cpu::scan(call);
}

Tensor sum_from_the_end(const Tensor& x, int64_t dim) { return call<CumSum>(Site::current(), {dim, true}, x); }

}  // namespace

Meta CumSum::infer(const Meta& x, Params& p) { return infer_scan(x, p.dim, info.name); }
void CumSum::cpu(KernelCall& c) {
  const Params& p = c.params<CumSum>();
  run(c, cpu::ScanOp::sum, p.dim, p.reverse);
}
void CumSum::vjp(VjpContext& c) {
  const Params& p = c.params<CumSum>();
  c.grad_in(0) = call<CumSum>(c.node.site, {p.dim, !p.reverse}, c.grad());
}

Meta CumProd::infer(const Meta& x, Params& p) { return infer_scan(x, p.dim, info.name); }
void CumProd::cpu(KernelCall& c) { run(c, cpu::ScanOp::prod, c.params<CumProd>().dim, false); }

namespace {

// Gradient with zeros in x, right up to first order. Up to the first zero all is as usual; at it, the products are
// those without it; behind it nothing counts.
Tensor cumprod_grad(const Tensor& g, const Tensor& x, const Tensor& y, const Tensor& zero, int64_t dim) {
  Tensor zeros_so_far = zero.cumsum(dim);
  Tensor first = zero & zeros_so_far.eq(1);
  Tensor before = sum_from_the_end(g * y, dim) / x.masked_fill(zero, 1);
  Tensor at_first = sum_from_the_end(g * x.masked_fill(first, 1).cumprod(dim), dim);
  return before.masked_fill(zeros_so_far.ne(0), 0) + at_first.masked_fill(first.eq(false), 0);
}

// The same as a polynomial in x, so that it can be differentiated again. Memory grows with the square of the size.
Tensor cumprod_grad_smooth(const Tensor& g, const Tensor& x, int64_t dim) {
  Tensor rows = x.transpose(dim, -1);
  Tensor at = arange(0, rows.sizes().back(), 1, {DType::i64, x.device()});
  Tensor products = reduction::omit_each(rows).cumprod(-1).masked_fill(at.lt(at.unsqueeze(1)), 0);
  return (g.transpose(dim, -1).unsqueeze(-2) * products).sum({-1}).transpose(dim, -1);
}

}  // namespace

void CumProd::vjp(VjpContext& c) {
  int64_t dim = c.params<CumProd>().dim;
  const Tensor& g = c.grad();
  if (g.dim() == 0) {
    c.grad_in(0) = g;
    return;
  }
  Tensor x = c.saved_input(0);
  Tensor zero = x.eq(0);
  // Asking a device whether there are zeros would make the host wait, and a plan serves any values: there they are
  // always reckoned with.
  if (x.device().is_cpu() && !(context().bits & kCapture) && !zero.any().item<bool>())
    c.grad_in(0) = sum_from_the_end(g * c.saved_output(), dim) / x;
  else
    c.grad_in(0) = c.create_graph ? cumprod_grad_smooth(g, x, dim) : cumprod_grad(g, x, c.saved_output(), zero, dim);
}

Tensor cumsum(const Tensor& x, int64_t dim, Site site) { return call<CumSum>(site, {dim, false}, x); }
Tensor cumprod(const Tensor& x, int64_t dim, Site site) { return call<CumProd>(site, {dim}, x); }
Tensor Tensor::cumsum(int64_t dim, Site site) const { return deft::cumsum(*this, dim, site); }
Tensor Tensor::cumprod(int64_t dim, Site site) const { return deft::cumprod(*this, dim, site); }

Tensor diff(const Tensor& x, int64_t n, int64_t dim, Site site) {
  SiteScope scope(site);
  detail::check_defined(x, "diff");
  DEFT_CHECK(x.dim() > 0, ShapeError, "diff: a 0-d tensor has no neighbours; give one of at least one dimension");
  DEFT_CHECK(n >= 0, ValueError, "diff: n must not be negative, found {}", n);
  dim = normalize_dim(dim, x.dim(), "diff");
  n = std::min(n, x.sizes()[static_cast<int>(dim)] + 1);  // then nothing is left, and n may be huge
  Tensor y = n ? x : x.clone(MemoryFormat::preserve, site);
  for (; n > 0; --n) {
    int64_t length = std::max<int64_t>(y.sizes()[static_cast<int>(dim)] - 1, 0);
    Tensor low = y.narrow(dim, 0, length, site);
    Tensor high = y.narrow(dim, y.sizes()[static_cast<int>(dim)] - length, length, site);
    y = x.dtype() == DType::boolean ? high.ne(low, site) : high.sub(low, site);
  }
  return y;
}

}  // namespace deft
