#include "kernels/cuda/index/index.h"

#include "kernels/cuda/device/read_back.h"
#include "kernels/cuda/index/index_mask.h"
#include "ops/dense.h"
#include "ops/gather_scatter.h"
#include "ops/index_common.h"
#include "ops/index_cuda.h"
#include "runtime/numerics.h"
#include "runtime/sync.h"

namespace deft {

namespace {

using namespace indexing;

// Over the sizes of `walked`, which an index of `indexed` along dim points into.
cuda::IndexSpace index_space(const Tensor& walked, int64_t dim, const Tensor& indexed) {
  cuda::IndexSpace s{};
  s.ndim = walked.dim();
  for (int i = 0; i < s.ndim; ++i) s.sizes[i] = walked.sizes()[i];
  s.dim = static_cast<int>(dim);
  s.dim_size = indexed.sizes()[s.dim];
  return s;
}
// A list as an index that is the same along all other dims.
cuda::Operand spread(const Tensor& list, int dim) {
  cuda::Operand o{list.data_ptr(), list.dtype(), {}};
  o.strides[dim] = list.strides()[0];
  return o;
}

void run_scatter(KernelCall& c, const Scatter::Params& p) {
  constexpr cuda::ScatterOp kinds[] = {cuda::ScatterOp::assign, cuda::ScatterOp::add, cuda::ScatterOp::mul,
                                       cuda::ScatterOp::min, cuda::ScatterOp::max};
  cuda::Encoder e(c.out().device(), name_of(p.reduce));
  Tensor index = at_least_1d(apart_from(c.in(1), c.out())), source = at_least_1d(apart_from(c.in(2), c.out()));
  Tensor out = at_least_1d(c.out());
  start_from(c.in(0), c.out());
  cuda::scatter(e, kinds[static_cast<int>(p.reduce)], index_space(index, p.dim, out), device_operand(out),
                device_operand(index), device_operand(source), deterministic());
}

}  // namespace

void Gather::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor x = at_least_1d(c.in(0)), index = at_least_1d(c.in(1)), out = at_least_1d(c.out());
  cuda::gather(e, index_space(index, c.params<Gather>().dim, x), device_operand(x), device_operand(index),
               device_operand(out));
}
void ScatterAdd::cuda(KernelCall& c) { run_scatter(c, c.params<ScatterAdd>()); }
void Scatter::cuda(KernelCall& c) { run_scatter(c, c.params<Scatter>()); }

void IndexSelect::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor x = at_least_1d(c.in(0)), index = at_least_1d(c.in(1)), out = at_least_1d(c.out());
  cuda::IndexSpace s = index_space(out, c.params<IndexSelect>().dim, x);
  s.list = true;
  cuda::index_select(e, s, device_operand(x), spread(index, s.dim), device_operand(out));
}

void IndexAdd::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  Tensor index = at_least_1d(apart_from(c.in(1), c.out())), source = at_least_1d(apart_from(c.in(2), c.out()));
  Tensor out = at_least_1d(c.out());
  start_from(c.in(0), c.out());
  cuda::IndexSpace s = index_space(source, c.params<IndexAdd>().dim, out);
  s.list = true;
  cuda::scatter(e, cuda::ScatterOp::add, s, device_operand(out), spread(index, s.dim), device_operand(source),
                deterministic());
}

void Embedding::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const Tensor& table = c.in(0);
  Tensor index = as_dense(c.in(1));
  cuda::IndexSpace s{2, {index.numel(), table.sizes()[1]}, 0, table.sizes()[0], true};
  cuda::Operand list{index.data_ptr(), DType::i64, {1, 0}};
  cuda::Operand rows{c.out().data_ptr(), table.dtype(), {table.sizes()[1], 1}};
  cuda::index_select(e, s, device_operand(table), list, rows);
}

void EmbeddingBackward::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const Params& p = c.params<EmbeddingBackward>();
  Tensor grad = as_dense(c.in(0)), index = as_dense(c.in(1));
  cuda::embedding_backward(e, grad.dtype(), grad.data_ptr(), index.numel(), c.out().sizes()[1],
                           index.data<const int64_t>(), p.padding_index, c.out().data_ptr(), p.rows);
}

// --- masks -----------------------------------------------------------------------------------------------------

namespace {

// Set elements before each block of x, and their total once the device has counted.
struct Counted {
  int64_t blocks;
  cuda::Workspace starts;
  Counted(cuda::Encoder& e, const Tensor& x)
      : blocks(cuda::mask_blocks(x.numel())), starts(e, static_cast<size_t>(blocks + 1) * sizeof(int64_t)) {
    cuda::count_set(e, x.dim(), x.sizes().data(), device_operand(x), starts.as<int64_t>());
  }
  // The host waits: the result's size is this number.
  int64_t total(const cuda::Encoder& e) const { return cuda::read_back(e, starts.as<int64_t>() + blocks); }
};

}  // namespace

void MaskedSelect::cuda(KernelCall& c) {
  const Tensor &x = c.in(0), &mask = c.in(1);
  cuda::Encoder e(x.device(), c.def.info.name);
  if (x.numel() == 0) {
    c.out() = Tensor(make_tensor(Meta::dense(Shape{0}, x.dtype(), x.device())));
    return;
  }
  count_sync(c.def.info.name, effective_site(Site()));
  Counted set(e, mask);
  int64_t n = set.total(e);
  c.out() = Tensor(make_tensor(Meta::dense(Shape{n}, x.dtype(), x.device())));
  if (n)
    cuda::select_masked(e, x.dim(), x.sizes().data(), device_operand(x), device_operand(mask), set.starts.as<int64_t>(),
                        c.out().data_ptr());
}

void MaskedUnpack::cuda(KernelCall& c) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  const Tensor& mask = c.in(1);
  if (mask.numel() == 0) return;
  Tensor values = as_dense(c.in(0));
  Counted set(e, mask);
  cuda::unpack_masked(e, mask.dim(), mask.sizes().data(), values.data_ptr(), values.numel(), values.dtype(),
                      device_operand(mask), set.starts.as<int64_t>(), c.out().data_ptr());
}

void Nonzero::cuda(KernelCall& c) {
  const Tensor& x = c.in();
  cuda::Encoder e(x.device(), c.def.info.name);
  auto result = [&](int64_t n) { return Tensor(make_tensor(Meta::dense(Shape{n, x.dim()}, DType::i64, x.device()))); };
  if (x.numel() == 0) {
    c.out() = result(0);
    return;
  }
  count_sync(c.def.info.name, effective_site(Site()));
  Counted set(e, x);
  int64_t n = set.total(e);
  c.out() = result(n);
  if (n && x.dim())
    cuda::write_nonzero(e, x.dim(), x.sizes().data(), device_operand(x), set.starts.as<int64_t>(),
                        c.out().data<int64_t>());
}

}  // namespace deft
