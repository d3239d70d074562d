// Softmax and its logarithm along one dim.
#pragma once

#include "core/op.h"

namespace deft {

struct OpSamples;

struct SoftmaxParams {
  int64_t dim = -1;
  bool operator==(const SoftmaxParams&) const = default;
};

struct Softmax {
  using Params = SoftmaxParams;
  static constexpr OpInfo info{.name = "softmax",
                               .fusion = Fusion::row_reduce,
                               .autocast = Autocast::fp32,
                               .uses = {output()},
                               .onnx = {"Softmax", 13}};
  static Meta infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
struct LogSoftmax {
  using Params = SoftmaxParams;
  static constexpr OpInfo info{.name = "log_softmax",
                               .fusion = Fusion::row_reduce,
                               .autocast = Autocast::fp32,
                               .uses = {output()},
                               .onnx = {"LogSoftmax", 13}};
  static Meta infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Gradients from (g, y): y * (g - sum(g * y)) and g - exp(y) * sum(g).
struct SoftmaxBackward {
  using Params = SoftmaxParams;
  static constexpr OpInfo info{
      .name = "softmax_backward", .inputs = 2, .fusion = Fusion::row_reduce, .uses = {input(1), input(0) | input(1)}};
  static Meta infer(const Meta& g, const Meta& y, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};
struct LogSoftmaxBackward {
  using Params = SoftmaxParams;
  static constexpr OpInfo info{.name = "log_softmax_backward",
                               .inputs = 2,
                               .fusion = Fusion::row_reduce,
                               .uses = {input(1), input(0) | input(1)}};
  static Meta infer(const Meta& g, const Meta& y, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

struct Softmin {
  static constexpr OpInfo info{.name = "softmin"};
  static OpSamples samples();
};

Tensor softmax(const Tensor& x, int64_t dim, Site site = Site::current());
Tensor log_softmax(const Tensor& x, int64_t dim, Site site = Site::current());
// softmax(-x).
Tensor softmin(const Tensor& x, int64_t dim, Site site = Site::current());
// x is converted to `dtype` first.
Tensor softmax(const Tensor& x, int64_t dim, DType dtype, Site site = Site::current());
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype, Site site = Site::current());

}  // namespace deft
