// LAMB: Adam whose step of every tensor is scaled to the size of the tensor, for very large batches.
#pragma once

#include "optim/grouped_optimizer.h"

namespace deft::optim {

struct LAMBOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;  // part of the step, and so of its size
  bool maximize = false;
  bool master_weights = false;  // keeps an f32 copy of 16-bit parameters and updates that

  // --- for GroupedOptimizer
  static constexpr const char* kName = "LAMB";
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq", nullptr};
  static constexpr bool kFirstStepFills = false;
  void each(auto&& f) {
    f("lr", lr), f("beta1", beta1), f("beta2", beta2), f("eps", eps), f("weight_decay", weight_decay);
    f("maximize", maximize), f("master_weights", master_weights);
  }
  double* momentum_field() { return &beta1; }
  bool needs(int state) const { return state < 2; }
  void check(const char* name) const;
  void update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale, const Site& site) const;
};

using LAMB = GroupedOptimizer<LAMBOptions>;

}  // namespace deft::optim
