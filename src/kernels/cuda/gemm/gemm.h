// GEMM on plain device pointers: c = alpha * a * b + beta * c + bias, for one pair of matrices or a batch.
#pragma once

#include <cstdint>

#include "kernels/cuda/gemm/epilogue.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// Strides are in elements; those of a and b may be zero or negative. Batches may share operands (stride 0).
struct GemmCall {
  DType dtype;
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_col;
  const void* b;
  int64_t b_row, b_col;
  void* c;
  int64_t c_row, c_col;
  const void* bias = nullptr;  // nullable; n values, one per column, shared by the batch
  int64_t batch = 1, a_batch = 0, b_batch = 0, c_batch = 0;
  double alpha = 1, beta = 0;  // with beta = 0, c is not read
  // For gemm_library() and gemm_fused(): activation(the rest plus residual, which lies like c); beta is 0 then.
  const void* residual = nullptr;  // nullable
  Activation activation = Activation::none;
  bool wide_result = false;  // for gemm_library() and gemm_fused(): c is f32, the rest of 16 bits
  bool timed = false;        // choose the kernel by timing several, whatever gemm_autotune() says
};

// True if cuBLAS reads such a matrix where it lies: one stride is 1, the other steps over whole rows or columns.
bool is_regular(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride);

// 16-bit floats accumulate in f32 and round once; f32 uses TF32 only if allow_tf32(); integers wrap. Regular matrices
// of floats go to cuBLASLt, everything else to gemm_tiled().
void gemm(Encoder& e, const GemmCall& call);

// By cuBLASLt in one kernel. False, and nothing is written, where it cannot do all of it: it knows relu and gelu_tanh.
bool gemm_library(Encoder& e, const GemmCall& call);

}  // namespace deft::cuda
