// Reductions on CUDA.
#include "kernels/cuda/reduce/reduce.h"

#include "ops/operand.h"
#include "ops/reduce.h"
#include "ops/reduce_call.h"

namespace deft {

using namespace reduction;

namespace {

using cuda::ReduceOp;

void run(KernelCall& c, ReduceOp op, uint32_t dims, double param = 0, int64_t* indices = nullptr) {
  if (c.out().numel() == 0) return;
  Tensor x = c.in();
  if (DType wanted = cuda::reduce_input(op, x.dtype()); wanted != x.dtype()) {
    x = Tensor(make_tensor(Meta::dense(x.sizes(), wanted, x.device())));
    copy_values(c.in(), x);
  }
  cuda::Encoder e(c.out().device(), c.def.info.name);
  auto call = reduce_call<cuda::ReduceCall>(x, c.out(), dims);
  call.indices = indices;
  call.op = op;
  call.param = param;
  cuda::reduce(e, call);
}

}  // namespace

void Sum::cuda(KernelCall& c) { run(c, ReduceOp::sum, c.params<Sum>().dims); }
void Mean::cuda(KernelCall& c) { run(c, ReduceOp::mean, c.params<Mean>().dims); }
void Prod::cuda(KernelCall& c) { run(c, ReduceOp::prod, c.params<Prod>().dims); }
void Amax::cuda(KernelCall& c) { run(c, ReduceOp::max, c.params<Amax>().dims); }
void Amin::cuda(KernelCall& c) { run(c, ReduceOp::min, c.params<Amin>().dims); }
void ArgMax::cuda(KernelCall& c) { run(c, ReduceOp::argmax, c.params<ArgMax>().dims); }
void ArgMin::cuda(KernelCall& c) { run(c, ReduceOp::argmin, c.params<ArgMin>().dims); }
void Any::cuda(KernelCall& c) { run(c, ReduceOp::any, c.params<Any>().dims); }
void All::cuda(KernelCall& c) { run(c, ReduceOp::all, c.params<All>().dims); }
void CountNonzero::cuda(KernelCall& c) { run(c, ReduceOp::count_nonzero, c.params<CountNonzero>().dims); }
void LogSumExp::cuda(KernelCall& c) { run(c, ReduceOp::logsumexp, c.params<LogSumExp>().dims); }

void MaxDim::cuda(KernelCall& c) {
  run(c, ReduceOp::max, one_dim(c.params<MaxDim>(), c.in().dim()).dims, 0, c.out(1).data<int64_t>());
}
void MinDim::cuda(KernelCall& c) {
  run(c, ReduceOp::min, one_dim(c.params<MinDim>(), c.in().dim()).dims, 0, c.out(1).data<int64_t>());
}

void Var::cuda(KernelCall& c) {
  const Params& p = c.params<Var>();
  run(c, ReduceOp::var, p.dims, p.correction);
}
void Std::cuda(KernelCall& c) {
  const Params& p = c.params<Std>();
  run(c, ReduceOp::std, p.dims, p.correction);
}
void Norm::cuda(KernelCall& c) {
  const Params& p = c.params<Norm>();
  run(c, ReduceOp::norm, p.dims, p.p);
}

}  // namespace deft
