// Random numbers. Element i of a draw depends only on (seed, draw number, i): not on threads, strides or device.
#pragma once

#include "core/op.h"
#include "runtime/random.h"

namespace deft {

struct OpSamples;

// Fills x in place: uniform in [low, high), or normal.
struct UniformFill {
  struct Params {
    double low = 0, high = 1;
    PhiloxState draw;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "uniform_"};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c) { c.set_zeros(0); }  // the old value has no influence
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
struct NormalFill {
  struct Params {
    double mean = 0, std = 1;
    PhiloxState draw;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "normal_"};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c) { c.set_zeros(0); }
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Whole numbers in [low, high).
struct RandintFill {
  struct Params {
    int64_t low = 0, high = 0;
    PhiloxState draw;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "randint_", .dtypes = kAllTypes};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c) { c.set_zeros(0); }
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// The numbers 0 to n - 1 in random order, into a vector of n.
struct RandpermFill {
  struct Params {
    PhiloxState draw;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "randperm_", .dtypes = only(DType::i64)};
  static constexpr const char* not_differentiable = "it fills integers";
  static Meta infer(const Meta& x, const Params& p);
  static void cpu(KernelCall& c);
  static OpSamples samples();
};

// 1 with probability p (per element), else 0, in the type of p.
struct Bernoulli {
  struct Params {
    PhiloxState draw;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "bernoulli"};
  static Meta infer(const Meta& p, const Params&);
  static void vjp(VjpContext& c) { c.set_zeros(0); }  // piecewise constant
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Zeroes elements with probability p and scales the rest by 1 / (1 - p). Nothing is saved: the mask is drawn again from
// its counter in backward.
struct Dropout {
  struct Params {
    double p = 0.5;
    PhiloxState draw;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "dropout", .onnx = {"Dropout", 13}};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

Tensor rand(IntList sizes, TensorOptions options = {}, Site site = Site::current());
Tensor randn(IntList sizes, TensorOptions options = {}, Site site = Site::current());
Tensor randint(int64_t low, int64_t high, IntList sizes, TensorOptions options = {DType::i64},
               Site site = Site::current());
Tensor randperm(int64_t n, Site site = Site::current());
Tensor rand_like(const Tensor& x, Site site = Site::current());
Tensor randn_like(const Tensor& x, Site site = Site::current());
Tensor& uniform_(Tensor& x, double low = 0, double high = 1, Site site = Site::current());
Tensor& normal_(Tensor& x, double mean = 0, double std = 1, Site site = Site::current());
Tensor bernoulli(const Tensor& p, Site site = Site::current());
// Indices drawn by weight from the rows of a matrix, or from one row; weights need not sum to 1.
Tensor multinomial(const Tensor& weights, int64_t count, bool replacement = false, Site site = Site::current());
// With training = false the result is x itself.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Site site = Site::current());
// Drops whole channels of an N, C, spatial... tensor.
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool training = true, Site site = Site::current());

}  // namespace deft
