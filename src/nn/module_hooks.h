// Hooks of modules: functions called around forward(), and when gradients have passed it. Registered with
// Module::register_forward_pre_hook(), register_forward_hook() and register_full_backward_hook(); this is how they run.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace deft::nn::detail {

struct ModuleHooks {
  // By the number of registration, which is also their order.
  template <class Hook>
  using List = std::vector<std::pair<uint64_t, Hook>>;
  List<ForwardPreHook> before;
  List<ForwardHook> after;
  List<BackwardHook> backward;
  uint64_t changes = 0;  // registrations and removals so far
};

// forward(x) with the hooks of `module` around it.
Tensor call_hooked(Module& module, const Tensor& x, const std::function<Tensor(const Tensor&)>& forward);

}  // namespace deft::nn::detail
