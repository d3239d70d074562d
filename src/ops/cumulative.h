// Running sums and products, and differences.
#pragma once

#include "core/op.h"

namespace deft {

struct OpSamples;

// Integers and bool give i64. `reverse` runs from the last element to the first.
struct CumSum {
  struct Params {
    int64_t dim = 0;
    bool reverse = false;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "cumsum", .dtypes = kAllTypes, .autocast = Autocast::fp32, .onnx = {"CumSum", 14}};
  static Meta infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Integers and bool give i64. The gradient is right with zeros among the factors.
struct CumProd {
  struct Params {
    int64_t dim = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "cumprod", .dtypes = kAllTypes, .autocast = Autocast::fp32, .uses = {input(0) | output()}};
  static Meta infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

struct Diff {
  static constexpr OpInfo info{.name = "diff", .dtypes = kAllTypes};
  static OpSamples samples();
};

Tensor cumsum(const Tensor& x, int64_t dim, Site site = Site::current());
Tensor cumprod(const Tensor& x, int64_t dim, Site site = Site::current());
// x[i + 1] - x[i] along a dim, n times over.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, Site site = Site::current());

}  // namespace deft
