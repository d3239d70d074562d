// A plan and its function, run beside each other on the same memory and random numbers, and compared.
#pragma once

#include "graph/capture.h"

namespace deft::graph {

class Shadow {
 public:
  // Before the plan runs: saves the memory it is going to write. The state of code outside the graph cannot be saved: a
  // plan with calls has no shadow.
  Shadow(const Graph& graph, const GradState& gradients, GradState::Inputs inputs);
  static bool is_possible(const Graph& graph);

  // After the plan ran: the function runs on the saved memory and keeps its effects. InternalError where a result,
  // a gradient or memory that both wrote differs.
  void compare(const std::vector<Tensor>& results, const Function& function, const std::vector<Tensor>& inputs);

 private:
  struct Memory {
    Tensor tensor;  // any on that memory
    Tensor before;  // its bytes
  };
  const GradState& gradients_;
  GradState::Inputs inputs_;
  std::vector<Memory> written_;
  std::vector<Tensor> gradients_before_;
  PhiloxState draws_;
};

}  // namespace deft::graph
