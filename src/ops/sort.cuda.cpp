// sort, topk and unique on CUDA.
#include "kernels/cuda/reduce/sort.h"

#include "base/check.h"
#include "ops/sort.h"
#include "ops/sort_common.h"
#include "runtime/context.h"

namespace deft {

namespace {

void check_length(const char* op, int64_t n) {
  DEFT_CHECK(n < cuda::kLongestSort, UnsupportedError,
             "{}: found a row of {} values, expected fewer than 2^31 on CUDA; sort it in parts", op, n);
}

// The first k of every row along `dim`.
void run(KernelCall& c, int64_t dim, int64_t k, bool descending) {
  by_rows(c, dim, [&](const Tensor& x, int64_t outer, int64_t n, void* values, int64_t* indices) {
    check_length(c.def.info.name, n);
    cuda::Encoder e(x.device(), c.def.info.name);
    cuda::sort(e, x.dtype(), x.data_ptr(), outer, n, k, descending, values, indices);
  });
}

}  // namespace

void Sort::cuda(KernelCall& c) {
  const Params& p = c.params<Sort>();
  const Tensor& x = c.in();
  run(c, p.dim, x.dim() ? x.sizes()[static_cast<int>(p.dim)] : 1, p.descending);
}
void TopK::cuda(KernelCall& c) {
  const Params& p = c.params<TopK>();
  run(c, p.dim, p.k, p.largest);
}

void Unique::cuda(KernelCall& c) {
  Tensor x = as_dense(c.in());
  check_length("unique", x.numel());
  auto make = [&](const Shape& sizes, DType t) { return Tensor(make_tensor(Meta::dense(sizes, t, x.device()))); };
  c.out(1) = make(x.sizes(), DType::i64);
  if (x.numel() == 0) {
    c.out(0) = make(Shape{0}, x.dtype());
    c.out(2) = make(Shape{0}, DType::i64);
    return;
  }
  count_sync("unique", effective_site(Site()));
  cuda::Encoder e(x.device(), c.def.info.name);
  cuda::Unique found(e, x.dtype(), x.data_ptr(), x.numel(), c.out(1).data<int64_t>());
  const int64_t n = found.count();
  c.out(0) = make(Shape{n}, x.dtype());
  c.out(2) = make(Shape{n}, DType::i64);
  found.put(c.out(0).data_ptr(), c.out(2).data<int64_t>(), n);
}

}  // namespace deft
