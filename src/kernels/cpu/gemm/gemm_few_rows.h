// Products of so few rows that reading the right operand is all there is to do: it is read in several places at once,
// which is how a core reads fastest.
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu {

inline constexpr int64_t kFewRows = 16;

// What run_blocked_gemm() does with few rows: panels of a packed b in several places at once, one of bytes as it lies.
// False, and nothing done: not for this product. The same bits as tiles give, but for bf16 next to AMX, which sums in
// an order of its own.
bool run_few_rows(const BlockedGemm& p);

// The product with b as it lies, a line for each column of c, in place of p.b and p.packed_b. False, and nothing done:
// there are no kernels for it (they want k contiguous on both sides). Sums of floats are not those of tiles.
bool run_dots(const BlockedGemm& p, const StridedMatrix& b);

}  // namespace deft::cpu
