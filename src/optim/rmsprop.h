// RMSprop: steps divided by the root of a moving average of squares.
#pragma once

#include "optim/grouped_optimizer.h"

namespace deft::optim {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;  // divides by the standard deviation instead
  bool maximize = false;
  bool master_weights = false;  // keeps an f32 copy of 16-bit parameters and updates that

  // --- for GroupedOptimizer
  static constexpr const char* kName = "RMSprop";
  static constexpr const char* kStates[] = {"square_avg", "momentum_buffer", "grad_avg"};
  static constexpr bool kFirstStepFills = false;
  void each(auto&& f) {
    f("lr", lr), f("alpha", alpha), f("eps", eps), f("weight_decay", weight_decay), f("momentum", momentum);
    f("centered", centered), f("maximize", maximize), f("master_weights", master_weights);
  }
  double* momentum_field() { return &momentum; }
  bool needs(int state) const { return state == 0 || (state == 1 ? momentum != 0 : centered); }
  void check(const char* name) const;
  void update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale, const Site& site) const;
};

using RMSprop = GroupedOptimizer<RMSpropOptions>;

}  // namespace deft::optim
