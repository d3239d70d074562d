// Lowers the learning rate when a metric stops getting better.
#pragma once

#include "optim/optimizer.h"

namespace deft::optim {

struct PlateauOptions {
  bool maximize = false;  // larger is better
  double factor = 0.1;
  int64_t patience = 10;  // epochs without improvement that are waited for
  double threshold = 1e-4;
  bool absolute = false;  // the threshold is a difference, not a part of the best value
  int64_t cooldown = 0;   // epochs after a reduction that do not count
  double min_lr = 0;
  double eps = 1e-8;  // smaller changes of the rate are left out
};

// Refers to the optimizer, which must live longer.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});
  ReduceLROnPlateau(const ReduceLROnPlateau&) = delete;
  ReduceLROnPlateau& operator=(const ReduceLROnPlateau&) = delete;

  void step(double metric);
  std::vector<double> get_last_lr() const;
  int64_t last_epoch() const { return epoch_; }
  double best() const { return best_; }

  State state() const;
  void load_state(const State& state);

 private:
  bool is_better(double metric) const;
  void reduce();

  Optimizer& optimizer_;
  PlateauOptions options_;
  double best_;
  int64_t bad_epochs_ = 0, cooling_ = 0, epoch_ = 0;
};

}  // namespace deft::optim
