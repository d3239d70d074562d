#include "optim/reduce_lr_on_plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "optim/captured_call.h"

namespace deft::optim {

namespace {

double worst(const PlateauOptions& o) { return (o.maximize ? -1 : 1) * std::numeric_limits<double>::infinity(); }

}  // namespace

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options)
    : optimizer_(optimizer), options_(options), best_(worst(options)) {
  DEFT_CHECK(options.factor < 1, ValueError, "ReduceLROnPlateau: the factor must be below 1, found {}", options.factor);
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const double t = options_.threshold;
  if (options_.maximize) return metric > (options_.absolute ? best_ + t : best_ * (1 + t));
  return metric < (options_.absolute ? best_ - t : best_ * (1 - t));
}

void ReduceLROnPlateau::reduce() {
  for (size_t g = 0; g < optimizer_.group_count(); ++g) {
    const double old = optimizer_.lr(g), lowered = std::max(old * options_.factor, options_.min_lr);
    if (old - lowered > options_.eps) optimizer_.set_lr(lowered, g);
  }
}

void ReduceLROnPlateau::step(double metric) {
  check_not_captured("ReduceLROnPlateau", "step");
  ++epoch_;
  if (is_better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooling_ > 0) {
    --cooling_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= options_.patience) return;
  reduce();
  cooling_ = options_.cooldown;
  bad_epochs_ = 0;
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const {
  std::vector<double> all;
  for (size_t g = 0; g < optimizer_.group_count(); ++g) all.push_back(optimizer_.lr(g));
  return all;
}

State ReduceLROnPlateau::state() const {
  State s;
  s.values["schedule"] = std::string("ReduceLROnPlateau");
  s.values["last_epoch"] = epoch_;
  s.values["bad_epochs"] = bad_epochs_;
  s.values["cooling"] = cooling_;
  if (std::isfinite(best_)) s.values["best"] = best_;
  return s;
}

void ReduceLROnPlateau::load_state(const State& state) {
  const std::string kind = state.get<std::string>("schedule");
  DEFT_CHECK(kind == "ReduceLROnPlateau", ValueError,
             "ReduceLROnPlateau: this is the state of {}; load it into that kind of schedule", kind);
  const int64_t epoch = state.get<int64_t>("last_epoch"), bad = state.get<int64_t>("bad_epochs");
  const int64_t cooling = state.get<int64_t>("cooling");
  best_ = state.has("best") ? state.get<double>("best") : worst(options_);
  epoch_ = epoch, bad_epochs_ = bad, cooling_ = cooling;
}

}  // namespace deft::optim
