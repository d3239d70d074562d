// Sorting: sort, argsort, topk, unique. NaN counts as the largest value; equal values keep their order.
#pragma once

#include <array>

#include "core/op.h"

namespace deft {

struct OpSamples;

// Results: values and their positions (i64).
struct Sort {
  struct Params {
    int64_t dim = -1;
    bool descending = false;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "sort", .outputs = 2, .dtypes = kAllTypes, .uses = {output(1)}};
  static std::array<Meta, 2> infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// The k largest (or smallest), best first.
struct TopK {
  struct Params {
    int64_t k = 1, dim = -1;
    bool largest = true;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "topk", .outputs = 2, .dtypes = kAllTypes, .uses = {output(1)}, .onnx = {"TopK", 11}};
  static std::array<Meta, 2> infer(const Meta& x, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Results: distinct values in order, the place of every element among them, and how often each occurs.
struct Unique {
  static constexpr OpInfo info{.name = "unique", .outputs = 3, .dtypes = kAllTypes, .onnx = {"Unique", 11}};
  static constexpr const char* not_differentiable = "which values are distinct is not a smooth question";
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

std::array<Tensor, 2> sort(const Tensor& x, int64_t dim = -1, bool descending = false, Site site = Site::current());
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, Site site = Site::current());
std::array<Tensor, 2> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true,
                           Site site = Site::current());
std::array<Tensor, 3> unique(const Tensor& x, Site site = Site::current());

}  // namespace deft
