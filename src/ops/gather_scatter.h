// Reading and writing through index tensors (i64) and masks (bool). Every index is checked before anything is written;
// on a device only bad elements are left out, since the error comes out later.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "core/op.h"

namespace deft {

struct OpSamples;

// out[.., i, ..] = x[.., index[.., i, ..], ..]
struct Gather {
  struct Params {
    int64_t dim = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "gather", .inputs = 2, .dtypes = kAllTypes, .uses = {input(1)}, .onnx = {"GatherElements", 13}};
  static Meta infer(const Meta& x, const Meta& index, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// x with x[.., index[.., i, ..], ..] multiplied by source[.., i, ..], or the smaller or larger of both; inputs
// (x, index, source).
struct Scatter {
  struct Params {
    int64_t dim = 0;
    ScatterReduce reduce = ScatterReduce::assign;
    bool operator==(const Params&) const = default;
  };
  static constexpr uint16_t kAll = input(0) | input(1) | input(2) | output();
  static constexpr OpInfo info{.name = "scatter_reduce",
                               .inputs = 3,
                               .dtypes = kAllTypes,
                               .uses = {kAll, 0, kAll},
                               .onnx = {"ScatterElements", 16}};
  static Meta infer(const Meta& x, const Meta& index, const Meta& source, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// Assignment and addition, whose gradients read only the index.
struct ScatterAdd {
  using Params = Scatter::Params;
  static constexpr OpInfo info{.name = "scatter_add",
                               .inputs = 3,
                               .dtypes = kAllTypes,
                               .uses = {input(1), 0, input(1)},
                               .onnx = {"ScatterElements", 16}};
  static Meta infer(const Meta& x, const Meta& index, const Meta& source, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// out[.., i, ..] = x[.., index[i], ..]; index is 1-d.
struct IndexSelect {
  struct Params {
    int64_t dim = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{
      .name = "index_select", .inputs = 2, .dtypes = kAllTypes, .uses = {input(1)}, .onnx = {"Gather", 13}};
  static Meta infer(const Meta& x, const Meta& index, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// x with x[.., index[i], ..] += source[.., i, ..]; inputs (x, index, source).
struct IndexAdd {
  struct Params {
    int64_t dim = 0;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "index_add", .inputs = 3, .dtypes = kAllTypes, .uses = {0, 0, input(1)}};
  static Meta infer(const Meta& x, const Meta& index, const Meta& source, Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Rows of a table. Negative class numbers are errors; the row `padding_index` gets no gradient.
struct Embedding {
  struct Params {
    int64_t padding_index = -1;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "embedding", .inputs = 2, .uses = {input(1)}, .onnx = {"Gather", 13}};
  static Meta infer(const Meta& table, const Meta& index, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// zeros([rows, width]) with grad rows added at their indices.
struct EmbeddingBackward {
  struct Params {
    int64_t rows = 0, padding_index = -1;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "embedding_backward", .inputs = 2, .uses = {input(1)}};
  static Meta infer(const Meta& grad, const Meta& index, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
};

// The elements of x where mask holds, packed into one dimension. x and mask have the same shape here.
struct MaskedSelect {
  static constexpr OpInfo info{.name = "masked_select", .inputs = 2, .dtypes = kAllTypes, .uses = {input(1)}};
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};
// zeros with packed values where mask holds; inputs (values, mask).
struct MaskedUnpack {
  static constexpr OpInfo info{.name = "masked_unpack", .inputs = 2, .dtypes = kAllTypes, .uses = {input(1)}};
  static Meta infer(const Meta& values, const Meta& mask, NoParams&);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Coordinates of nonzero elements, one row each.
struct Nonzero {
  static constexpr OpInfo info{.name = "nonzero", .dtypes = kAllTypes, .onnx = {"NonZero", 13}};
  static constexpr const char* not_differentiable = "its result is a list of positions";
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Made of where() and index_select(); listed for their samples.
struct MaskedFill {
  static constexpr OpInfo info{.name = "masked_fill", .inputs = 2, .dtypes = kAllTypes};
  static OpSamples samples();
};
struct Take {
  static constexpr OpInfo info{.name = "take", .inputs = 2, .dtypes = kAllTypes};
  static OpSamples samples();
};

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Site site = Site::current());
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Site site = Site::current());
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value, Site site = Site::current());
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                   Site site = Site::current());
// Without include_self the elements of x that are written to take no part. Means of integers are rounded down.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, ScatterReduce reduce,
                      bool include_self = true, Site site = Site::current());
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Site site = Site::current());
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Site site = Site::current());
// Elements of x seen as one dimension; the result has the shape of index. Negative indices count from the end.
Tensor take(const Tensor& x, const Tensor& index, Site site = Site::current());
Tensor embedding(const Tensor& index, const Tensor& table, std::optional<int64_t> padding_index = {},
                 Site site = Site::current());
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value, Site site = Site::current());
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value, Site site = Site::current());
Tensor masked_select(const Tensor& x, const Tensor& mask, Site site = Site::current());
Tensor nonzero(const Tensor& x, Site site = Site::current());

}  // namespace deft
