// GEMMs from bytes to bytes, by tiles that requantise sums while they are in registers.
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu::detail {

// Whether run_bytes() applies, with b packed.
bool has_byte_tile(const BlockedGemm& p);
// Rows [m0, m1) x columns [n0, n1) of c; n0 is a multiple of the tile's width. Bits are the same as by store_tile().
void run_bytes(const BlockedGemm& p, int64_t m0, int64_t m1, int64_t n0, int64_t n1);

}  // namespace deft::cpu::detail
