// Matmuls that share an input and became one, for the pass that does the same to their gradients.
#pragma once

#include <vector>

#include "graph/passes.h"

namespace deft::graph {

struct Siblings {
  std::vector<ValueId> weights;  // [out, in] each, in order
  ValueId all = kNone;           // the same in one piece
};

// The gradients of siblings lie side by side in one buffer, and three matmuls become one: those of the weights, those
// of the biases, and the sum of those that lead back to x. Rounds less often.
void merge_gradients(Graph& graph, const std::vector<Siblings>& siblings, Notes& notes);

}  // namespace deft::graph
