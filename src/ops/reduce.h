// Reductions over any set of dimensions. An empty list of dims means all of them.
#pragma once

#include <array>
#include <optional>

#include "core/op.h"

namespace deft {

struct OpSamples;

struct ReduceParams {
  uint32_t dims = 0;  // bit i: dimension i is reduced
  bool keepdim = false;
  bool operator==(const ReduceParams&) const = default;
};

constexpr OpInfo reduce_info(const char* name, DTypeSet dtypes, uint16_t uses, OnnxName onnx = {},
                             Autocast autocast = Autocast::none) {
  return {
      .name = name, .dtypes = dtypes, .fusion = Fusion::row_reduce, .autocast = autocast, .uses = {uses}, .onnx = onnx};
}

#define DEFT_REDUCE_BODY                             \
  static Meta infer(const Meta& x, const Params& p); \
  static void cpu(KernelCall& c);                    \
  static void cuda(KernelCall& c);                   \
  static OpSamples samples();

// Integers and bool give i64.
struct Sum {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("sum", kAllTypes, 0, {"ReduceSum", 13}, Autocast::fp32);
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};

struct Mean {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("mean", kFloats, 0, {"ReduceMean", 13});
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};

// Integers and bool give i64. The gradient is right with zeros among the factors.
struct Prod {
  using Params = ReduceParams;
  static constexpr OpInfo info =
      reduce_info("prod", kAllTypes, input(0) | output(), {"ReduceProd", 13}, Autocast::fp32);
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};

// NaN wins. Equal extremes share the gradient equally, and so do NaNs.
struct Amax {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("amax", kAllTypes, input(0) | output(), {"ReduceMax", 13});
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};
struct Amin {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("amin", kAllTypes, input(0) | output(), {"ReduceMin", 13});
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};

// (g, x, extremes) -> the gradient of x; g and the extremes with reduced dims kept, which follow each other. Only on
// the CPU; elsewhere it is composed of other ops.
struct ExtremeBackward {
  struct Params {
    uint32_t dims = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "extreme_backward", .inputs = 3, .uses = {input(1) | input(2), 0, 0}};
  static Meta infer(const Meta& g, const Meta& x, const Meta& y, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
};

// Row-major index over the reduced dims (one, or all); the first one wins.
struct ArgMax {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("argmax", kNumbers, 0, {"ArgMax", 13});
  static constexpr const char* not_differentiable = "an index is not a smooth function of the values";
  DEFT_REDUCE_BODY
};
struct ArgMin {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("argmin", kNumbers, 0, {"ArgMin", 13});
  static constexpr const char* not_differentiable = "an index is not a smooth function of the values";
  DEFT_REDUCE_BODY
};

// Largest and smallest values along one dim, and where they are. The gradient goes to that place alone.
struct MaxDim {
  struct Params {
    int64_t dim = 0;
    bool keepdim = false;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "max", .outputs = 2, .dtypes = kNumbers, .fusion = Fusion::row_reduce, .uses = {output(1)}};
  static std::array<Meta, 2> infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
struct MinDim {
  using Params = MaxDim::Params;
  static constexpr OpInfo info{
      .name = "min", .outputs = 2, .dtypes = kNumbers, .fusion = Fusion::row_reduce, .uses = {output(1)}};
  static std::array<Meta, 2> infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

struct Any {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("any", kAllTypes, 0);
  static constexpr const char* not_differentiable = "its result is bool";
  DEFT_REDUCE_BODY
};
struct All {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("all", kAllTypes, 0);
  static constexpr const char* not_differentiable = "its result is bool";
  DEFT_REDUCE_BODY
};
struct CountNonzero {
  using Params = ReduceParams;
  static constexpr OpInfo info = reduce_info("count_nonzero", kAllTypes, 0);
  static constexpr const char* not_differentiable = "its result is a count";
  DEFT_REDUCE_BODY
};

// Sum of squared deviations over n - correction: 1 is the sample variance, 0 that of a population.
struct Var {
  struct Params {
    uint32_t dims = 0;
    bool keepdim = false;
    double correction = 1;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = reduce_info("var", kFloats, input(0));
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};
// The gradient where all values are equal is 0.
struct Std {
  using Params = Var::Params;
  static constexpr OpInfo info = reduce_info("std", kFloats, input(0) | output());
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};

// (sum |x|^p)^(1/p); p = inf: largest |x|, -inf: smallest, 0: how many are not zero. The gradient at 0 is 0.
struct Norm {
  struct Params {
    uint32_t dims = 0;
    bool keepdim = false;
    double p = 2;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info = reduce_info("norm", kFloats, input(0) | output(), {}, Autocast::fp32);
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};

// log(sum(exp(x))) without overflow. Integers give f32.
struct LogSumExp {
  using Params = ReduceParams;
  static constexpr OpInfo info =
      reduce_info("logsumexp", kAllTypes, input(0) | output(), {"ReduceLogSumExp", 13}, Autocast::fp32);
  static void vjp(VjpContext& c);
  DEFT_REDUCE_BODY
};

// Composed of others.
struct VarMean {
  static constexpr OpInfo info{.name = "var_mean", .outputs = 2};
  static OpSamples samples();
};
struct Aminmax {
  static constexpr OpInfo info{.name = "aminmax", .outputs = 2, .dtypes = kAllTypes};
  static OpSamples samples();
};
struct Nansum {
  static constexpr OpInfo info{.name = "nansum", .dtypes = kAllTypes};
  static OpSamples samples();
};

Tensor sum(const Tensor& x, Site site = Site::current());
Tensor sum(const Tensor& x, IntList dims, bool keepdim = false, Site site = Site::current());
Tensor mean(const Tensor& x, Site site = Site::current());
Tensor mean(const Tensor& x, IntList dims, bool keepdim = false, Site site = Site::current());
Tensor prod(const Tensor& x, Site site = Site::current());
Tensor prod(const Tensor& x, IntList dims, bool keepdim = false, Site site = Site::current());
// x is converted to `dtype` first.
Tensor sum(const Tensor& x, IntList dims, bool keepdim, DType dtype, Site site = Site::current());
Tensor mean(const Tensor& x, IntList dims, bool keepdim, DType dtype, Site site = Site::current());
Tensor prod(const Tensor& x, IntList dims, bool keepdim, DType dtype, Site site = Site::current());

Tensor amax(const Tensor& x, IntList dims = {}, bool keepdim = false, Site site = Site::current());
Tensor amin(const Tensor& x, IntList dims = {}, bool keepdim = false, Site site = Site::current());
std::array<Tensor, 2> aminmax(const Tensor& x, IntList dims = {}, bool keepdim = false, Site site = Site::current());
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Site site = Site::current());
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Site site = Site::current());
// The extreme of all elements, or (values, indices) along one dim.
Tensor max(const Tensor& x, Site site = Site::current());
Tensor min(const Tensor& x, Site site = Site::current());
std::array<Tensor, 2> max(const Tensor& x, int64_t dim, bool keepdim = false, Site site = Site::current());
std::array<Tensor, 2> min(const Tensor& x, int64_t dim, bool keepdim = false, Site site = Site::current());

Tensor any(const Tensor& x, IntList dims = {}, bool keepdim = false, Site site = Site::current());
Tensor all(const Tensor& x, IntList dims = {}, bool keepdim = false, Site site = Site::current());
Tensor count_nonzero(const Tensor& x, IntList dims = {}, bool keepdim = false, Site site = Site::current());

Tensor var(const Tensor& x, IntList dims = {}, double correction = 1, bool keepdim = false,
           Site site = Site::current());
Tensor std(const Tensor& x, IntList dims = {}, double correction = 1, bool keepdim = false,
           Site site = Site::current());
// (variance, mean).
std::array<Tensor, 2> var_mean(const Tensor& x, IntList dims = {}, double correction = 1, bool keepdim = false,
                               Site site = Site::current());
Tensor norm(const Tensor& x, double p = 2, IntList dims = {}, bool keepdim = false, Site site = Site::current());
// x / max(norm, eps), row by row along dim.
Tensor normalize(const Tensor& x, double p = 2, int64_t dim = 1, double eps = 1e-12, Site site = Site::current());
Tensor logsumexp(const Tensor& x, IntList dims, bool keepdim = false, Site site = Site::current());
// Sum of what is not NaN.
Tensor nansum(const Tensor& x, IntList dims = {}, bool keepdim = false, Site site = Site::current());

// The adjoint of broadcasting `sizes` to x.sizes(): sums over the added and expanded dims.
Tensor sum_to_size(const Tensor& x, IntList sizes, Site site = Site::current());
bool has_nan(const Tensor& x);

}  // namespace deft
