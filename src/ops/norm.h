// Normalisation layers as functions. Statistics of 16-bit inputs are kept in f32.
#pragma once

#include "core/op.h"

namespace deft {

struct OpSamples;

// Bits of Params::wanted of the backward ops: outputs that are not wanted come back empty.
enum NormGrads : uint8_t { kGradX = 1, kGradWeight = 2, kGradBias = 4 };

constexpr OpInfo norm_info(const char* name, int inputs, int outputs, std::array<uint16_t, kMaxUses> uses,
                           OnnxName onnx = {}, Autocast autocast = Autocast::fp32) {
  return {.name = name,
          .inputs = inputs,
          .outputs = outputs,
          .fusion = Fusion::row_reduce,
          .autocast = autocast,
          .uses = uses,
          .onnx = onnx};
}
inline constexpr uint16_t kNormSaved = input(0) | input(1) | output(1) | output(2);
// A backward op reads all of (g, x, weight, mean, rstd) when it is differentiated.
inline constexpr std::array<uint16_t, kMaxUses> kNormBackwardUses = {0x1f, 0x1f, 0x1f, 0, 0, 0};

// (x, weight, bias) -> (y, mean, rstd): over the last dims; weight and bias have their shape or are missing.
struct LayerNorm {
  struct Params {
    Shape normalized_shape;
    double eps = 1e-5;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info =
      norm_info("layer_norm", 3, 3, {kNormSaved, input(0) | output(1) | output(2), 0}, {"LayerNormalization", 17});
  static std::array<Meta, 3> infer(const Meta& x, const Meta& weight, const Meta& bias, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// (g, x, weight, mean, rstd) -> (dx, dweight, dbias).
struct LayerNormBackward {
  struct Params {
    Shape normalized_shape;
    double eps = 1e-5;
    uint8_t wanted = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = norm_info("layer_norm_backward", 5, 3, kNormBackwardUses);
  static std::array<Meta, 3> infer(const Meta& g, const Meta& x, const Meta& weight, const Meta& mean, const Meta& rstd,
                                   const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// (x, weight) -> (y, rstd): x / sqrt(mean(x^2) + eps) * weight over the last dims.
struct RmsNorm {
  using Params = LayerNorm::Params;
  static constexpr OpInfo info =
      norm_info("rms_norm", 2, 2, {input(0) | input(1) | output(1), input(0) | output(1)}, {"RMSNormalization", 23});
  static std::array<Meta, 2> infer(const Meta& x, const Meta& weight, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// (g, x, weight, rstd) -> (dx, dweight).
struct RmsNormBackward {
  using Params = LayerNormBackward::Params;
  static constexpr OpInfo info = norm_info("rms_norm_backward", 4, 2, {0xf, 0xf, 0xf, 0, 0, 0});
  static std::array<Meta, 2> infer(const Meta& g, const Meta& x, const Meta& weight, const Meta& rstd, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// (x, weight, bias) -> (y, mean, rstd): x is N,C,...; statistics per image and group of channels.
struct GroupNorm {
  struct Params {
    int64_t groups = 1;
    double eps = 1e-5;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info =
      norm_info("group_norm", 3, 3, {kNormSaved, input(0) | output(1) | output(2), 0}, {"GroupNormalization", 21});
  static std::array<Meta, 3> infer(const Meta& x, const Meta& weight, const Meta& bias, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// (g, x, weight, mean, rstd) -> (dx, dweight, dbias).
struct GroupNormBackward {
  struct Params {
    int64_t groups = 1;
    double eps = 1e-5;
    uint8_t wanted = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = norm_info("group_norm_backward", 5, 3, kNormBackwardUses);
  static std::array<Meta, 3> infer(const Meta& g, const Meta& x, const Meta& weight, const Meta& mean, const Meta& rstd,
                                   const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// (x, weight, bias, running_mean, running_var) -> (y, mean, rstd): x is N,C or N,C,...; statistics per channel.
// Training takes them from the batch and moves the running ones towards them, otherwise the running ones are used.
// Weight and bias of a 16-bit x may be f32, and under autocast x stays in its type: the pass is bound by memory.
struct BatchNorm {
  struct Params {
    bool training = false;
    double momentum = 0.1, eps = 1e-5;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = norm_info("batch_norm", 5, 3, {kNormSaved, input(0) | output(1) | output(2), 0},
                                           {"BatchNormalization", 15}, Autocast::none);
  static std::array<Meta, 3> infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& running_mean,
                                   const Meta& running_var, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// (g, x, weight, mean, rstd) -> (dx, dweight, dbias).
struct BatchNormBackward {
  struct Params {
    bool training = false;
    double eps = 1e-5;
    uint8_t wanted = 0;
    DType factors = DType::f32;  // of weight and bias, and so of their gradients
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = norm_info("batch_norm_backward", 5, 3, kNormBackwardUses);
  static std::array<Meta, 3> infer(const Meta& g, const Meta& x, const Meta& weight, const Meta& mean, const Meta& rstd,
                                   const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// For plans of training steps: relu(batch_norm(x) + residual) with statistics of the batch, and its gradients. The
// value before the relu is not kept. Same bits as the ops one by one: what they store is rounded here, too.
//
// (x, weight, bias, running_mean, running_var, residual or none) -> (y, mean, rstd, affine): affine [2, channels] has
// the factors and offsets of y = relu(factor * (x - mean) + offset + residual).
struct FusedBatchNorm {
  using Params = BatchNorm::Params;
  static constexpr OpInfo info = norm_info("fused_batch_norm", 6, 4, {}, {}, Autocast::none);
  static constexpr const char* not_differentiable = "it is part of a compiled plan; gradients are recorded uncompiled";
  static std::array<Meta, 4> infer(const Meta& x, const Meta& weight, const Meta& bias, const Meta& running_mean,
                                   const Meta& running_var, const Meta& residual, const Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};
// (g, x, weight, mean, rstd, affine, y, more) -> (dx, dweight, dbias, masked): masked = g + more where y is not <= 0,
// the gradient before the relu and so that of a residual. Without y the mask is found from x and affine, `more` is not
// there, and masked comes back empty: it is not stored.
struct FusedBatchNormBackward {
  using Params = BatchNormBackward::Params;
  static constexpr OpInfo info = norm_info("fused_batch_norm_backward", 8, 4, {});
  static constexpr const char* not_differentiable = "it is part of a compiled plan; gradients are recorded uncompiled";
  static std::array<Meta, 4> infer(const Meta& g, const Meta& x, const Meta& weight, const Meta& mean, const Meta& rstd,
                                   const Meta& affine, const Meta& y, const Meta& more, const Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// Composed of others.
struct InstanceNorm {
  static constexpr OpInfo info{.name = "instance_norm", .inputs = 3, .onnx = {"InstanceNormalization", 6}};
  static OpSamples samples();
};

// Missing weight and bias are undefined tensors.
Tensor layer_norm(const Tensor& x, IntList normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Site site = Site::current());
Tensor rms_norm(const Tensor& x, IntList normalized_shape, const Tensor& weight = {}, double eps = 1e-6,
                Site site = Site::current());
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Site site = Site::current());
// Training writes running_mean and running_var in place (the variance unbiased), also under no_grad, without a graph.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5,
                  Site site = Site::current());
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5, Site site = Site::current());

}  // namespace deft
