// Running sums and products on CUDA.
#include <algorithm>

#include "kernels/cuda/reduce/scan.h"
#include "ops/cuda_operand.h"
#include "ops/cumulative.h"
#include "ops/operand.h"

namespace deft {

namespace {

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
