// Matmul on CUDA devices.
#include "ops/matmul.h"
#include "core/tensor_impl.h"
#include "kernels/cuda/gemm/gemm.h"
#include "ops/dense.h"
#include "ops/matmul_common.h"

namespace deft {

namespace {

constexpr int64_t kMaxLaunches = 2;  // above, operands are copied so that one batch holds all: that costs less

bool is_regular(const cuda::GemmCall& g) {
  return !is_floating(g.dtype) ||
         (cuda::is_regular(g.m, g.k, g.a_row, g.a_col) && cuda::is_regular(g.k, g.n, g.b_row, g.b_col));
}

// `t` itself where its matrices can be read as they lie. Integers have a kernel for any strides.
Tensor regular(const Tensor& t) {
  const Meta& m = t.meta();
  if (m.contiguous || !is_floating(m.dtype)) return t;
  int r = m.rank();
  int64_t rows = r == 1 ? 1 : m.sizes[r - 2], row_stride = r == 1 ? 0 : m.strides[r - 2];
  bool good = cuda::is_regular(rows, m.sizes[r - 1], row_stride, m.strides[r - 1]);
  for (int i = 0; i < r - 2; ++i) good = good && m.strides[i] >= 0;
  return good ? t : as_dense(t);
}

// A dense copy with all batches of the result, where `t` has batches.
Tensor with_all_batches(const Tensor& t, const Shape& out, int batch_dims) {
  int r = t.dim();
  if (r <= 2) return t;
  Shape sizes = out;
  sizes.resize(batch_dims);
  sizes.push_back(t.sizes()[r - 2]);
  sizes.push_back(t.sizes()[r - 1]);
  if (sizes == t.sizes()) return as_dense(t);
  Tensor copy(make_tensor(Meta::dense(sizes, t.dtype(), t.device())));
  copy_values(t, copy);
  return copy;
}

// Folds batches into the matrices unless that leaves matrices that cannot be read as they lie.
void fold_regular(Batches& batches, cuda::GemmCall& g) {
  Batches fewer = batches;
  cuda::GemmCall larger = g;
  fold(fewer, larger);
  if (is_regular(larger)) batches = fewer, g = larger;
  batches.put_largest_last();
}

void run(cuda::Encoder& e, const Batches& batches, const cuda::GemmCall& g) {
  for_each_gemm(batches, g, [&](cuda::GemmCall& one, int64_t n, int64_t a, int64_t b, int64_t c) {
    one.batch = n, one.a_batch = a, one.b_batch = b, one.c_batch = c;
    cuda::gemm(e, one);
  });
}

}  // namespace

void Matmul::cuda(KernelCall& c) {
  const Tensor& out = c.out();
  if (out.meta().numel == 0) return;
  cuda::Encoder e(out.device(), c.def.info.name);
  Tensor a = regular(c.in(0)), b = regular(c.in(1));
  Batches batches;
  auto g = matmul_call<cuda::GemmCall>(a, b, out, batches);
  fold_regular(batches, g);
  if (batches.outer_total() > kMaxLaunches) {
    int batch_dims = std::max(a.dim(), b.dim()) - 2;
    a = with_all_batches(a, out.sizes(), batch_dims);
    b = with_all_batches(b, out.sizes(), batch_dims);
    batches = {};
    g = matmul_call<cuda::GemmCall>(a, b, out, batches);
    fold_regular(batches, g);
  }
  run(e, batches, g);
}

void Linear::cuda(KernelCall& c) {
  const Tensor& out = c.out();
  if (out.meta().numel == 0) return;
  cuda::Encoder e(out.device(), c.def.info.name);
  Tensor w = regular(c.in(1)), bias = c.has(2) ? as_dense(c.in(2)) : Tensor();
  Batches rows;
  auto g = linear_call<cuda::GemmCall>(c.in(0), w, bias, out, rows);
  fold(rows, g);
  if (rows.outer_total() == 1 && is_regular(g)) return run(e, rows, g);
  Tensor x = as_dense(c.in(0));
  rows = {};
  g = linear_call<cuda::GemmCall>(x, w, bias, out, rows);
  run(e, rows, g);
}

}  // namespace deft
