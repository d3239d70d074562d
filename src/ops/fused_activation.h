// The activations that a matmul or a convolution may end with, in the same pass.
#pragma once

#include <cstdint>

namespace deft {

// gelu is the exact form (erf), gelu_tanh the approximation.
enum class FusedActivation : uint8_t { none, relu, gelu, gelu_tanh, silu, sigmoid, tanh };

}  // namespace deft
