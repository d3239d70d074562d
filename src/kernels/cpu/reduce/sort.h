// Sorting along contiguous rows. NaN counts as the largest value, -0 equals +0; ties keep the lower index first.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

// `outer` rows of n values each. `values` or `indices` may be null. `values` must not overlap `in`.
void sort(DType dtype, const void* in, int64_t outer, int64_t n, bool descending, void* values, int64_t* indices);

// The k largest (or smallest) of every row, best first. Throws ValueError unless 0 <= k <= n.
void topk(DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool largest, void* values,
          int64_t* indices);

// Sorted distinct values of n; every NaN is distinct. `values` and `counts` have room for n. inverse[i] is the place of
// in[i] among them. `inverse` and `counts` may be null. Returns how many there are.
int64_t unique(DType dtype, const void* in, int64_t n, void* values, int64_t* inverse, int64_t* counts);

}  // namespace deft::cpu
