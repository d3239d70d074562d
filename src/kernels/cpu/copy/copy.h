// Copies and fills of strided data.
#pragma once

#include <cstdint>

#include "kernels/cpu/elementwise/elementwise.h"

namespace deft::cpu {

// dst[i] = src[i] for every index, converted as in convert(). The two may not overlap, unless they are the same
// elements in the same order and of the same type. Stride 0 in dst is not allowed for sizes > 1.
void copy_strided(const Operand& src, const Operand& dst, int ndim, const int64_t* sizes);

// Sets n contiguous elements, or all elements of a strided view, to the element at `value` (of the same dtype).
void fill(void* data, DType dtype, int64_t n, const void* value);
// Element i becomes start + (first + i) * step, computed in f64.
void fill_sequence(void* data, DType dtype, int64_t n, double start, double step, int64_t first);
void fill_strided(const Operand& dst, int ndim, const int64_t* sizes, const void* value);

}  // namespace deft::cpu
