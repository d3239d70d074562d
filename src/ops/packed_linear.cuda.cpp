// Matmuls with bias, residual and activation on CUDA devices.
#include "ops/packed_linear.h"
#include "core/tensor_impl.h"
#include "kernels/cuda/gemm/gemm_fused.h"
#include "ops/dense.h"
#include "ops/matmul_common.h"
#include "runtime/numerics.h"

namespace deft {

namespace {

// The same order in both.
static_assert(static_cast<int>(FusedActivation::tanh) == static_cast<int>(cuda::Activation::tanh));
static_assert(static_cast<int>(FusedActivation::gelu_tanh) == static_cast<int>(cuda::Activation::gelu_tanh));

// One GEMM over all rows, from dense copies where the operands cannot be read in place. x and w hold the memory.
cuda::GemmCall one_gemm(Tensor& x, Tensor& w, const Tensor& bias, const Tensor& out) {
  Batches rows;
  auto g = linear_call<cuda::GemmCall>(x, w, bias, out, rows);
  fold(rows, g);
  const bool regular = cuda::is_regular(g.m, g.k, g.a_row, g.a_col) && cuda::is_regular(g.k, g.n, g.b_row, g.b_col);
  if (rows.count == 0 && regular) return g;
  x = as_dense(x), w = as_dense(w);
  rows = {};
  return linear_call<cuda::GemmCall>(x, w, bias, out, rows);
}

}  // namespace

void FusedLinear::cuda(KernelCall& c) {
  const Tensor& out = c.out();
  if (out.meta().numel == 0) return;
  cuda::Encoder e(out.device(), c.def.info.name);
  Tensor x = c.in(0), w = c.in(1), bias = c.has(2) ? as_dense(c.in(2)) : Tensor();
  const Tensor residual = c.has(3) ? as_dense_apart(c.in(3), out) : Tensor();
  cuda::GemmCall g = one_gemm(x, w, bias, out);
  if (residual.defined()) g.residual = residual.data_ptr();
  g.activation = static_cast<cuda::Activation>(c.params<FusedLinear>().activation);
  g.wide_result = c.params<FusedLinear>().wide_result;
  g.timed = !deterministic();
  cuda::gemm_fused(e, g);
}

}  // namespace deft
