// The gradient of an elementwise op of one tensor, as an op: its fused gradient kernel, for captured graphs.
#pragma once

#include <array>

#include "core/op.h"

namespace deft {

// (g, x, y) -> gradient of the input. Where the formula reads no x or no y, g is passed instead.
struct ElementwiseGradient {
  static constexpr size_t kParamBytes = 32;
  struct Params {
    int32_t op = 0;                                  // op_index()
    DType dtype = DType::f32;                        // of the input, and so of the gradient
    std::array<uint64_t, kParamBytes / 8> params{};  // the op's own
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "elementwise_gradient", .inputs = 3, .fusion = Fusion::elementwise};
  static constexpr const char* not_differentiable = "it is part of a compiled plan; gradients are recorded uncompiled";
  static Meta infer(const Meta& g, const Meta& x, const Meta& y, const Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

}  // namespace deft
