// GEMMs of so few rows that reading b takes all the time: b is read as several streams at once, which is how a core
// reads fastest.
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu {

inline constexpr int64_t kFewRows = 16;

// run_blocked_gemm() for few rows: GEMV over several streams of panels of a packed b, or over an unpacked b of bytes.
// Returns false, having done nothing, where it does not apply. Bits are the same as by tiles, except for bf16 where
// tiles are AMX, which sums in its own order.
bool run_few_rows(const BlockedGemm& p);

// The GEMM with an unpacked b, one contiguous line per column of c, in place of p.b and p.packed_b. Returns false,
// having done nothing, where there is no kernel (k must be contiguous in both operands). Sums of floats differ from
// those of tiles.
bool run_dots(const BlockedGemm& p, const StridedMatrix& b);

}  // namespace deft::cpu
