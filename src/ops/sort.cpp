#include "ops/sort.h"

#include "base/check.h"
#include "kernels/cpu/reduce/sort.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/gather_scatter.h"
#include "ops/sort_common.h"

namespace deft {

namespace {

void scatter_back(VjpContext& c, int64_t dim) {
  if (!c.grad().defined()) return;
  Tensor blank = zeros(c.input_sizes(0), {c.grad().dtype(), c.input_device(0)});
  c.grad_in(0) = scatter(blank, dim, c.saved_output(1), c.grad());
}

}  // namespace

std::array<Meta, 2> Sort::infer(const Meta& x, Params& p) {
  p.dim = normalize_dim(p.dim, x.rank(), "sort");
  return {Meta::dense(x.sizes, x.dtype, x.device), Meta::dense(x.sizes, DType::i64, x.device)};
}
void Sort::cpu(KernelCall& c) {
  const Params& p = c.params<Sort>();
  by_rows(c, p.dim, [&](const Tensor& x, int64_t outer, int64_t n, void* values, int64_t* indices) {
    cpu::sort(x.dtype(), x.data_ptr(), outer, n, p.descending, values, indices);
  });
}
void Sort::vjp(VjpContext& c) { scatter_back(c, c.params<Sort>().dim); }

std::array<Meta, 2> TopK::infer(const Meta& x, Params& p) {
  p.dim = normalize_dim(p.dim, x.rank(), "topk");
  int64_t n = x.rank() ? x.sizes[static_cast<int>(p.dim)] : 1;
  DEFT_CHECK(p.k >= 0 && p.k <= n, ValueError, "topk: k = {} is outside 0 to {}, the size of dimension {}", p.k, n,
             p.dim);
  Shape sizes = x.sizes;
  if (x.rank()) sizes[static_cast<int>(p.dim)] = p.k;
  DEFT_CHECK(x.rank() || p.k == 1, ValueError, "topk: a 0-d tensor has one value, k = {} was asked for", p.k);
  return {Meta::dense(sizes, x.dtype, x.device), Meta::dense(sizes, DType::i64, x.device)};
}
void TopK::cpu(KernelCall& c) {
  const Params& p = c.params<TopK>();
  by_rows(c, p.dim, [&](const Tensor& x, int64_t outer, int64_t n, void* values, int64_t* indices) {
    cpu::topk(x.dtype(), x.data_ptr(), outer, n, p.k, p.largest, values, indices);
  });
}
void TopK::vjp(VjpContext& c) { scatter_back(c, c.params<TopK>().dim); }

void Unique::cpu(KernelCall& c) {
  Tensor x = as_dense(c.in());
  auto make = [&](const Shape& sizes, DType t) { return Tensor(make_tensor(Meta::dense(sizes, t, x.device()))); };
  Tensor values = make(Shape{x.numel()}, x.dtype()), counts = make(Shape{x.numel()}, DType::i64);
  c.out(1) = make(x.sizes(), DType::i64);
  int64_t n = cpu::unique(x.dtype(), x.data_ptr(), x.numel(), values.data_ptr(), c.out(1).data<int64_t>(),
                          counts.data<int64_t>());
  c.out(0) = make(Shape{n}, x.dtype());
  c.out(2) = make(Shape{n}, DType::i64);
  if (n == 0) return;
  __builtin_memcpy(c.out(0).data_ptr(), values.data_ptr(), static_cast<size_t>(n) * x.element_size());
  __builtin_memcpy(c.out(2).data_ptr(), counts.data_ptr(), static_cast<size_t>(n) * sizeof(int64_t));
}

std::array<Tensor, 2> sort(const Tensor& x, int64_t dim, bool descending, Site site) {
  return call<Sort>(site, {dim, descending}, x);
}
Tensor argsort(const Tensor& x, int64_t dim, bool descending, Site site) {
  return call<Sort>(site, {dim, descending}, x)[1];
}
std::array<Tensor, 2> topk(const Tensor& x, int64_t k, int64_t dim, bool largest, Site site) {
  return call<TopK>(site, {k, dim, largest}, x);
}
std::array<Tensor, 3> unique(const Tensor& x, Site site) { return call<Unique>(site, {}, x); }

}  // namespace deft
