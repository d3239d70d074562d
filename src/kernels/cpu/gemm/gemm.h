// Matmul on plain pointers: c = a * b (+ c) (+ bias). Any strides, in elements; those of a and b may be zero or
// negative.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/dtype.h"

namespace deft::cpu {

class PackedMatrix;
struct GemmTile;

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
  const void* bias;                        // nullable; n values, one per column
  const PackedMatrix* packed_b = nullptr;  // b packed by pack_gemm_b() for gemm_b_tile()
};

// The result does not depend on the number of threads. 16-bit floats accumulate in f32 and round once;
// integers wrap. Throws DTypeError for bool.
void gemm(const GemmCall& call);

// A batch of GEMMs whose operands lie a_batch, b_batch, c_batch elements apart; the bias is shared.
void gemm_batched(const GemmCall& call, int64_t batch, int64_t a_batch, int64_t b_batch, int64_t c_batch);

// The tile to pack b for when it is kept for many calls; null where gemm() would not pack b. Depends on shape and
// strides only, as in gemm(); results are the same with and without packed_b.
const GemmTile* gemm_b_tile(const GemmCall& call);
std::unique_ptr<const PackedMatrix> pack_gemm_b(const GemmCall& call, const GemmTile& tile);
// The first tile with the same layout of b: what is packed for it serves any number of rows.
const GemmTile& first_alike(const GemmTile& tile);

}  // namespace deft::cpu
