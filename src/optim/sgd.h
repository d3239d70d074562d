// Stochastic gradient descent with momentum.
#pragma once

#include "optim/grouped_optimizer.h"

namespace deft::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  bool master_weights = false;  // keeps an f32 copy of 16-bit parameters and updates that

  // --- for GroupedOptimizer
  static constexpr const char* kName = "SGD";
  static constexpr const char* kStates[] = {"momentum_buffer", nullptr, nullptr};
  static constexpr bool kFirstStepFills = true;
  void each(auto&& f) {
    f("lr", lr), f("momentum", momentum), f("dampening", dampening), f("weight_decay", weight_decay);
    f("nesterov", nesterov), f("maximize", maximize), f("master_weights", master_weights);
  }
  double* momentum_field() { return &momentum; }
  bool needs(int state) const { return state == 0 && momentum != 0; }
  void check(const char* name) const;
  void update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale, const Site& site) const;
};

using SGD = GroupedOptimizer<SGDOptions>;

}  // namespace deft::optim
