// Cumulative sums and products along one dim of a strided input.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

struct ScanCall {
  int ndim = 0;
  int64_t sizes[kMaxDims];
  int dim = 0;
  Operand in, out;       // may be the same elements
  bool product = false;  // or sum
  bool reverse = false;  // from the last element to the first
};

// Floats are accumulated in f64 (products of parts with a wider exponent) and give their own type, integers in int64
// (wrapping) and give i64.
void scan(Encoder& e, const ScanCall& call);
// out[i] = in[0] + ... + in[i], of bytes.
void scan_bytes(Encoder& e, const uint8_t* in, int64_t* out, int64_t n);

}  // namespace deft::cuda
