// Convolutions over 1 to 3 spatial dimensions.
//
// The three ops are the three derivatives of one trilinear form, so their gradients are each other: ConvTranspose is
// the gradient of Convolution for its input, ConvBackwardWeight the one for the weight.
#pragma once

#include <array>

#include "core/op.h"
#include "ops/fused_activation.h"

namespace deft {

struct OpSamples;

struct ConvGeometry {
  int spatial = 2;  // how many entries count
  std::array<int64_t, 3> stride{1, 1, 1}, padding{}, dilation{1, 1, 1};
  int64_t groups = 1;
  bool channels_last = false;  // memory order of the result; set by infer() when the input has it
  bool operator==(const ConvGeometry&) const = default;
};

// x [n, c_in, spatial...], weight [c_out, c_in / groups, kernel...], bias [c_out] or none. The result is channels_last
// in memory if x is.
struct Convolution {
  using Params = ConvGeometry;
  static constexpr OpInfo info{.name = "convolution",
                               .inputs = 3,
                               .dtypes = kFloats,
                               .fusion = Fusion::contraction,
                               .autocast = Autocast::low,
                               .cost = Cost::compute_bound,
                               .uses = {input(1), input(0), 0},
                               .onnx = {"Conv", 11}};
  static Meta infer(const Meta& x, const Meta& weight, const Meta& bias, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// activation(the convolution plus residual, which is like the result or none). Made by compile(), whose shapes repeat:
// on CUDA devices the first call of a shape times the kernels there are, unless deterministic().
struct FusedConvolution {
  struct Params {
    ConvGeometry geometry;
    FusedActivation activation = FusedActivation::none;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "fused_convolution",
                               .inputs = 4,
                               .dtypes = kFloats,
                               .fusion = Fusion::contraction,
                               .cost = Cost::compute_bound};
  static constexpr const char* not_differentiable = "it is part of a compiled plan; gradients are recorded uncompiled";
  static Meta infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& residual, Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// x [n, c_in, spatial...], weight [c_in, c_out / groups, kernel...], bias [c_out] or none.
struct ConvTranspose {
  struct Params {
    ConvGeometry geometry;
    std::array<int64_t, 3> output_padding{};
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "conv_transpose",
                               .inputs = 3,
                               .dtypes = kFloats,
                               .fusion = Fusion::contraction,
                               .autocast = Autocast::low,
                               .cost = Cost::compute_bound,
                               .uses = {input(1), input(0), 0},
                               .onnx = {"ConvTranspose", 11}};
  static Meta infer(const Meta& x, const Meta& weight, const Meta& bias, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// From the input x of a convolution and the gradient g of its result: the gradient of its weight.
struct ConvBackwardWeight {
  struct Params {
    ConvGeometry geometry;
    std::array<int64_t, 3> kernel{1, 1, 1};
    bool wide_result = false;  // on CPUs: f32 from 16-bit inputs, not rounded
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "conv_backward_weight",
                               .inputs = 2,
                               .dtypes = kFloats,
                               .fusion = Fusion::contraction,
                               .autocast = Autocast::low,
                               .cost = Cost::compute_bound,
                               .uses = {input(1), input(0)}};
  static Meta infer(const Meta& x, const Meta& g, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Lists of one number hold for all dimensions. An input without the batch dimension gives a result without it.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, IntList stride = {1},
              IntList padding = {0}, IntList dilation = {1}, int64_t groups = 1, Site site = Site::current());
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, IntList stride = {1},
              IntList padding = {0}, IntList dilation = {1}, int64_t groups = 1, Site site = Site::current());
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, IntList stride = {1},
              IntList padding = {0}, IntList dilation = {1}, int64_t groups = 1, Site site = Site::current());

// Padding by name: `same` keeps the spatial sizes (stride 1; an odd amount has its larger half at the end).
enum class ConvPadding : uint8_t { valid, same };
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, ConvPadding padding,
              IntList dilation = {1}, int64_t groups = 1, Site site = Site::current());
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, ConvPadding padding,
              IntList dilation = {1}, int64_t groups = 1, Site site = Site::current());
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, IntList stride, ConvPadding padding,
              IntList dilation = {1}, int64_t groups = 1, Site site = Site::current());

// output_padding adds to one side of the result; it must be smaller than the stride or the dilation.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, IntList stride = {1},
                        IntList padding = {0}, IntList output_padding = {0}, int64_t groups = 1, IntList dilation = {1},
                        Site site = Site::current());
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, IntList stride = {1},
                        IntList padding = {0}, IntList output_padding = {0}, int64_t groups = 1, IntList dilation = {1},
                        Site site = Site::current());
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, IntList stride = {1},
                        IntList padding = {0}, IntList output_padding = {0}, int64_t groups = 1, IntList dilation = {1},
                        Site site = Site::current());

}  // namespace deft
