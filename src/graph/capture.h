// Runs a function once and records its ops.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/grad_state.h"
#include "graph/ir.h"
#include "graph/passes.h"

namespace deft::graph {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct Captured {
  Graph graph;
  std::vector<Tensor> results;  // of this run, without history
  GradState gradients = {};
  std::vector<Dependency> read = {};  // constants whose values the host read
  std::vector<size_t> held = {};      // inputs that the function also holds itself
  // A tensor that the function made and keeps: no replay would renew it, so the capture is of no use. Empty: none.
  std::string kept = {};
};

// Tensors that the function reads and that are no inputs become constants; tensors that it made itself and wrote in
// place start from the value they had.
// Gradients may be recorded as long as backward() uses up all of their graph before the capture ends.
// CaptureError for values read by the host, results whose shape depends on values, results that still have a history.
// `callers`: the tensors that `inputs` are other headers of, so that a function that holds one is noticed.
Captured capture(const Function& function, const std::vector<Tensor>& inputs, const std::vector<Tensor>& callers = {});

}  // namespace deft::graph
