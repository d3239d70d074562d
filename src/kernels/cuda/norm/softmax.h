// Softmax and its logarithm along one dim, and their gradients. Tensors are dense and of one floating dtype; bf16 and
// f16 are computed in f32.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// A row is the middle dim of a contiguous (outer, n, inner) view. None is 0.
struct RowsView {
  DType dtype;
  int64_t outer, n, inner;
};

// The output may be the input.
void softmax(Encoder& e, const RowsView& v, const void* x, void* y, bool log_result);
// From the gradient g of the result y: dx may be g.
void softmax_backward(Encoder& e, const RowsView& v, const void* g, const void* y, void* dx, bool log_result);

}  // namespace deft::cuda
