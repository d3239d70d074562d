// Writes to parts of a buffer, as the gates of a recurrent cell are, become results of their own.
#pragma once

#include "graph/passes.h"

namespace deft::graph {

// Where an elementwise op writes over a part of a temporary, and other elementwise ops read that part or parts of it,
// the result gets memory of its own, one for each part that is read: only then can the op go into its readers. Same
// bits. On CPUs.
void separate_writes(Graph& graph);

}  // namespace deft::graph
