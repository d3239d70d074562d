// Places for all temporaries of a graph in one arena: buffers that live at the same time do not overlap.
#pragma once

#include <vector>

#include "graph/ir.h"

namespace deft::graph {

inline constexpr int64_t kOutside = -1;  // inputs, constants, results and what is kept have memory of their own

struct MemoryPlan {
  std::vector<int64_t> offsets;  // of each buffer; kOutside for those that are not in the arena
  int64_t bytes = 0;             // of the arena
  int64_t sum = 0;               // of all buffers in it, as if none shared a place
  int64_t floor = 0;             // the most that is alive at once: no plan can do with less
  int64_t kept = 0;              // beside the arena, from run to run: weights that were cast
  int64_t in_place = 0;          // buffers that are written over what their instruction reads
};

// The instructions between which each buffer is in use. Results live to the end.
struct Lifetime {
  int32_t first = -1, last = -1;
};
std::vector<Lifetime> lifetimes(const Graph& graph);

// The live bytes of the arena at each instruction, with results written over inputs as in the plan.
std::vector<int64_t> bytes_alive(const Graph& graph);

// A result goes over an input that nobody reads later where the kernel allows it: elementwise ops, and matmuls and
// convolutions over their residual. Then one after the other, each at the lowest place that is free throughout its
// life; the best of several orders. Deterministic.
MemoryPlan plan_memory(const Graph& graph);

}  // namespace deft::graph
