// What the index ops share between devices. Internal.
#pragma once

#include "ops/gather_scatter.h"
#include "ops/strided.h"

namespace deft::indexing {

// A 0-d tensor as one of a single element, which is what index ops work on.
Tensor at_least_1d(const Tensor& t);
// The result starts as a copy of x, unless it is x (in-place).
void start_from(const Tensor& x, const Tensor& out);
// Zeros for the gradient of the first input to start from: one element that is seen everywhere, so that start_from()
// only writes.
Tensor blank_gradient(const VjpContext& c);
// `input`, or a copy where it is what is written: dispatch leaves only the very same tensor to us.
Tensor apart_from(const Tensor& input, const Tensor& out);
// The name users know a way of scattering by.
const char* name_of(ScatterReduce r);

// Sizes of x with dims [first, first + count) replaced by those of `linear`.
Shape indexed_sizes(const Meta& x, const Meta& linear, int64_t first, int64_t count);
// Puts one dim in the place of dims [first, first + count).
void replace_dims(cpu::Strided& s, int first, int count, int64_t size, int64_t stride);
// The same where the strides make it one dim anyway.
bool merge_dims(cpu::Strided& s, int first, int count);
// `value` broadcast to `sizes`, with dims [first, first + count) as one; `value` becomes a copy where strides need it.
cpu::Strided value_strides(Tensor& value, const Shape& sizes, int first, int count);

}  // namespace deft::indexing
