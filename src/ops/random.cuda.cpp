// Random numbers on CUDA.
#include "kernels/cuda/elementwise/random.h"

#include <algorithm>

#include "ops/cuda_operand.h"
#include "ops/dense.h"
#include "ops/random.h"
#include "ops/random_common.h"

namespace deft {

void UniformFill::cuda(KernelCall& c) {
  const Params& p = c.params<UniformFill>();
  cuda::Encoder e(c.out().device(), c.def.info.name);
  fill_row_major(c.out(), [&](const Tensor& out) {
    cuda::fill_uniform(e, out.dtype(), out.data_ptr(), out.numel(), p.draw, p.low, p.high);
  });
}

void NormalFill::cuda(KernelCall& c) {
  const Params& p = c.params<NormalFill>();
  cuda::Encoder e(c.out().device(), c.def.info.name);
  fill_row_major(c.out(), [&](const Tensor& out) {
    cuda::fill_normal(e, out.dtype(), out.data_ptr(), out.numel(), p.draw, p.mean, p.std);
  });
}

void RandintFill::cuda(KernelCall& c) {
  const Params& p = c.params<RandintFill>();
  cuda::Encoder e(c.out().device(), c.def.info.name);
  fill_row_major(c.out(), [&](const Tensor& out) {
    cuda::fill_randint(e, out.dtype(), out.data_ptr(), out.numel(), p.draw, p.low, p.high);
  });
}

void Bernoulli::cuda(KernelCall& c) {
  Tensor p = as_dense(c.in());
  cuda::Encoder e(c.out().device(), c.def.info.name);
  cuda::bernoulli(e, p.dtype(), p.data_ptr(), c.out().data_ptr(), p.numel(), c.params<Bernoulli>().draw);
}

void Dropout::cuda(KernelCall& c) {
  const Params& p = c.params<Dropout>();
  const double scale = p.p < 1 ? 1 / (1 - p.p) : 0;
  cuda::Encoder e(c.out().device(), c.def.info.name);
  cuda::dropout(e, c.in().dim(), c.in().sizes().data(), cuda_operand(c.in()), cuda_operand(c.out()), p.draw, p.p,
                scale);
}

}  // namespace deft
