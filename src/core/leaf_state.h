// State of leaves and of tensors that retain their gradient.
#pragma once

#include <functional>
#include <mutex>

#include "base/spin_lock.h"
#include "core/node.h"

namespace deft {

struct LeafState {
  Node accumulator;                // edges to the leaf point here
  TensorImpl* grad = nullptr;      // owned
  SpinLock mutex;                  // accumulation from several backward passes
  std::function<void()> on_death;  // notifies retain_grad's hook that the tensor is gone
};

// Where the gradient of a tensor comes in: its grad_fn, or its accumulator if it is a leaf; no node if it needs none.
struct GradSource {
  NodePtr node;
  uint32_t output_nr = 0;
};
GradSource grad_source(TensorImpl& t);

LeafState& make_leaf_state(TensorImpl& t);
// Made on first use.
inline LeafState& leaf_state(TensorImpl& t) {
  LeafState* state = t.leaf.load(std::memory_order_acquire);
  return state ? *state : make_leaf_state(t);
}
void delete_leaf_state(LeafState* state) noexcept;
extern const NodeType kAccumulateGrad;

}  // namespace deft
