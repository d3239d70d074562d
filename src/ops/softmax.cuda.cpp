#include "kernels/cuda/norm/softmax.h"

#include "ops/softmax_common.h"

namespace deft {

namespace {

void run(KernelCall& c, int64_t dim, bool log_result) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  rows::run<cuda::RowsView>(
      c, dim, [&](const cuda::RowsView& v, const void* x, void* y) { cuda::softmax(e, v, x, y, log_result); });
}
void run_backward(KernelCall& c, int64_t dim, bool log_result) {
  cuda::Encoder e(c.out().device(), c.def.info.name);
  rows::run_backward<cuda::RowsView>(c, dim, [&](const cuda::RowsView& v, const void* g, const void* y, void* dx) {
    cuda::softmax_backward(e, v, g, y, dx, log_result);
  });
}

}  // namespace

void Softmax::cuda(KernelCall& c) { run(c, c.params<Softmax>().dim, false); }
void LogSoftmax::cuda(KernelCall& c) { run(c, c.params<LogSoftmax>().dim, true); }
void SoftmaxBackward::cuda(KernelCall& c) { run_backward(c, c.params<SoftmaxBackward>().dim, false); }
void LogSoftmaxBackward::cuda(KernelCall& c) { run_backward(c, c.params<LogSoftmaxBackward>().dim, true); }

}  // namespace deft
