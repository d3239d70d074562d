// Inputs that are transposed relative to the output, as in x + y.t().
#pragma once

#include "kernels/cpu/copy/strided.h"

namespace deft::cpu {

// `it`: normalized, the output first. False where no input is transposed, or where it does not pay.
bool run_transposed(const ElementwiseCall& call, const Iteration& it);

}  // namespace deft::cpu
