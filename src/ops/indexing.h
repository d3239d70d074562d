// x[i, j, ...] with numbers, slices, Ellipsis, NewAxis, i64 tensors and bool masks, as in PyTorch. Numbers and slices
// make views; tensors are broadcast together and copy. Their dims take the place of the indexed ones, or come first
// where a slice lies between them.
#pragma once

#include <span>

#include "core/op.h"

namespace deft {

struct OpSamples;

// Index tensors of several dims as one: positions in those dims seen as a single row-major one. Negative indices count
// from the end; every index is checked here, so that Index and IndexPut need not.
// On a device, bad ones become -1, which reads 0 and is not written to.
struct LinearIndex {
  static constexpr int64_t kTake = -2;
  struct Params {
    Shape sizes;  // of the indexed dims
    Shape dims;   // their numbers in the user's tensor, for messages; -1: made by an index itself, kTake: by take()
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "linear_index", .inputs = kListInput, .dtypes = only(DType::i64)};
  static constexpr const char* not_differentiable = "its result is a list of positions";
  static Meta infer(std::span<const Meta* const> inputs, Params& p);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// Dims [first, first + count) of x replaced by the dims of a LinearIndex over them; inputs (x, linear).
struct Index {
  struct Params {
    int64_t first = 0, count = 1;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "index", .inputs = 2, .dtypes = kAllTypes, .uses = {input(1)}};
  static Meta infer(const Meta& x, const Meta& linear, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

// x with value, broadcast to what Index would give, written there or added; inputs (x, linear, value). Of repeated
// positions the last one wins, or all are added in order.
struct IndexPut {
  struct Params {
    int64_t first = 0, count = 1;
    bool accumulate = false;
    bool operator==(const Params&) const = default;
  };
  static constexpr OpInfo info{.name = "index_put", .inputs = 3, .dtypes = kAllTypes, .uses = {input(1), 0, input(1)}};
  static Meta infer(const Meta& x, const Meta& linear, const Meta& value, const Params& p);
  static void vjp(VjpContext& c);
  static void cpu(KernelCall& c);
  static void cuda(KernelCall& c);
  static OpSamples samples();
};

Tensor index(const Tensor& x, IndexList indices, Site site = Site::current());
Tensor index_put(const Tensor& x, IndexList indices, const Tensor& value, bool accumulate = false,
                 Site site = Site::current());

}  // namespace deft
