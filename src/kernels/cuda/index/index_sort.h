// Sorting of index lists, for sums in a fixed order.
#pragma once

#include "kernels/cuda/device/encoder.h"

namespace deft::cuda {

// Keys below 2^bits with their values, ascending; equal keys keep their order.
void sort_pairs(const Encoder& e, int64_t count, int bits, const uint64_t* keys, uint64_t* sorted_keys,
                const int64_t* values, int64_t* sorted_values);

}  // namespace deft::cuda
