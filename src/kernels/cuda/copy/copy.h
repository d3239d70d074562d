// Copies of strided data within a device, with conversion.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

// to[i] = from[i] for every index, converted as in convert(). The two may not overlap, unless they are the same
// elements in the same order and of the same type. Stride 0 in `to` is not allowed for sizes > 1.
void copy_strided(Encoder& e, const Operand& from, const Operand& to, int ndim, const int64_t* sizes);

// Copies contiguous rows of values, `step` values from row to row, into rows of another length without gaps between
// them, at an address that 16 divides. Missing values become zeros.
struct LinesCopy {
  size_t size;  // of a value: 2 or 4
  const void* from;
  int64_t count, length, step;
  void* to;
  int64_t to_count, to_length;
};
void copy_lines(Encoder& e, const LinesCopy& copy);

}  // namespace deft::cuda
