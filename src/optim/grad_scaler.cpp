#include "optim/grad_scaler.h"

#include <cmath>

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/tensor_lists.h"
#include "optim/captured_call.h"

namespace deft::optim {

namespace {

// The gradients there are, and whose they are. GradError if there are none: scale() was not used, or backward() not
// called.
struct Gradients {
  std::vector<Tensor> list;
  std::vector<int64_t> param;
  explicit Gradients(const std::vector<Tensor>& params) {
    for (size_t i = 0; i < params.size(); ++i) {
      Tensor g = params[i].grad();
      if (!g.defined()) continue;
      list.push_back(std::move(g));
      param.push_back(static_cast<int64_t>(i));
    }
    DEFT_CHECK(!list.empty(), GradError,
               "GradScaler: none of the {} parameters has a gradient; call scale(loss).backward() before",
               params.size());
  }
  int64_t param_of(int64_t i) const { return i < 0 ? -1 : param[static_cast<size_t>(i)]; }
};

}  // namespace

std::string ScaledStep::to_string() const {
  if (stepped) return fmt::format("stepped with scale {}", scale);
  return fmt::format("skipped: the gradient of parameter {} is not finite at scale {}", first_bad, scale);
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), scale_(options.scale) {
  DEFT_CHECK(options.scale > 0 && options.growth > 1 && options.backoff > 0 && options.backoff < 1 &&
                 options.growth_interval > 0,
             ValueError,
             "GradScaler: needs scale > 0, growth > 1, 0 < backoff < 1 and an interval > 0; found {}, {}, {} and {}",
             options.scale, options.growth, options.backoff, options.growth_interval);
}

Tensor GradScaler::scale(const Tensor& loss, Site site) const {
  if (!options_.enabled) return loss;
  if (context().bits & kCapture) [[unlikely]] {
    Tensor number = wrap_number(scale_);
    auto again = [this, number] { *static_cast<double*>(number.data_ptr()) = scale_; };
    note_call({"grad_scaler.scale", {number}, {}, {}, false, effective_site(site)}, again);
    return loss.mul(number, site);
  }
  return loss.mul(scale_, site);
}

GradScaler::Progress* GradScaler::find(const Optimizer& optimizer) {
  for (Progress& p : progress_)
    if (p.optimizer == &optimizer) return &p;
  return nullptr;
}

void GradScaler::unscale_(Optimizer& optimizer, Site site) {
  if (!options_.enabled) return;
  if (context().bits & kCapture) [[unlikely]] {
    CapturedCall call{"grad_scaler.unscale_", {}, {}, with_gradient(optimizer.params()), true, effective_site(site)};
    return capture_call(std::move(call), [this, &optimizer, site] { unscale_(optimizer, site); });
  }
  const Progress* before = find(optimizer);
  DEFT_CHECK(!before, GradError, "GradScaler: unscale_() after {} of the same optimizer; call update() in between",
             before && before->stage == Stage::unscaled ? "unscale_()" : "step()");
  const Gradients grads(optimizer.params());
  for (const Tensor& g : grads.list) {
    DEFT_CHECK(
        g.dtype() != DType::f16, DTypeError,
        "GradScaler: a gradient is f16, which cannot hold what unscaling makes of it; keep parameters in f32 and use "
        "autocast");
  }
  const int64_t bad = grads.param_of(unscale_tensors_(grads.list, 1 / scale_, site));
  progress_.push_back({&optimizer, Stage::unscaled, bad >= 0, bad});
}

ScaledStep GradScaler::step(Optimizer& optimizer, Site site) {
  if (!options_.enabled) {
    optimizer.step({}, site);
    return {};
  }
  if (context().bits & kCapture) [[unlikely]]
    return capture_step(optimizer, site);
  Progress* p = find(optimizer);
  DEFT_CHECK(!p || p->stage != Stage::stepped, GradError,
             "GradScaler: step() was already called for this optimizer; call update() in between");
  double grad_scale = 1;
  if (!p) {
    const Gradients grads(optimizer.params());
    const int64_t bad = grads.param_of(first_not_finite(grads.list, site));
    p = &progress_.emplace_back(Progress{&optimizer, Stage::stepped, bad >= 0, bad});
    grad_scale = 1 / scale_;
  }
  p->stage = Stage::stepped;
  ScaledStep result{!p->found_inf, p->found_inf, p->first_bad, scale_};
  if (result.stepped) optimizer.step({.grad_scale = grad_scale}, site);
  return result;
}

ScaledStep GradScaler::capture_step(Optimizer& optimizer, const Site& site) {
  CapturedCall call{"grad_scaler.step", {}, {}, with_gradient(optimizer.params()), false, effective_site(site)};
  ScaledStep done;
  {
    deft::detail::CapturePause pause;
    done = step(optimizer, site);
    call.written = optimizer.written_by_step();
  }
  note_call(std::move(call), [this, &optimizer, site] { step(optimizer, site); });
  return done;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  if (context().bits & kCapture) [[unlikely]]
    return capture_call({"grad_scaler.update", {}, {}, {}, false, {}}, [this] { update(); });
  DEFT_CHECK(!progress_.empty(), GradError, "GradScaler: update() without a step; call step(optimizer) before");
  bool overflow = false;
  for (const Progress& p : progress_) overflow |= p.found_inf;
  progress_.clear();
  if (overflow) {
    scale_ *= options_.backoff;
    clean_steps_ = 0;
  } else if (++clean_steps_ == options_.growth_interval) {
    if (std::isfinite(static_cast<float>(scale_ * options_.growth))) scale_ *= options_.growth;
    clean_steps_ = 0;
  }
}

State GradScaler::state() const {
  State s;
  s.values["scale"] = scale_;
  s.values["growth"] = options_.growth;
  s.values["backoff"] = options_.backoff;
  s.values["growth_interval"] = options_.growth_interval;
  s.values["clean_steps"] = clean_steps_;
  return s;
}

void GradScaler::load_state(const State& state) {
  double scale = state.get<double>("scale"), growth = state.get<double>("growth"),
         backoff = state.get<double>("backoff");
  int64_t interval = state.get<int64_t>("growth_interval"), clean = state.get<int64_t>("clean_steps");
  scale_ = scale;
  options_.growth = growth;
  options_.backoff = backoff;
  options_.growth_interval = interval;
  clean_steps_ = clean;
  progress_.clear();
}

}  // namespace deft::optim
