// Sums of whole rows, for gradients of lookups.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

// out[i] = out[i] (zero unless `accumulate`) + table[p * stride + i] for all p in [first, last), in order, i < n. In
// the accumulation type, rounded once.
using RowSumFn = void (*)(const void* table, int64_t stride, int64_t n, const int64_t* first, const int64_t* last,
                          void* out, bool accumulate);
RowSumFn row_sum(DType dtype);  // floating

}  // namespace deft::cpu
