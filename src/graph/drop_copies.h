// Copies that eager calls make for safety and a plan can do without.
#pragma once

#include "graph/passes.h"

namespace deft::graph {

// A copy goes where the op that made its source can write it itself, and where elementwise ops read it while the source
// still stands: these read that. Returns how many went. On CPUs.
size_t drop_copies(Graph& graph);

}  // namespace deft::graph
