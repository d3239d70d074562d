// Runs a function once and writes down what it does.
#pragma once

#include <functional>
#include <vector>

#include "graph/ir.h"

namespace deft::graph {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct Captured {
  Graph graph;
  std::vector<Tensor> results;  // of this run
};

// Tensors that the function reads and nobody gave it become constants; those it made itself and wrote in place start
// from the value they had.
// CaptureError for values read by the host, results whose shape depends on values, gradients that are recorded.
Captured capture(const Function& function, const std::vector<Tensor>& inputs);

}  // namespace deft::graph
