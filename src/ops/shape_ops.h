// Joining, repeating and reordering: cat, stack, repeat, flip, roll, tril, triu, one_hot.
#pragma once

#include <span>
#include <vector>

#include "base/function_ref.h"
#include "core/op.h"

namespace deft {

struct OpSamples;

struct Cat {
  struct Params {
    int64_t dim = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "cat", .inputs = kListInput, .dtypes = kAllTypes, .onnx = {"Concat", 13}};
  static Meta infer(std::span<const Meta* const> inputs, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  // f(input, the part of the result it goes to) for the inputs that are not empty.
  static void for_each_part(KernelCall& c, FunctionRef<void(const Tensor&, const Tensor&)> f);
  static OpSamples samples();
};

// Reverses the dims whose bit is set.
struct Flip {
  struct Params {
    uint32_t dims = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "flip", .dtypes = kAllTypes};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c);
  static void run(KernelCall& c);  // a copy, on any device
  static void cpu(KernelCall& c) { run(c); }
  static void cuda(KernelCall& c) { run(c); }
  static OpSamples samples();
};

// Keeps one triangle of the last two dims and zeroes the other.
struct Triangle {
  struct Params {
    int64_t diagonal = 0;
    bool upper = false;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "tril", .dtypes = kAllTypes, .onnx = {"Trilu", 14}};
  static Meta infer(const Meta& x, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

struct OneHot {
  struct Params {
    int64_t classes = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "one_hot", .dtypes = only(DType::i64), .onnx = {"OneHot", 11}};
  static constexpr const char* not_differentiable = "its input holds class numbers";
  static Meta infer(const Meta& index, const Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Made of views and cat(); listed for their samples.
struct Stack {
  static constexpr OpInfo info{.name = "stack", .dtypes = kAllTypes};
  static OpSamples samples();
};
struct Repeat {
  static constexpr OpInfo info{.name = "repeat", .dtypes = kAllTypes, .onnx = {"Tile", 13}};
  static OpSamples samples();
};
struct RepeatInterleave {
  static constexpr OpInfo info{.name = "repeat_interleave", .dtypes = kAllTypes};
  static OpSamples samples();
};
struct Roll {
  static constexpr OpInfo info{.name = "roll", .dtypes = kAllTypes};
  static OpSamples samples();
};

Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0, Site site = Site::current());
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0, Site site = Site::current());
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0, Site site = Site::current());
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0, Site site = Site::current());
Tensor repeat(const Tensor& x, IntList counts, Site site = Site::current());
// As repeat(), but with fewer counts than dimensions the last ones are meant.
Tensor tile(const Tensor& x, IntList counts, Site site = Site::current());
// Side by side (along the second dim, of 1-d tensors the first), and on top of each other.
Tensor hstack(std::span<const Tensor> tensors, Site site = Site::current());
Tensor hstack(std::initializer_list<Tensor> tensors, Site site = Site::current());
Tensor vstack(std::span<const Tensor> tensors, Site site = Site::current());
Tensor vstack(std::initializer_list<Tensor> tensors, Site site = Site::current());
// A grid of coordinates from 1-d tensors. MeshIndexing::xy swaps the first two dims.
enum class MeshIndexing : uint8_t { ij, xy };
std::vector<Tensor> meshgrid(std::span<const Tensor> tensors, MeshIndexing indexing = MeshIndexing::ij,
                             Site site = Site::current());
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> tensors, MeshIndexing indexing = MeshIndexing::ij,
                             Site site = Site::current());
// A square matrix with x on one diagonal, or one diagonal of a matrix as a copy.
Tensor diag(const Tensor& x, int64_t diagonal = 0, Site site = Site::current());
Tensor repeat_interleave(const Tensor& x, int64_t count, int64_t dim, Site site = Site::current());
Tensor flip(const Tensor& x, IntList dims, Site site = Site::current());
Tensor roll(const Tensor& x, int64_t shift, int64_t dim, Site site = Site::current());
Tensor tril(const Tensor& x, int64_t diagonal = 0, Site site = Site::current());
Tensor triu(const Tensor& x, int64_t diagonal = 0, Site site = Site::current());
// i64 zeros with a one at each class number. classes = -1: one more than the largest.
Tensor one_hot(const Tensor& index, int64_t classes = -1, Site site = Site::current());

}  // namespace deft
