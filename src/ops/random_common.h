// What the random ops of all devices share. Internal.
#pragma once

#include "ops/operand.h"

namespace deft {

// Elements are numbered row-major; tensors in another memory order are filled through a row-major copy.
template <class Fill>
void fill_row_major(const Tensor& out, Fill fill) {
  if (out.meta().contiguous) return fill(out);
  Tensor dense(make_tensor(Meta::dense(out.sizes(), out.dtype(), out.device())));
  fill(dense);
  copy_values(dense, out);
}

}  // namespace deft
