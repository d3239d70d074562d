// Hooks: functions called while gradients flow.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"

namespace deft {

// Around one recorded op. `pre` may change the gradients of its outputs before the formula runs; `post` may change the
// gradients of its inputs after it. On a leaf, `pre` sees the summed gradient and `post` runs once .grad is up to date
// (its first argument is empty). Tensor hooks (Tensor::register_hook) come before node hooks, retain_grad() last of
// them; within a kind the order of registration holds.
using NodePreHook = std::function<void(std::vector<Tensor>& grad_outputs)>;
using NodePostHook = std::function<void(std::vector<Tensor>& grad_inputs, const std::vector<Tensor>& grad_outputs)>;

HookHandle register_node_hook(const Tensor& t, NodePreHook pre, NodePostHook post = nullptr,
                              Site site = Site::current());
HookHandle register_node_hook(const NodePtr& node, NodePreHook pre, NodePostHook post = nullptr);
void remove_node_hook(const Tensor& t, HookHandle handle);
void remove_node_hook(const NodePtr& node, HookHandle handle);

// Hooks of retain_grad() carry this bit in their id: they come last and move with in-place writes.
inline constexpr uint64_t kRetainHook = uint64_t{1} << 63;

// After an in-place write retain_grad() means the new value: its hook moves from output `output_nr` of the old node to
// t's.
void move_retain_hooks(Node& from, uint32_t output_nr, TensorImpl& t);

}  // namespace deft
