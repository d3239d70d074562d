// Elements chosen by a condition, in row-major order: counted in blocks first, so that every block knows where it
// writes.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

// Blocks of a tensor of `count` elements; the callers keep mask_blocks(count) + 1 numbers.
int64_t mask_blocks(int64_t count);
// starts[b]: set (nonzero) elements before block b; the last one is their total. NaN is set, -0 is not.
void count_set(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, int64_t* starts);

// Coordinates of the set elements, one row of ndim (at least 1) numbers each.
void write_nonzero(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, const int64_t* starts, int64_t* out);
// The elements of x where mask is set, packed.
void select_masked(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, const Operand& mask,
                   const int64_t* starts, void* out);
// The inverse: packed values where mask is set, zero elsewhere; values beyond `count` are taken as zero. `out` is
// contiguous.
void unpack_masked(Encoder& e, int ndim, const int64_t* sizes, const void* values, int64_t count, DType dtype,
                   const Operand& mask, const int64_t* starts, void* out);

}  // namespace deft::cuda
