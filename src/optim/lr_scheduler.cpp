#include "optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "optim/captured_call.h"

namespace deft::optim {

namespace {

// The fraction of the way to `to` after `part` of half a cosine.
double half_cosine(double from, double to, double part) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * part)) / 2;
}
double power(double base, int64_t n) { return std::pow(base, static_cast<double>(n)); }

}  // namespace

void LRScheduler::remember() {
  last_lr_.clear();
  for (size_t g = 0; g < optimizer_.group_count(); ++g) last_lr_.push_back(optimizer_.lr(g));
}

void LRScheduler::meet_groups() {
  while (base_lr_.size() < optimizer_.group_count()) base_lr_.push_back(optimizer_.initial_lr(base_lr_.size()));
}
void LRScheduler::start() {
  meet_groups();
  advance(false);
  remember();
}
void LRScheduler::step() {
  if (context().bits & kCapture) [[unlikely]]
    return capture_call({name(), {}, {}, {}, false, {}}, [this] { step(); });
  meet_groups();
  ++epoch_;
  try {
    advance(false);
  } catch (...) {
    --epoch_;
    throw;
  }
  remember();
}
void LRScheduler::restart() {
  meet_groups();
  epoch_ = 0;
  advance(true);
  remember();
}
void LRScheduler::advance(bool restarted) {
  for (size_t g = 0; g < optimizer_.group_count(); ++g)
    optimizer_.set_lr(next(g, restarted ? base_lr(g) : optimizer_.lr(g)), g);
}

State LRScheduler::state() const {
  State s;
  s.values["schedule"] = std::string(name());
  s.values["last_epoch"] = epoch_;
  s.values["base_lr"] = base_lr_;
  s.values["last_lr"] = last_lr_;
  add_state(s);
  return s;
}
void LRScheduler::check_state(const State& state) const {
  const std::string kind = state.get<std::string>("schedule");
  DEFT_CHECK(kind == name(), ValueError, "{}: this is the state of {}; load it into that kind of schedule", name(),
             kind);
  const size_t groups = state.get<std::vector<double>>("base_lr").size();
  DEFT_CHECK(groups == optimizer_.group_count(), ValueError, "{}: the state is of {} groups, the optimizer has {}",
             name(), groups, optimizer_.group_count());
}
void LRScheduler::load_state(const State& state) {
  check_state(state);
  const int64_t epoch = state.get<int64_t>("last_epoch");
  auto base = state.get<std::vector<double>>("base_lr"), last = state.get<std::vector<double>>("last_lr");
  take_state(state);
  epoch_ = epoch, base_lr_ = std::move(base), last_lr_ = std::move(last);
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  DEFT_CHECK(step_size > 0, ValueError, "StepLR: step_size must be positive, found {}", step_size);
  start();
}
double StepLR::next(size_t, double lr) const { return epoch() == 0 || epoch() % step_size_ != 0 ? lr : lr * gamma_; }

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  std::sort(milestones_.begin(), milestones_.end());
  start();
}
double MultiStepLR::next(size_t, double lr) const {
  const auto [from, to] = std::equal_range(milestones_.begin(), milestones_.end(), epoch());
  return from == to ? lr : lr * power(gamma_, to - from);
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) { start(); }
double ExponentialLR::next(size_t, double lr) const { return epoch() == 0 ? lr : lr * gamma_; }

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters)
    : LRScheduler(optimizer), factor_(factor), total_(total_iters) {
  DEFT_CHECK(factor > 0 && factor <= 1, ValueError, "ConstantLR: the factor lies in (0, 1], found {}", factor);
  DEFT_CHECK(total_iters > 0, ValueError, "ConstantLR: total_iters must be positive, found {}", total_iters);
  start();
}
double ConstantLR::next(size_t, double lr) const {
  return epoch() == 0 ? lr * factor_ : epoch() == total_ ? lr / factor_ : lr;
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters)
    : LRScheduler(optimizer), start_(start_factor), end_(end_factor), total_(total_iters) {
  DEFT_CHECK(start_factor > 0 && start_factor <= 1, ValueError, "LinearLR: start_factor lies in (0, 1], found {}",
             start_factor);
  DEFT_CHECK(end_factor >= 0 && end_factor <= 1, ValueError, "LinearLR: end_factor lies in [0, 1], found {}",
             end_factor);
  DEFT_CHECK(total_iters > 0, ValueError, "LinearLR: total_iters must be positive, found {}", total_iters);
  start();
}
double LinearLR::next(size_t, double lr) const {
  if (epoch() == 0) return lr * start_;
  if (epoch() > total_) return lr;
  const double change = end_ - start_, before = start_ * static_cast<double>(total_);
  return lr * (1 + change / (before + static_cast<double>(epoch() - 1) * change));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  DEFT_CHECK(t_max > 0, ValueError, "CosineAnnealingLR: t_max must be positive, found {}", t_max);
  start();
}
double CosineAnnealingLR::next(size_t group, double lr) const {
  if (epoch() == 0) return lr;
  // 1 + cos of an epoch; at the lowest point the factor would be 0 / 0.
  auto height = [&](int64_t e) {
    return 1 + std::cos(std::numbers::pi * static_cast<double>(e) / static_cast<double>(t_max_));
  };
  if ((epoch() - 1 - t_max_) % (2 * t_max_) == 0)
    return lr + (base_lr(group) - eta_min_) * (1 - std::cos(std::numbers::pi / static_cast<double>(t_max_))) / 2;
  return height(epoch()) / height(epoch() - 1) * (lr - eta_min_) + eta_min_;
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult,
                                                         double eta_min)
    : LRScheduler(optimizer), t_0_(t_0), t_mult_(t_mult), eta_min_(eta_min) {
  DEFT_CHECK(t_0 > 0 && t_mult >= 1, ValueError,
             "CosineAnnealingWarmRestarts: needs t_0 > 0 and t_mult >= 1, found {} and {}", t_0, t_mult);
  start();
}
double CosineAnnealingWarmRestarts::next(size_t group, double) const {
  int64_t length = t_0_, into = t_mult_ == 1 ? epoch() % t_0_ : epoch();
  for (; into >= length; length *= t_mult_) into -= length;
  return half_cosine(base_lr(group), eta_min_, static_cast<double>(into) / static_cast<double>(length));
}

LambdaLR::LambdaLR(Optimizer& optimizer, Factor factor)
    : LambdaLR(optimizer, std::vector<Factor>(optimizer.group_count(), std::move(factor))) {}
LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Factor> factors)
    : LRScheduler(optimizer), factors_(std::move(factors)) {
  DEFT_CHECK(factors_.size() == optimizer.group_count(), ValueError, "LambdaLR: found {} functions for {} groups",
             factors_.size(), optimizer.group_count());
  start();
}
double LambdaLR::next(size_t group, double) const {
  DEFT_CHECK(group < factors_.size(), ValueError, "LambdaLR: group {} was added later and has no function", group);
  return base_lr(group) * factors_[group](epoch());
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedules,
                           std::vector<int64_t> milestones)
    : LRScheduler(optimizer), schedules_(std::move(schedules)), milestones_(std::move(milestones)) {
  DEFT_CHECK(!schedules_.empty() && schedules_.size() == milestones_.size() + 1, ValueError,
             "SequentialLR: {} schedules need one milestone less than that, found {}", schedules_.size(),
             milestones_.size());
  DEFT_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()), ValueError,
             "SequentialLR: the milestones do not ascend");
  for (const auto& s : schedules_)
    DEFT_CHECK(s && &s->optimizer() == &optimizer, ValueError, "SequentialLR: all schedules must be of its optimizer");
  restart();
}
void SequentialLR::advance(bool restarted) {
  const auto at = std::upper_bound(milestones_.begin(), milestones_.end(), epoch());
  LRScheduler& current = *schedules_[static_cast<size_t>(at - milestones_.begin())];
  if (restarted || (at != milestones_.begin() && at[-1] == epoch()))
    current.restart();
  else
    current.step();
}
void SequentialLR::add_state(State& state) const {
  for (size_t i = 0; i < schedules_.size(); ++i) state.add(std::to_string(i), schedules_[i]->state());
}
void SequentialLR::take_state(const State& state) {
  for (size_t i = 0; i < schedules_.size(); ++i) schedules_[i]->load_state(state.part(std::to_string(i)));
}

}  // namespace deft::optim
