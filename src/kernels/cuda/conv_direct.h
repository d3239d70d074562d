// Convolution by plain kernels of our own: for everything cuDNN does not take. Right for all floats and sizes, and the
// same from run to run; not fast.
#pragma once

#include "kernels/cuda/conv.h"

namespace deft::cuda {

// 16-bit floats accumulate in f32 and round once.
void conv_direct(Encoder& e, ConvKind kind, const ConvCall& call);

// y[n, c, positions] += bias[c]; with channels_last the memory order is n, positions, c.
void add_channel_bias(Encoder& e, DType dtype, void* y, const void* bias, int64_t n, int64_t channels,
                      int64_t positions, bool channels_last);

}  // namespace deft::cuda
