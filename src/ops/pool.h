// Max and average pooling over 1 to 3 spatial dimensions, plain and adaptive. Unbatched inputs are accepted.
#pragma once

#include <array>

#include "core/op.h"

namespace deft {

struct OpSamples;

struct PoolParams {
  int64_t spatial = 2;
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};
  std::array<int64_t, 3> out{0, 0, 0};  // adaptive: asked for; otherwise filled by infer()
  std::array<int64_t, 3> in{0, 0, 0};   // filled by infer()
  int64_t divisor = 0;
  bool adaptive = false, ceil_mode = false, count_include_pad = true;
  bool indices = true;  // max: whether they are wanted
  bool operator==(const PoolParams&) const = default;
};

// Results: values and the flat spatial positions (i64) they came from, or nothing in their place.
struct MaxPool {
  using Params = PoolParams;
  static constexpr OpInfo info{
      .name = "max_pool", .outputs = 2, .dtypes = kNumbers, .uses = {output(1)}, .onnx = {"MaxPool", 12}};
  static std::array<Meta, 2> infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// Inputs (gradient, indices).
struct MaxPoolBackward {
  using Params = PoolParams;
  static constexpr OpInfo info{.name = "max_pool_backward", .inputs = 2, .uses = {input(1)}};
  static Meta infer(const Meta& g, const Meta& indices, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};
struct AvgPool {
  using Params = PoolParams;
  static constexpr OpInfo info{.name = "avg_pool", .onnx = {"AveragePool", 11}};
  static Meta infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
struct AvgPoolBackward {
  using Params = PoolParams;
  static constexpr OpInfo info{.name = "avg_pool_backward"};
  static Meta infer(const Meta& g, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// One number in a list stands for all dimensions; an empty stride is the kernel.
#define DEFT_POOL(n)                                                                                         \
  Tensor max_pool##n##d(const Tensor& x, IntList kernel, IntList stride = {}, IntList padding = {0},         \
                        IntList dilation = {1}, bool ceil_mode = false, Site site = Site::current());        \
  std::array<Tensor, 2> max_pool##n##d_with_indices(const Tensor& x, IntList kernel, IntList stride = {},    \
                                                    IntList padding = {0}, IntList dilation = {1},           \
                                                    bool ceil_mode = false, Site site = Site::current());    \
  Tensor avg_pool##n##d(const Tensor& x, IntList kernel, IntList stride = {}, IntList padding = {0},         \
                        bool ceil_mode = false, bool count_include_pad = true, int64_t divisor_override = 0, \
                        Site site = Site::current());                                                        \
  Tensor adaptive_avg_pool##n##d(const Tensor& x, IntList output, Site site = Site::current());              \
  Tensor adaptive_max_pool##n##d(const Tensor& x, IntList output, Site site = Site::current());              \
  std::array<Tensor, 2> adaptive_max_pool##n##d_with_indices(const Tensor& x, IntList output,                \
                                                             Site site = Site::current());
DEFT_POOL(1)
DEFT_POOL(2)
DEFT_POOL(3)
#undef DEFT_POOL

}  // namespace deft
