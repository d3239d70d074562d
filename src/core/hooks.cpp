#include "core/hooks.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "core/describe.h"
#include "core/leaf_state.h"
#include "core/op.h"

namespace deft {

namespace {

uint64_t next_hook_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// The node that the gradient of `t` arrives at, or nullptr.
Node* find_node(TensorImpl& t) {
  if (!needs_grad(t)) return nullptr;
  return t.grad_fn ? t.grad_fn : &leaf_state(t).accumulator;
}

Node& node_for(const Tensor& t, const char* who, const Site& site) {
  DEFT_CHECK(t.defined(), ValueError, "{}: the tensor is undefined", who);
  Node* n = find_node(*t.impl());
  DEFT_CHECK(n, GradError, "{}: the tensor {} does not require grad, so no gradient will come (at {})", who,
             describe(t.meta()), to_string(site));
  return *n;
}

NodeHooks& hooks_of(Node& n) {
  if (!n.hooks) n.hooks = new NodeHooks;
  return *n.hooks;
}

void add_output_hook(Node& n, uint32_t output_nr, uint64_t id, TensorHook hook) {
  auto& all = hooks_of(n).output;
  auto at = all.end();
  if (!(id & kRetainHook)) at = std::find_if(all.begin(), all.end(), [](auto& h) { return (h.id & kRetainHook) != 0; });
  all.insert(at, {output_nr, id, std::move(hook)});
}

// Where a retained gradient goes. The hook must not own the tensor: tensor -> node -> hook -> tensor would be a cycle.
struct RetainedGrad {
  std::mutex mutex;
  LeafState* state;  // nullptr once the tensor is gone
  void add(const Tensor& g) {
    std::lock_guard alive(mutex);
    if (!state) return;
    std::lock_guard lock(state->mutex);
    Tensor old(ImplPtr::share(state->grad));
    Tensor sum = old.defined() ? old.add(g) : g;
    sum.impl()->retain();
    if (TensorImpl* before = std::exchange(state->grad, sum.impl())) before->release();
  }
};

}  // namespace

HookHandle Tensor::register_hook(TensorHook hook) const {
  DEFT_CHECK(hook, ValueError, "register_hook: the hook is empty");
  Node& n = node_for(*this, "register_hook", {});
  uint64_t id = next_hook_id();
  add_output_hook(n, n.has(kNodeIsLeaf) ? 0 : impl_->output_nr, id, std::move(hook));
  return {id};
}

void Tensor::remove_hook(HookHandle handle) const {
  Node* n = defined() ? find_node(*impl_) : nullptr;
  if (n && n->hooks) std::erase_if(n->hooks->output, [&](auto& h) { return h.id == handle.id; });
}

void Tensor::retain_grad() const {
  DEFT_CHECK(defined(), ValueError, "retain_grad: the tensor is undefined");
  if (is_leaf()) return;
  LeafState& state = leaf_state(*impl_);
  if (state.on_death) return;  // retained already
  auto target = std::make_shared<RetainedGrad>();
  target->state = &state;
  add_output_hook(*impl_->grad_fn, impl_->output_nr, next_hook_id() | kRetainHook, [target](const Tensor& g) {
    target->add(g);
    return Tensor();
  });
  state.on_death = [target] {
    std::lock_guard lock(target->mutex);
    target->state = nullptr;
  };
}

void move_retain_hooks(Node& from, uint32_t output_nr, TensorImpl& t) {
  LeafState* state = t.leaf.load(std::memory_order_acquire);
  if (!state || !state->on_death || !t.grad_fn || t.grad_fn == &from) return;
  auto is_mine = [&](auto& h) { return (h.id & kRetainHook) && h.output_nr == output_nr; };
  for (auto& h : from.hooks->output)
    if (is_mine(h)) add_output_hook(*t.grad_fn, t.output_nr, h.id, h.call);
  std::erase_if(from.hooks->output, is_mine);
}

HookHandle register_node_hook(const NodePtr& node, NodePreHook pre, NodePostHook post) {
  DEFT_CHECK(node, ValueError, "register_node_hook: there is no node; the tensor is a leaf or has no graph");
  DEFT_CHECK(pre || post, ValueError, "register_node_hook: both functions are empty");
  uint64_t id = next_hook_id();
  hooks_of(*node).around.push_back({id, std::move(pre), std::move(post)});
  return {id};
}

HookHandle register_node_hook(const Tensor& t, NodePreHook pre, NodePostHook post, Site site) {
  return register_node_hook(NodePtr::share(&node_for(t, "register_node_hook", site)), std::move(pre), std::move(post));
}

void remove_node_hook(const NodePtr& node, HookHandle handle) {
  if (node && node->hooks) std::erase_if(node->hooks->around, [&](auto& h) { return h.id == handle.id; });
}

void remove_node_hook(const Tensor& t, HookHandle handle) {
  if (t.defined()) remove_node_hook(NodePtr::share(find_node(*t.impl())), handle);
}

}  // namespace deft
