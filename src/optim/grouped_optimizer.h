// An optimizer from its options: a struct with the numbers, their checks, and the update they mean. See sgd.h.
#pragma once

#include <type_traits>

#include "optim/optimizer.h"

namespace deft::optim {

template <class O>
struct ParamGroup {
  std::vector<Tensor> params;
  O options;
};

template <class O>
class GroupedOptimizer final : public Optimizer {
 public:
  using Options = O;
  using Group = ParamGroup<O>;

  explicit GroupedOptimizer(const std::vector<Tensor>& params, const O& options = {}) {
    check_not_empty(params.size(), "parameters");
    add_param_group(params, options);
  }
  explicit GroupedOptimizer(const std::vector<Group>& groups) {
    check_not_empty(groups.size(), "groups");
    for (const Group& g : groups) add_param_group(g.params, g.options);
  }
  void add_param_group(const std::vector<Tensor>& params, const O& options) {
    options.check(name());
    check_params(params);
    options_.push_back(options);
    add_slots(params);
  }

  const char* name() const override { return O::kName; }
  // May be changed between steps.
  O& options(size_t group = 0) {
    check_group(group);
    return options_[group];
  }

 private:
  void each_option(size_t group, FunctionRef<void(const Option&)> visit) override {
    auto one = [&](const char* option, auto& value) {
      if constexpr (std::is_same_v<decltype(value), bool&>)
        visit({option, nullptr, &value});
      else
        visit({option, &value, nullptr});
    };
    options_[group].each(one);
  }
  double* momentum_of(size_t group) override { return options_[group].momentum_field(); }
  const char* const* state_names() const override { return O::kStates; }
  bool needs_state(size_t group, int state) const override { return options_[group].needs(state); }
  double initial_state(size_t group) const override {
    if constexpr (requires(const O& o) { o.initial_accumulator_value; })
      return options_[group].initial_accumulator_value;
    else
      return 0;
  }
  bool keeps_master(size_t group) const override { return options_[group].master_weights; }
  bool first_step_fills() const override { return O::kFirstStepFills; }
  void update(size_t group, const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
              const Site& site) override {
    options_[group].update(tensors, step, grad_scale, site);
  }

  std::vector<O> options_;
};

}  // namespace deft::optim
