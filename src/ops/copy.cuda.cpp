#include "kernels/cuda/copy/copy.h"
#include "kernels/cuda/copy/fill.h"
#include "ops/copy.h"
#include "ops/operand.h"

namespace deft {

void Clone::cuda(KernelCall& c) { copy_values(c.in(), c.out()); }
void Cast::cuda(KernelCall& c) { copy_values(c.in(), c.out()); }
void CopyInto::cuda(KernelCall& c) { copy_values(c.in(1), c.out()); }
void Fill::cuda(KernelCall& c) { cpu(c); }  // it only calls fill_values()

namespace detail {

void cuda_copy(const Tensor& from, const Tensor& to) {
  const Meta& m = to.meta();
  if (from.device().is_cpu() && from.numel() == 1) {  // a number: converted here, then a fill
    Tensor element(make_tensor(Meta::dense(from.sizes(), m.dtype, kCPU)));
    copy_values(from, element);
    return cuda_fill(to, element.data_ptr());
  }
  cuda::Encoder e(m.device, "copy");
  cuda::copy_strided(e, operand_as<cuda::Operand>(from, m.sizes), operand<cuda::Operand>(to), m.rank(), m.sizes.data());
}

void cuda_fill(const Tensor& out, const void* value) {
  const Meta& m = out.meta();
  if (m.numel == 0) return;
  cuda::Encoder e(m.device, "fill");
  cuda::fill_strided(e, operand<cuda::Operand>(out), m.rank(), m.sizes.data(), value);
}

void cuda_zero(const Tensor& out) {
  if (out.numel() == 0) return;
  cuda::Encoder(out.device(), "zeros").zero(out.data_ptr(), static_cast<size_t>(out.numel()) * out.element_size());
}

namespace {
void fill_sequence(const Tensor& out, const char* op, cuda::Sequence sequence) {
  if (out.numel() == 0) return;
  sequence.count = out.numel();
  cuda::Encoder e(out.device(), op);
  cuda::fill_sequence(e, out.data_ptr(), out.dtype(), sequence);
}
}  // namespace

void cuda_arange(const Tensor& out, int64_t start, int64_t step) {
  fill_sequence(out, "arange", {.kind = cuda::Sequence::Kind::whole, .start = start, .step = step});
}
void cuda_arange(const Tensor& out, double start, double step) {
  fill_sequence(out, "arange", {.kind = cuda::Sequence::Kind::real, .first = start, .slope = step});
}
void cuda_linspace(const Tensor& out, double start, double end, double step) {
  fill_sequence(out, "linspace", {.kind = cuda::Sequence::Kind::between, .first = start, .last = end, .slope = step});
}
void cuda_eye(const Tensor& out) {
  fill_sequence(out, "eye", {.kind = cuda::Sequence::Kind::diagonal, .columns = out.sizes()[1]});
}

}  // namespace detail

}  // namespace deft
