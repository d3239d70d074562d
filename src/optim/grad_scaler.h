// Scaling the loss, so that small gradients survive f16. bf16 has the range of f32 and needs none.
//
//   Tensor loss = ...;                       // under AutocastGuard(DType::f16)
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);              // only to clip, or to inspect the gradients
//   optim::ScaledStep done = scaler.step(optimizer);
//   scaler.update();                         // also after a step that was skipped
#pragma once

#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace deft::optim {

struct GradScalerOptions {
  double scale = 65536;
  double growth = 2, backoff = 0.5;
  int64_t growth_interval = 2000;  // steps without overflow before the scale grows
  bool enabled = true;             // otherwise scale() and unscale_() do nothing, and step() is the optimizer's
};

// What step() did.
struct ScaledStep {
  bool stepped = true;
  bool found_inf = false;  // a gradient was infinite or NaN: parameters and optimizer are as before
  int64_t first_bad = -1;  // of optimizer.params()
  double scale = 1;        // of the loss in this step
  std::string to_string() const;
};

// In a function that compile() captures, plans call this object again: it must outlive them.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});
  Tensor scale(const Tensor& loss, Site site = Site::current()) const;
  // Divides the gradients in place, at most once between two updates.
  void unscale_(Optimizer& optimizer, Site site = Site::current());
  // Skips the optimizer's step if a gradient is not finite. Gradients that were not unscaled are unscaled on the way
  // into the step, without a pass of their own, and stay as they are.
  ScaledStep step(Optimizer& optimizer, Site site = Site::current());
  // Once per iteration, after all optimizers: backs off if any of them found an overflow, grows after enough clean
  // steps.
  void update();

  double current_scale() const { return options_.enabled ? scale_ : 1; }
  bool is_enabled() const { return options_.enabled; }
  State state() const;
  void load_state(const State& state);

 private:
  enum class Stage : uint8_t { unscaled, stepped };
  struct Progress {
    const Optimizer* optimizer;
    Stage stage;
    bool found_inf;
    int64_t first_bad;
  };
  Progress* find(const Optimizer& optimizer);
  ScaledStep capture_step(Optimizer& optimizer, const Site& site);
  GradScalerOptions options_;
  double scale_;
  int64_t clean_steps_ = 0;
  std::vector<Progress> progress_;  // since the last update; no entry: not begun
};

}  // namespace deft::optim
