#include "graph/grad_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/describe.h"
#include "core/leaf_state.h"
#include "graph/executable.h"

namespace deft::graph {

namespace {

bool same_kind(const Meta& a, const Meta& b) {
  return a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype && a.device == b.device;
}
bool fits(const LeafGrad& l, const Tensor& grad) {
  return grad.defined() == l.before && (!l.before || same_kind(grad.meta(), l.meta));
}

}  // namespace

uint64_t hooks_of(const Tensor& leaf) {
  const LeafState* state = leaf.impl()->leaf.load(std::memory_order_acquire);
  if (!state || !state->accumulator.hooks) return 0;
  uint64_t all = 0;
  for (const auto& hook : state->accumulator.hooks->output) all = all * 31 + hook.id + 1;
  for (const auto& hook : state->accumulator.hooks->around) all = all * 31 + hook.id + 1;
  return all;
}

size_t first_same(GradState::Inputs inputs, size_t i) {
  size_t first = 0;
  while (!inputs[first]->is_same(*inputs[i])) ++first;
  return first;
}

// Its gradient would come from two places.
bool GradState::is_leaf_of_function(const Tensor& input) const {
  return std::any_of(leaves.begin(), leaves.end(),
                     [&](const LeafGrad& l) { return l.input < 0 && l.leaf.is_same(input); });
}

bool GradState::serves_input(Inputs inputs, size_t i) const {
  const Tensor& t = *inputs[i];
  const InputNeed& n = needs_inputs[i];
  if (t.requires_grad() != n.requires_grad || !t.is_leaf()) return false;
  return !n.requires_grad || (hooks_of(t) == n.hooks && first_same(inputs, i) == n.same && !is_leaf_of_function(t));
}

bool GradState::serves(Inputs inputs) const {
  for (size_t i = 0; i < needs_inputs.size(); ++i)
    if (!serves_input(inputs, i)) return false;
  for (const Need& n : constants)
    if (needs_grad(*n.constant.impl()) != n.requires_grad || (n.requires_grad && hooks_of(n.constant) != n.hooks))
      return false;
  for (const LeafGrad& l : leaves) {
    const LeafState* state = leaf(l, inputs).impl()->leaf.load(std::memory_order_acquire);
    const bool has = state && state->grad;
    if (has != l.before || (has && !fits(l, leaf(l, inputs).grad()))) return false;
  }
  return true;
}

std::string GradState::difference(Inputs inputs) const {
  auto requires_grad = [](bool now) { return now ? "now requires grad" : "requires grad no more"; };
  for (size_t i = 0; i < needs_inputs.size(); ++i) {
    if (serves_input(inputs, i)) continue;
    const InputNeed& n = needs_inputs[i];
    if (!inputs[i]->is_leaf()) return fmt::format("input {} has a history", i);
    if (inputs[i]->requires_grad() != n.requires_grad)
      return fmt::format("input {} {}", i, requires_grad(!n.requires_grad));
    if (hooks_of(*inputs[i]) != n.hooks) return fmt::format("input {} has other hooks", i);
    return fmt::format("input {} is a leaf that the function has hold of under another name, or was one", i);
  }
  for (const Need& n : constants) {
    if (n.constant.requires_grad() != n.requires_grad)
      return fmt::format("a constant {} {}", describe(n.constant.meta()), requires_grad(!n.requires_grad));
    if (n.requires_grad && hooks_of(n.constant) != n.hooks)
      return fmt::format("a constant {} has other hooks", describe(n.constant.meta()));
  }
  for (const LeafGrad& l : leaves) {
    const Tensor& t = leaf(l, inputs);
    Tensor grad = t.grad();
    if (fits(l, grad)) continue;
    if (!grad.defined()) return fmt::format("a leaf {} has no gradient; it had one", describe(t.meta()));
    if (!l.before) return fmt::format("a leaf {} has a gradient; it had none", describe(t.meta()));
    return fmt::format("the gradient of a leaf is {} instead of {}", describe(grad.meta()), describe(l.meta));
  }
  return {};
}

void GradState::add_inputs(Inputs inputs, std::vector<Tensor>& all) const {
  for (const LeafGrad& l : leaves)
    if (l.before) all.push_back(leaf(l, inputs).grad());
}

void GradState::run(Executable& plan, Inputs inputs, Tensor* results) const {
  if (leaves.empty()) return plan.run(inputs.data(), results);
  std::vector<Tensor> gradients;
  add_inputs(inputs, gradients);
  std::vector<const Tensor*> given(inputs.begin(), inputs.end());
  for (const Tensor& g : gradients) given.push_back(&g);
  std::vector<Tensor> found(plan.graph().outputs.size());
  plan.run(given.data(), found.data());
  const size_t count = found.size() - made;
  std::move(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), results);
  size_t next = count;
  for (const LeafGrad& l : leaves) {
    if (l.after == LeafGrad::After::made)
      leaf(l, inputs).set_grad(found[next++]);
    else if (l.after == LeafGrad::After::none && l.before)
      leaf(l, inputs).zero_grad();
  }
}

}  // namespace deft::graph
