// Packing: from matrices of any layout to the panels that register tiles read (Note [Panels]).
#pragma once

#include "kernels/cpu/gemm/gemm_tile.h"

namespace deft::cpu {

// Bytes of `lines` lines over k, packed.
int64_t packed_bytes(const GemmTile& tile, Side side, int64_t lines, int64_t k);

// A matrix as an operand of a GEMM: value (line l, position p of k) is at in[l * line + p * step], in elements of
// `dtype`; strides may be zero or negative. f32, bf16 and f16 convert to the panel's type.
struct StridedMatrix {
  DType dtype;
  const void* in;
  int64_t line, step;
};

// Writes lines [l0, l0 + lines) x k [k0, k0 + k) as panels. The sum over this k of each line (bytes only) is added to
// `sums`, if given.
void pack(const GemmTile& tile, Side side, const StridedMatrix& from, int64_t l0, int64_t lines, int64_t k0, int64_t k,
          void* out, int32_t* sums = nullptr);

}  // namespace deft::cpu
