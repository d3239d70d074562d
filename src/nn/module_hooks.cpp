#include "nn/module_hooks.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "core/grad_mode.h"
#include "core/hooks.h"
#include "ops/view.h"

namespace deft::nn {

detail::ModuleHooks& Module::hooks() {
  if (!hooks_) hooks_ = std::make_shared<detail::ModuleHooks>();
  return *hooks_;
}

ModuleHookHandle Module::register_forward_pre_hook(ForwardPreHook hook) {
  DEFT_CHECK(hook, ValueError, "register_forward_pre_hook: the hook is empty");
  hooks().before.emplace_back(++hooks_->changes, std::move(hook));
  return {hooks_, hooks_->changes};
}
ModuleHookHandle Module::register_forward_hook(ForwardHook hook) {
  DEFT_CHECK(hook, ValueError, "register_forward_hook: the hook is empty");
  hooks().after.emplace_back(++hooks_->changes, std::move(hook));
  return {hooks_, hooks_->changes};
}
ModuleHookHandle Module::register_full_backward_hook(BackwardHook hook) {
  DEFT_CHECK(hook, ValueError, "register_full_backward_hook: the hook is empty");
  hooks().backward.emplace_back(++hooks_->changes, std::move(hook));
  return {hooks_, hooks_->changes};
}

void ModuleHookHandle::remove() {
  auto hooks = hooks_.lock();
  if (!hooks) return;
  auto is_this = [&](const auto& entry) { return entry.first == id_; };
  size_t removed = std::erase_if(hooks->before, is_this) + std::erase_if(hooks->after, is_this) +
                   std::erase_if(hooks->backward, is_this);
  hooks->changes += removed;
  hooks_.reset();
}

namespace detail {

namespace {

using BackwardHooks = ModuleHooks::List<BackwardHook>;

// The gradients at both ends of one call.
struct Passage {
  Module* module;
  BackwardHooks hooks;
  std::vector<Tensor> grad_outputs;
  void run(std::vector<Tensor>& grad_inputs) {
    for (auto& [id, hook] : hooks) hook(*module, grad_inputs, grad_outputs);
  }
};

bool records(const Tensor& t) { return is_grad_enabled() && t.requires_grad(); }
// The same tensor with a node of its own in the graph, at which gradients can be seen.
Tensor marked(const Tensor& t) { return view(t, t.sizes()); }

Tensor watch_input(const Tensor& x, const std::shared_ptr<Passage>& passage) {
  Tensor input = marked(x);
  register_node_hook(input, [passage](std::vector<Tensor>& grads) { passage->run(grads); });
  return input;
}
Tensor watch_output(const Tensor& y, const std::shared_ptr<Passage>& passage, bool input_records) {
  Tensor output = marked(y);
  register_node_hook(output, [passage, input_records](std::vector<Tensor>& grads) {
    passage->grad_outputs = grads;
    std::vector<Tensor> none(1);
    if (!input_records) passage->run(none);
  });
  return output;
}

}  // namespace

Tensor call_hooked(Module& module, const Tensor& x, const std::function<Tensor(const Tensor&)>& forward) {
  ModuleHooks hooks = *module.hooks_;  // a hook may take itself off
  std::vector<Tensor> inputs{x};
  for (auto& [id, hook] : hooks.before) hook(module, inputs);
  DEFT_CHECK(inputs.size() == 1 && inputs[0].defined(), ValueError,
             "{}: a forward pre-hook must leave one defined input, found {}", module.describe(), inputs.size());
  std::shared_ptr<Passage> passage;
  bool input_records = records(inputs[0]);
  if (!hooks.backward.empty() && is_grad_enabled()) {
    passage = std::make_shared<Passage>(Passage{&module, hooks.backward, {}});
    if (input_records) inputs[0] = watch_input(inputs[0], passage);
  }
  Tensor y = forward(inputs[0]);
  for (auto& [id, hook] : hooks.after) hook(module, inputs, y);
  DEFT_CHECK(y.defined(), ValueError, "{}: a forward hook must leave a defined output", module.describe());
  return passage && records(y) ? watch_output(y, passage, input_records) : y;
}

}  // namespace detail

}  // namespace deft::nn
