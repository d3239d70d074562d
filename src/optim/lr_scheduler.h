// Schedules of the learning rate. Call step() after the optimizer's, once per epoch or once per batch as the schedule
// is meant. The first rate is set when the schedule is made.
//
// A schedule changes the rate that is set, so that several work on one optimizer together: each contributes its factor.
// CosineAnnealingWarmRestarts, OneCycleLR and LambdaLR set the rate whatever it was.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "optim/optimizer.h"

namespace deft::optim {

// Refers to the optimizer, which must live longer.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  void step();
  // Back to its beginning, from the initial rates.
  void restart();
  const std::vector<double>& get_last_lr() const { return last_lr_; }  // by group
  int64_t last_epoch() const { return epoch_; }                        // steps since the beginning
  Optimizer& optimizer() const { return optimizer_; }

  // Rates are the optimizer's: load its state after the schedule is made.
  State state() const;
  void load_state(const State& state);

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {}
  void start();  // derived classes end their constructor with it
  double base_lr(size_t group) const { return base_lr_[group]; }
  int64_t epoch() const { return epoch_; }

  virtual const char* name() const = 0;
  // The rate of epoch(), from that of the epoch before; epoch 0 begins from the rate that is set, or base_lr().
  virtual double next(size_t group, double lr) const = 0;
  virtual void advance(bool restarted);
  virtual void add_state(State&) const {}
  virtual void take_state(const State&) {}

 private:
  void meet_groups();  // some may have been added
  void remember();
  void check_state(const State& state) const;

  Optimizer& optimizer_;
  std::vector<double> base_lr_, last_lr_;
  int64_t epoch_ = 0;
};

// Times gamma every step_size epochs.
class StepLR final : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 private:
  const char* name() const override { return "StepLR"; }
  double next(size_t group, double lr) const override;
  int64_t step_size_;
  double gamma_;
};

// Times gamma at each of the milestones.
class MultiStepLR final : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 private:
  const char* name() const override { return "MultiStepLR"; }
  double next(size_t group, double lr) const override;
  std::vector<int64_t> milestones_;  // ascending
  double gamma_;
};

// Times gamma every epoch.
class ExponentialLR final : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 private:
  const char* name() const override { return "ExponentialLR"; }
  double next(size_t group, double lr) const override;
  double gamma_;
};

// Times `factor` for the first total_iters epochs.
class ConstantLR final : public LRScheduler {
 public:
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);

 private:
  const char* name() const override { return "ConstantLR"; }
  double next(size_t group, double lr) const override;
  double factor_;
  int64_t total_;
};

// Times a factor that goes from start_factor to end_factor within total_iters epochs: a warm-up.
class LinearLR final : public LRScheduler {
 public:
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    int64_t total_iters = 5);

 private:
  const char* name() const override { return "LinearLR"; }
  double next(size_t group, double lr) const override;
  double start_, end_;
  int64_t total_;
};

// Half a cosine from the initial rate to eta_min in t_max epochs, and back up in as many.
class CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min = 0);

 private:
  const char* name() const override { return "CosineAnnealingLR"; }
  double next(size_t group, double lr) const override;
  int64_t t_max_;
  double eta_min_;
};

// Half a cosine in t_0 epochs, then from the initial rate again, each time t_mult times as long.
class CosineAnnealingWarmRestarts final : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult = 1, double eta_min = 0);

 private:
  const char* name() const override { return "CosineAnnealingWarmRestarts"; }
  double next(size_t group, double) const override;
  int64_t t_0_, t_mult_;
  double eta_min_;
};

// The initial rate times factor(epoch); one function for all groups, or one each. Functions are not part of the state.
class LambdaLR final : public LRScheduler {
 public:
  using Factor = std::function<double(int64_t epoch)>;
  LambdaLR(Optimizer& optimizer, Factor factor);
  LambdaLR(Optimizer& optimizer, std::vector<Factor> factors);

 private:
  const char* name() const override { return "LambdaLR"; }
  double next(size_t group, double) const override;
  std::vector<Factor> factors_;
};

// Up to max_lr and down again within total_steps batches, the momentum (or beta1) the other way round.
struct OneCycleOptions {
  double max_lr = 0;
  int64_t total_steps = 0;
  std::vector<double> max_lrs = {};  // by group, instead of max_lr
  double pct_start = 0.3;            // the part of the steps that goes up
  bool linear = false;               // straight lines instead of cosines
  bool cycle_momentum = true;
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         // begins at max_lr / div_factor
  double final_div_factor = 1e4;  // ends at the beginning's / final_div_factor
  bool three_phase = false;       // down to the beginning first, then to the end
};
class OneCycleLR final : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options);

 private:
  struct Phase {
    double end;       // the last step of it
    double from, to;  // rates, as parts of max_lr
    double momentum, to_momentum;
  };
  const char* name() const override { return "OneCycleLR"; }
  double next(size_t group, double) const override;
  void advance(bool restarted) override;
  // The phase of epoch() and how far into it.
  std::pair<const Phase*, double> phase() const;
  double between(double from, double to, double part) const;
  OneCycleOptions options_;
  std::vector<Phase> phases_;
};

// One schedule after the other: schedule i + 1 begins, from its own beginning, at milestones[i].
class SequentialLR final : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedules,
               std::vector<int64_t> milestones);

 private:
  const char* name() const override { return "SequentialLR"; }
  double next(size_t, double lr) const override { return lr; }
  void advance(bool restarted) override;
  void add_state(State& state) const override;
  void take_state(const State& state) override;
  std::vector<std::shared_ptr<LRScheduler>> schedules_;
  std::vector<int64_t> milestones_;
};

}  // namespace deft::optim
