#include <cmath>
#include <numbers>

#include "base/check.h"
#include "optim/lr_scheduler.h"

namespace deft::optim {

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options)
    : LRScheduler(optimizer), options_(options) {
  const OneCycleOptions& o = options_;
  DEFT_CHECK(o.total_steps > 0, ValueError, "OneCycleLR: total_steps must be positive, found {}", o.total_steps);
  DEFT_CHECK(o.pct_start >= 0 && o.pct_start <= 1, ValueError, "OneCycleLR: pct_start lies in [0, 1], found {}",
             o.pct_start);
  DEFT_CHECK(!o.cycle_momentum || optimizer.has_momentum(), ValueError,
             "OneCycleLR: {} has neither momentum nor beta1; set cycle_momentum = false", optimizer.name());
  if (options_.max_lrs.empty()) options_.max_lrs.assign(optimizer.group_count(), o.max_lr);
  DEFT_CHECK(o.max_lrs.size() == optimizer.group_count(), ValueError, "OneCycleLR: found {} rates for {} groups",
             o.max_lrs.size(), optimizer.group_count());
  const double total = static_cast<double>(o.total_steps), up = o.pct_start * total;
  const double first = 1 / o.div_factor, last = first / o.final_div_factor, low = o.base_momentum,
               high = o.max_momentum;
  phases_ = {{up - 1, first, 1, high, low}};
  if (o.three_phase) {
    phases_.push_back({2 * up - 2, 1, first, low, high});
    phases_.push_back({total - 1, first, last, high, high});
  } else {
    phases_.push_back({total - 1, 1, last, low, high});
  }
  start();
}

std::pair<const OneCycleLR::Phase*, double> OneCycleLR::phase() const {
  const auto step = static_cast<double>(epoch());
  double begin = 0;
  for (const Phase& p : phases_) {
    if (step <= p.end) return {&p, p.end > begin ? (step - begin) / (p.end - begin) : 1};
    begin = p.end;
  }
  // The call after the last batch. PyTorch goes on beyond the end here, with straight lines to rates below zero.
  return {&phases_.back(), 1};
}

double OneCycleLR::between(double from, double to, double part) const {
  if (options_.linear) return from + (to - from) * part;
  return to + (from - to) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

double OneCycleLR::next(size_t group, double) const {
  DEFT_CHECK(group < options_.max_lrs.size(), ValueError, "OneCycleLR: group {} was added later and has no rate",
             group);
  const auto [p, part] = phase();
  const double max = options_.max_lrs[group];
  return between(max * p->from, max * p->to, part);
}

void OneCycleLR::advance(bool restarted) {
  DEFT_CHECK(epoch() <= options_.total_steps, ValueError, "OneCycleLR: step {} of a cycle of {}; it has ended", epoch(),
             options_.total_steps);
  LRScheduler::advance(restarted);
  if (!options_.cycle_momentum) return;
  const auto [p, part] = phase();
  for (size_t g = 0; g < optimizer().group_count(); ++g)
    optimizer().set_momentum(between(p->momentum, p->to_momentum, part), g);
}

}  // namespace deft::optim
