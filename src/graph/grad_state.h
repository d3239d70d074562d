// The gradient state of leaves before and after a captured function: whether they require gradients, and their .grad.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace deft::graph {

// A leaf whose .grad the function touches. A gradient that was there is one more input of the graph, after the
// function's own; one that is there afterwards and is not the same memory is one more output.
struct LeafGrad {
  enum class After : uint8_t { none, same, made };
  Tensor leaf;         // undefined where it is an input
  int32_t input = -1;  // which one
  bool before = false;
  Meta meta = {};  // of the gradient there was
  After after = After::none;
};

class Executable;

struct GradState {
  struct Need {
    Tensor constant;
    bool requires_grad;
    uint64_t hooks;  // hooks_of() it
  };
  struct InputNeed {
    bool requires_grad;
    uint64_t hooks;
    size_t same;  // the first input that is the same leaf
  };
  std::vector<LeafGrad> leaves;
  std::vector<Need> constants;          // that the function reads; only where gradients were on
  std::vector<InputNeed> needs_inputs;  // the same of the inputs
  size_t made = 0;                      // outputs of the graph, the last ones, that are gradients

  using Inputs = std::span<const Tensor* const>;
  // Why a plan does not serve a call; empty where it does.
  std::string difference(Inputs inputs) const;
  bool serves(Inputs inputs) const;
  // No gradients are involved, so the plan serves any call.
  bool is_empty() const { return leaves.empty() && constants.empty() && needs_inputs.empty(); }
  // Runs the plan with the current gradients, and gives each leaf its new gradient.
  void run(Executable& plan, Inputs inputs, Tensor* results) const;
  // The gradients that are there, in the order of the graph's inputs.
  void add_inputs(Inputs inputs, std::vector<Tensor>& all) const;

  const Tensor& leaf(const LeafGrad& l, Inputs inputs) const {
    return l.input < 0 ? l.leaf : *inputs[static_cast<size_t>(l.input)];
  }

 private:
  bool is_leaf_of_function(const Tensor& input) const;
  bool serves_input(Inputs inputs, size_t i) const;
};

// A number that identifies the hooks on a leaf's gradient; 0: there are none.
uint64_t hooks_of(const Tensor& leaf);
// The first input that is the same tensor as input i.
size_t first_same(GradState::Inputs inputs, size_t i);

}  // namespace deft::graph
