// Simple arithmetic of chains in registers. A step is a function that takes a tile of vectors in registers, the result
// of the step before it, and goes on by calling the next one with its own; intermediate results never reach memory.
#pragma once

#include "core/op.h"

namespace deft {

namespace cpu {
struct ChainCall;
}

// Fills call.link where links do all of its steps: f32 throughout, operands that are numbers or lie as the result does,
// and formulas of few instructions. `ops` are the ops of the steps. The same bits as without.
void add_links(cpu::ChainCall& call, const OpDef* const* ops);

}  // namespace deft
