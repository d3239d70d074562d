// Convolution by plain kernels of our own: for everything cuDNN does not take. Right for all floats and sizes, and the
// same from run to run; not fast.
#pragma once

#include "kernels/cuda/conv/conv.h"

namespace deft::cuda {

// 16-bit floats accumulate in f32 and round once. Residual and activation are left to run_epilogue().
void conv_direct(Encoder& e, ConvKind kind, const ConvCall& call);

}  // namespace deft::cuda
