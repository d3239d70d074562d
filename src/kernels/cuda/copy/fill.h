// Fills of device memory: one value, or values that follow a rule.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

// Sets all elements of a strided view to the element at `value` (host memory, of the same type).
void fill_strided(Encoder& e, const Operand& to, int ndim, const int64_t* sizes, const void* value);

// What creation ops write, with the arithmetic of the CPU.
struct Sequence {
  enum class Kind : int32_t { whole, real, between, diagonal } kind;
  int64_t start = 0, step = 0;  // whole: start + i step
  double first = 0, last = 0,
         slope = 0;  // real: first + i slope; between: the same from both ends, `last` at i = count - 1
  int64_t count = 0;
  int64_t columns = 0;  // diagonal: 1 where row == column
};
void fill_sequence(Encoder& e, void* to, DType dtype, const Sequence& sequence);

}  // namespace deft::cuda
