// What the options of all optimizers share: checks, and the numbers of a step that all updates take.
#pragma once

#include "ops/optimizer_update.h"

namespace deft::optim::detail {

void check_rate(const char* name, double lr, double weight_decay);
void check_not_negative(const char* name, const char* option, double value);
void check_fraction(const char* name, const char* option, double value);  // in [0, 1)

template <class Update, class Options>
Update common_update(const Options& o, double grad_scale) {
  Update u{};
  u.lr = o.lr, u.weight_decay = o.weight_decay, u.maximize = o.maximize, u.grad_scale = grad_scale;
  return u;
}

}  // namespace deft::optim::detail
