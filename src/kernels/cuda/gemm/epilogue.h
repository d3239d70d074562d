// What GEMMs and convolutions end with: bias, residual and activation.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// gelu is the exact form (erf), gelu_tanh the approximation.
enum class Activation : uint8_t { none, relu, gelu, gelu_tanh, silu, sigmoid, tanh };

// y [n, channels, positions]; with channels_last the memory order is n, positions, channels.
struct EpilogueCall {
  DType dtype;
  int64_t n, channels, positions;
  bool channels_last;
  void* y;
  const void* bias;      // nullable; one value per channel
  const void* residual;  // nullable; like y, and not y itself
  Activation activation;
};

// y = activation(y + bias + residual) in one pass, for what a library does not do itself. 16-bit floats compute in f32.
// Does nothing where there is nothing to do.
void run_epilogue(Encoder& e, const EpilogueCall& call);

}  // namespace deft::cuda
