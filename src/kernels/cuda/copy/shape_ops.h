// Joining and cutting: rows of several tensors into one, triangles, one-hot, and the gradient of a slice.
#pragma once

#include <vector>

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

// `rows` pieces of `bytes` contiguous bytes each; pitches in bytes.
struct RowCopy {
  const void* from;
  void* to;
  int64_t rows, bytes, from_pitch, to_pitch;
};
// Whether a copy between two operands over `sizes` is one of rows; fills `c`.
bool as_rows(int ndim, const int64_t* sizes, const Operand& from, const Operand& to, RowCopy& c);
void copy_rows(Encoder& e, const std::vector<RowCopy>& copies);

// One triangle of the last two dims of x, zero elsewhere; out is contiguous. diagonal lies within -rows and cols.
void triangle(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, int64_t diagonal, bool upper, void* out);

// i64 zeros with a one at each class; classes outside are reported and give no one.
void one_hot(Encoder& e, const int64_t* index, int64_t count, int64_t classes, int64_t* out);

// zeros [outer, size, inner] with g [outer, count, inner] at start, start + step, ...; both contiguous.
void slice_backward(Encoder& e, DType dtype, int64_t outer, int64_t size, int64_t inner, int64_t start, int64_t step,
                    int64_t count, const void* g, void* out);

}  // namespace deft::cuda
