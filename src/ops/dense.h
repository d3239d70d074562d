// Dense copies for kernels that cannot take strides. No autograd: for use inside kernels only.
#pragma once

#include "ops/operand.h"

namespace deft {

// `t` itself if it has the wanted order already.
inline Tensor as_dense(const Tensor& t, bool channels_last = false) {
  const Meta& m = t.meta();
  if (channels_last ? m.is_channels_last() : m.contiguous) return t;
  Meta dense = Meta::dense(m.sizes, m.dtype, m.device);
  if (channels_last) dense.set_strides(channels_last_strides(m.sizes));
  Tensor copy(make_tensor(dense));
  copy_values(t, copy);
  return copy;
}

// The same, and never the memory of `out`: for kernels that may write it before they have read all of `t`.
inline Tensor as_dense_apart(const Tensor& t, const Tensor& out, bool channels_last = false) {
  Tensor dense = as_dense(t, channels_last);
  if (dense.data_ptr() != out.data_ptr()) return dense;
  Tensor copy(make_tensor(dense.meta()));
  copy_values(dense, copy);
  return copy;
}

}  // namespace deft
