// Several elementwise formulas in one pass over memory: chunk by chunk, intermediate results stay in L1. Every
// formula's result is rounded to the type it would have in memory, so a chain gives the same bits as its formulas one
// by one.
#pragma once

#include <cstdint>

#include "kernels/cpu/elementwise/elementwise.h"

namespace deft::cpu {

inline constexpr int kChainInputs = 8, kChainSteps = 16;

// All tensors lie in memory in the same order; others repeat, or have gaps between their rows.
struct ChainInput {
  const void* data;
  DType dtype;
  int64_t period;  // elements until it repeats: 1 for a number, the row length for one value per column, 0: never
  int64_t row = 0, distance = 0;  // elements of a row, and from one row to the next; row 0: no gaps
};

struct ChainStep {
  ChunkFn fn;
  const void* params;
  DType compute, result, stored;  // of the inputs, of what fn writes, of what it would be in memory
  int inputs;
  uint8_t in[kMaxInputs];  // below kChainInputs: an input; else kChainInputs + the number of an earlier step
};

// A piece of a chain that runs in registers (ops/chain_links.h): a function of its target's own type, and the operand
// it takes from memory. Slots are inputs, then the results of steps, the last of which is `out`.
using LinkFn = void (*)();
struct ChainLink {
  LinkFn fn;
  int64_t slot;
  int64_t moves;  // -1 where the operand goes on with every tile, 0 where it has a single one
};
using LinkTilesFn = void (*)(const ChainLink* links, float* const* slots, int64_t begin, int64_t end);

struct ChainCall {
  int64_t count;
  int inputs, steps;
  ChainInput in[kChainInputs];
  ChainStep step[kChainSteps];
  void* out;         // of the last step; may be an input that does not repeat
  int64_t tile = 0;  // elements that links take at a time; 0: there are none
  LinkTilesFn run_tiles = nullptr;
  ChainLink link[3 * kChainSteps];
};
void elementwise_chain(const ChainCall& call);

}  // namespace deft::cpu
