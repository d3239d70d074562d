// Sorting: sort, argsort, topk, unique. NaN counts as the largest value; equal values keep their order.
#pragma once

#include <array>
#include <optional>

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
// Of n elements in order, the one at (n - 1) / 2, rounded down; NaN wins. Along one dim: (values, indices).
Tensor median(const Tensor& x, Site site = Site::current());
std::array<Tensor, 2> median(const Tensor& x, int64_t dim, bool keepdim = false, Site site = Site::current());
// The element at q (n - 1) of n in order, of floats; between two neighbours as `interpolation` says. Without a dim over
// all elements. A 1-d `q` becomes the first dim of the result. NaN wins.
enum class Interpolation : uint8_t { linear, lower, higher, midpoint, nearest };
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                Interpolation interpolation = Interpolation::linear, Site site = Site::current());
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                Interpolation interpolation = Interpolation::linear, Site site = Site::current());
std::array<Tensor, 3> unique(const Tensor& x, Site site = Site::current());

}  // namespace deft
