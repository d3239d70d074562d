// Cumulative sums and products along one dim of a strided input.
#pragma once

#include "kernels/cpu/elementwise/elementwise.h"

namespace deft::cpu {

enum class ScanOp : uint8_t { sum, prod };

struct ScanCall {
  int ndim;
  int64_t sizes[kMaxDims];
  int dim;
  Operand in, out;  // may be the same elements
  ScanOp op;
  bool reverse;  // from the last element to the first
};

// Floats are accumulated in f64, integers in int64 (wrapping); results are converted to out.dtype as in convert().
void scan(const ScanCall& call);

}  // namespace deft::cpu
