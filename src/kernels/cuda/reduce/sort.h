// Sorting along contiguous rows. NaN counts as the largest value, -0 equals +0; ties keep the lower index first.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// Rows must be shorter than this.
inline constexpr int64_t kLongestSort = INT64_C(1) << 31;

// The k first of every one of `outer` rows of n values, 1 <= k <= n, sorted; k = n sorts whole rows. `values` must not
// overlap `in`.
void sort(Encoder& e, DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool descending, void* values,
          int64_t* indices);

// Sorted distinct values of n > 0; every NaN is distinct.
class Unique {
 public:
  // inverse[i] becomes the place of in[i] among the distinct values.
  Unique(Encoder& e, DType dtype, const void* in, int64_t n, int64_t* inverse);
  // Makes the host wait.
  int64_t count();
  // `count` values and how often each occurs.
  void put(void* values, int64_t* counts, int64_t count);

 private:
  Encoder& e_;
  DType dtype_;
  const void* in_;
  int64_t n_;
  Workspace places_;  // for every sorted element, the number of distinct ones up to it
  Workspace starts_;  // for every distinct value, where it begins among the sorted ones
  Workspace firsts_;  // and the element it was found in
};

}  // namespace deft::cuda
