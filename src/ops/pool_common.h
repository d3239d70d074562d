// What the pooling kernels of all devices are called with. Internal.
#pragma once

#include "ops/dense.h"
#include "ops/pool.h"

namespace deft::pooling {

inline bool keeps_channels_last(const Meta& x) { return !x.contiguous && x.is_channels_last(); }

// Call is the PoolCall of a device. x: any tensor of the call, for its type, images and channels.
template <class Call>
Call pool_call(const PoolParams& p, const Meta& x, bool channels_last) {
  Call c{};
  c.dtype = x.dtype;
  c.spatial = static_cast<int>(p.spatial);
  c.outer = channels_last ? x.sizes[0] : x.sizes[0] * x.sizes[1];
  c.inner = channels_last ? x.sizes[1] : 1;
  c.adaptive = p.adaptive;
  c.count_include_pad = p.count_include_pad;
  c.divisor_override = p.divisor;
  for (size_t i = 0; i < 3; ++i) {
    bool used = i < static_cast<size_t>(p.spatial);
    c.in[i] = used ? p.in[i] : 1;
    c.out[i] = used ? p.out[i] : 1;
    c.kernel[i] = p.kernel[i];
    c.stride[i] = p.stride[i];
    c.pad[i] = p.pad[i];
    c.dilation[i] = p.dilation[i];
  }
  return c;
}

// kernel(call, x, y, indices)
template <class Call, class F>
void max_forward(KernelCall& c, const PoolParams& p, F&& kernel) {
  if (c.out().numel() == 0) return;
  bool last = keeps_channels_last(c.in().meta());
  Tensor x = as_dense(c.in(), last);
  int64_t* indices = p.indices ? c.out(1).template data<int64_t>() : nullptr;
  kernel(pool_call<Call>(p, x.meta(), last), x.data_ptr(), c.out(0).data_ptr(), indices);
}
// kernel(call, dy, indices, dx)
template <class Call, class F>
void max_backward(KernelCall& c, const PoolParams& p, F&& kernel) {
  if (c.out().numel() == 0) return;
  bool last = keeps_channels_last(c.in(1).meta());
  Tensor g = as_dense(c.in(0), last), indices = as_dense(c.in(1), last);
  kernel(pool_call<Call>(p, g.meta(), last), g.data_ptr(), indices.template data<const int64_t>(), c.out().data_ptr());
}
// Both directions: kernel(call, from, to)
template <class Call, class F>
void average(KernelCall& c, const PoolParams& p, F&& kernel) {
  if (c.out().numel() == 0) return;
  bool last = keeps_channels_last(c.in().meta());
  Tensor from = as_dense(c.in(), last);
  kernel(pool_call<Call>(p, from.meta(), last), from.data_ptr(), c.out().data_ptr());
}

}  // namespace deft::pooling
