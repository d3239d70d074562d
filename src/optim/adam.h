// Adam, and AdamW, which decays weights apart from the gradient.
#pragma once

#include "optim/grouped_optimizer.h"

namespace deft::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  bool amsgrad = false;
  bool maximize = false;
  bool master_weights = false;  // keeps an f32 copy of 16-bit parameters and updates that

  // --- for GroupedOptimizer
  static constexpr const char* kName = "Adam";
  static constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  static constexpr bool kFirstStepFills = false;
  void each(auto&& f) {
    f("lr", lr), f("beta1", beta1), f("beta2", beta2), f("eps", eps), f("weight_decay", weight_decay);
    f("amsgrad", amsgrad), f("maximize", maximize), f("master_weights", master_weights);
  }
  double* momentum_field() { return &beta1; }
  bool needs(int state) const { return state < 2 || amsgrad; }
  void check(const char* name) const;
  void update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale, const Site& site) const;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // weights shrink by lr times it
  bool amsgrad = false;
  bool maximize = false;
  bool master_weights = false;

  // --- for GroupedOptimizer
  static constexpr const char* kName = "AdamW";
  static constexpr const auto& kStates = AdamOptions::kStates;
  static constexpr bool kFirstStepFills = false;
  void each(auto&& f) {
    f("lr", lr), f("beta1", beta1), f("beta2", beta2), f("eps", eps), f("weight_decay", weight_decay);
    f("amsgrad", amsgrad), f("maximize", maximize), f("master_weights", master_weights);
  }
  double* momentum_field() { return &beta1; }
  bool needs(int state) const { return state < 2 || amsgrad; }
  void check(const char* name) const;
  void update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale, const Site& site) const;
};

using Adam = GroupedOptimizer<AdamOptions>;
using AdamW = GroupedOptimizer<AdamWOptions>;

}  // namespace deft::optim
