// Reading and writing through int64 indices. Every index is checked before anything is written: IndexError names the
// op, the position, the value and the valid range. All dtypes; the order of additions is that of the index, on any
// number of threads.
#pragma once

#include <cstdint>

#include "kernels/cpu/copy/strided_walk.h"
#include "runtime/dtype.h"

namespace deft::cpu {

// How scatter combines. bool: add is or, mul is and. Integers wrap. min and max propagate NaN.
enum class Scatter : uint8_t { assign, add, mul, min, max };

// Throws unless 0 <= index < size, or -size <= index < size with `allow_negative`.
void check_indices(const char* op, const int64_t* index, const Strided& index_s, int64_t size, bool allow_negative);
// Whether one of n values in a row is not in low .. size - 1; low is 0 or -size, size at most 2^62.
bool any_outside(const int64_t* index, int64_t n, int64_t low, int64_t size);

// out[.., i, ..] = src[.., index[.., i, ..], ..]; out has the sizes of index, which exceed those of src only in dim.
void gather(DType dtype, const void* src, const Strided& src_s, int dim, const int64_t* index, const Strided& index_s,
            void* out, const Strided& out_s);
// out[.., index[.., i, ..], ..] (op)= src[.., i, ..] over the sizes of index. Repeated indices apply in order, the last
// assignment wins. 16-bit sums round at every step or, along rows that are not much longer than their indices, once.
// `name` is for errors.
void scatter(const char* name, DType dtype, Scatter op, void* out, const Strided& out_s, int dim, const int64_t* index,
             const Strided& index_s, const void* src, const Strided& src_s);

// out[.., i, ..] = src[.., index[i], ..]; out_s.sizes[dim] is the number of indices, which lie index_step apart.
void index_select(DType dtype, const void* src, const Strided& src_s, int dim, const int64_t* index, int64_t index_step,
                  bool allow_negative, void* out, const Strided& out_s);
// out[.., index[i], ..] += src[.., i, ..]
void index_add(DType dtype, void* out, const Strided& out_s, int dim, const int64_t* index, int64_t index_step,
               bool allow_negative, const void* src, const Strided& src_s);
// out[.., index[i], ..] = src[.., i, ..]; of repeated indices the last wins.
void index_copy(DType dtype, void* out, const Strided& out_s, int dim, const int64_t* index, int64_t index_step,
                bool allow_negative, const void* src, const Strided& src_s);

// Several index lists as one: linear = linear * size + index, over the sizes of index_s; linear is contiguous. Indices
// are checked already; negative ones count from the end.
void fold_index(int64_t* linear, const int64_t* index, const Strided& index_s, int64_t size);
// Positions in `ndim` dims seen as a single row-major one, as offsets in memory.
void index_offsets(const int64_t* linear, int64_t count, int ndim, const int64_t* sizes, const int64_t* strides,
                   int64_t* out);

// Embedding: out[i] = table[index[i]], rows of `width` contiguous values, table rows `table_row` elements apart.
void take_rows(DType dtype, const void* table, int64_t rows, int64_t table_row, int64_t width, const int64_t* index,
               int64_t count, void* out);
// Its gradient: out[index[i]] += grad[i]; both contiguous. Without `accumulate` out starts at zero. Entries equal to
// `skip` (a padding index; -1: none) add nothing. Sums are in the accumulation type and round once.
void add_rows(DType dtype, const void* grad, int64_t count, int64_t width, const int64_t* index, int64_t skip,
              void* out, int64_t rows, bool accumulate);

// NaN is not zero, -0 is.
int64_t count_nonzero(DType dtype, const void* x, const Strided& x_s);
// Coordinates of the nonzero elements in row-major order: count_nonzero() rows of ndim values.
void nonzero(DType dtype, const void* x, const Strided& x_s, int64_t* out);
// Elements where mask is set, in row-major order, packed. x and mask have the same sizes.
void masked_select(DType dtype, const void* x, const Strided& x_s, const bool* mask, const Strided& mask_s, void* out);
// The inverse: packed values go to where mask is set; the rest of out is left alone.
void masked_scatter(DType dtype, const void* values, const bool* mask, const Strided& mask_s, void* out,
                    const Strided& out_s);

}  // namespace deft::cpu
