// Copies that eager calls make for safety and a plan can do without.
#pragma once

#include "graph/passes.h"

namespace deft::graph {

// Removes a copy where the op that made its source can write it directly, and where elementwise ops read it while the
// source is unchanged: they read the source. Returns how many were removed. On CPUs.
size_t drop_copies(Graph& graph);

}  // namespace deft::graph
