// FLOPs of matmuls, convolutions and attention from their shapes alone.
#pragma once

#include "core/op.h"

namespace deft {

inline constexpr int kProductInputs = 7;  // that many at most

// Multiplications and additions of one call; 0 for all other ops. Padding counts as if it were data, keys that a mask
// hides as if they were seen; those a causal query never sees do not. inputs[i] is null where there is none.
double product_flops(const OpDef& def, const Meta* const* inputs, const Meta& output, const void* params);

}  // namespace deft
