// Matrix product on plain pointers: c = a * b (+ c) (+ bias). Any strides, in elements; those of a and b may be zero or
// negative.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

struct GemmCall {
  DType dtype;
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_col;
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_row, c_col;
  bool accumulate;
  const void* bias;  // nullable; n values, one per column
};

// The result does not depend on the number of threads. 16-bit floats accumulate in f32 and round once;
// integers wrap. Throws DTypeError for bool.
void gemm(const GemmCall& call);

// `batch` products whose operands lie a_batch, b_batch, c_batch elements apart; the bias is shared.
void gemm_batched(const GemmCall& call, int64_t batch, int64_t a_batch, int64_t b_batch, int64_t c_batch);

}  // namespace deft::cpu
