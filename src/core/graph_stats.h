// Live counters of the autograd graph: always on, O(1) to read. They are what finds `total += loss`.
#pragma once

#include <cstdint>

namespace deft {

struct GraphStats {
  int64_t live_nodes = 0;
  int64_t saved_bytes = 0;      // distinct storages kept for backward, parameters not counted
  int64_t oldest_node_age = 0;  // in steps; 0 when no node is alive or all are of this step
  int64_t step = 0;
};
GraphStats graph_stats();

// Ends a step: nodes made from now on are one step younger. Optimizers call it; so may any loop.
void advance_step();

// Used by nodes and storages.
void count_saved_bytes(int64_t delta) noexcept;
uint64_t count_node_created(uint32_t& step) noexcept;  // returns its number, from 1; `step` is the current one
void count_node_freed(uint32_t step) noexcept;

}  // namespace deft
