#include "kernels/cuda/pool/pool.h"

#include "ops/pool_common.h"

namespace deft {

using namespace pooling;

namespace {

// kernel(encoder, arguments...) as a function of the arguments alone.
template <class F>
auto on_stream(KernelCall& c, F kernel) {
  return [e = cuda::Encoder(c.out().device(), c.def.info.name), kernel](const auto&... args) mutable {
    kernel(e, args...);
  };
}

}  // namespace

void MaxPool::cuda(KernelCall& c) {
  max_forward<cuda::PoolCall>(c, c.params<MaxPool>(), on_stream(c, cuda::max_pool_forward));
}
void MaxPoolBackward::cuda(KernelCall& c) {
  max_backward<cuda::PoolCall>(c, c.params<MaxPoolBackward>(), on_stream(c, cuda::max_pool_backward));
}
void AvgPool::cuda(KernelCall& c) {
  average<cuda::PoolCall>(c, c.params<AvgPool>(), on_stream(c, cuda::avg_pool_forward));
}
void AvgPoolBackward::cuda(KernelCall& c) {
  average<cuda::PoolCall>(c, c.params<AvgPoolBackward>(), on_stream(c, cuda::avg_pool_backward));
}

}  // namespace deft
