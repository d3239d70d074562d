// Several elementwise formulas in one pass over memory: chunk by chunk, what lies between two formulas stays in the
// first cache level. Every formula's result is rounded to the type it would have in memory, so a chain gives the same
// bits as its formulas one by one.
#pragma once

#include <cstdint>

#include "kernels/cpu/elementwise.h"

namespace deft::cpu {

inline constexpr int kChainInputs = 8, kChainSteps = 16;

// All tensors lie in memory in the same order; others repeat.
struct ChainInput {
  const void* data;
  DType dtype;
  int64_t period;  // elements until it repeats: 1 for a number, the row length for one value per column, 0: never
};

struct ChainStep {
  ChunkFn fn;
  const void* params;
  DType compute, result, stored;  // of the inputs, of what fn writes, of what it would be in memory
  int inputs;
  uint8_t in[kMaxInputs];  // below kChainInputs: an input; else kChainInputs + the number of an earlier step
};

struct ChainCall {
  int64_t count;
  int inputs, steps;
  ChainInput in[kChainInputs];
  ChainStep step[kChainSteps];
  void* out;  // of the last step; may be an input that does not repeat
};
void elementwise_chain(const ChainCall& call);

}  // namespace deft::cpu
