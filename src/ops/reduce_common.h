// What reductions, scans and normalisations share. Internal: not part of the public headers.
#pragma once

#include "base/function_ref.h"
#include "core/op.h"

namespace deft::reduction {

// Bits of the dims in `dims`; an empty list means all. IndexError for a bad or repeated dim.
uint32_t dim_bits(IntList dims, const Tensor& x, const char* op);
// Sizes of the result.
Shape reduced_sizes(const Shape& sizes, uint32_t dims, bool keepdim);
// Elements that go into one result.
int64_t reduced_count(const Shape& sizes, uint32_t dims);
// A result, or its gradient, with the reduced dims put back as size 1.
Tensor with_dims(const Tensor& reduced, const Shape& sizes, uint32_t dims);
// [..., n] -> [..., n, n]: copy i of every row has its element i replaced by 1. For products that leave one factor out.
Tensor omit_each(const Tensor& x);

// A result of the shape and type of x, in its memory order if x is dense.
Meta same_layout(const Meta& x);
// x itself if it lies in memory as `m` does, else a copy that does. For kernels: no autograd.
Tensor laid_out_as(const Tensor& x, const Meta& m);

// Gradients of the node's first `count` inputs by differentiating `formula`, a composition of public ops that computes
// the node's outputs from its inputs. The formula gets undefined tensors for inputs that were not given.
using Formula = FunctionRef<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;
void vjp_through(VjpContext& c, int count, Formula formula);

}  // namespace deft::reduction
