// Adagrad: steps divided by the root of the sum of all squares so far.
#pragma once

#include "optim/grouped_optimizer.h"

namespace deft::optim {

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
  bool master_weights = false;  // keeps an f32 copy of 16-bit parameters and updates that

  // --- for GroupedOptimizer
  static constexpr const char* kName = "Adagrad";
  static constexpr const char* kStates[] = {"sum", nullptr, nullptr};
  static constexpr bool kFirstStepFills = false;
  void each(auto&& f) {
    f("lr", lr), f("lr_decay", lr_decay), f("weight_decay", weight_decay), f("eps", eps);
    f("initial_accumulator_value", initial_accumulator_value), f("maximize", maximize);
    f("master_weights", master_weights);
  }
  double* momentum_field() { return nullptr; }
  bool needs(int state) const { return state == 0; }
  void check(const char* name) const;
  void update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale, const Site& site) const;
};

using Adagrad = GroupedOptimizer<AdagradOptions>;

}  // namespace deft::optim
