// Running sums and products on CUDA.
#include <algorithm>

#include "kernels/cuda/scan.h"
#include "ops/cumulative.h"
#include "ops/operand.h"

namespace deft {

namespace {

cuda::Operand cuda_operand(const Tensor& t) {
  cuda::Operand o;
  o.data = t.data_ptr();
  o.dtype = t.dtype();
  std::copy_n(t.strides().data(), t.dim(), o.strides);
  return o;
}

void run(KernelCall& c, int64_t dim, bool product, bool reverse) {
  const Tensor& x = c.in();
  if (x.numel() == 0) return;
  if (x.dim() == 0) return copy_values(x, c.out());
  cuda::ScanCall call;
  call.ndim = x.dim();
  std::copy_n(x.sizes().data(), x.dim(), call.sizes);
  call.dim = static_cast<int>(dim);
  call.in = cuda_operand(x);
  call.out = cuda_operand(c.out());
  call.product = product;
  call.reverse = reverse;
  cuda::Encoder e(c.out().device(), c.def.info.name);
  cuda::scan(e, call);
}

}  // namespace

void CumSum::cuda(KernelCall& c) {
  const Params& p = c.params<CumSum>();
  run(c, p.dim, false, p.reverse);
}
void CumProd::cuda(KernelCall& c) { run(c, c.params<CumProd>().dim, true, false); }

}  // namespace deft
