#include "optim/adagrad.h"

#include "optim/options_common.h"

namespace deft::optim {

void AdagradOptions::check(const char* name) const {
  detail::check_rate(name, lr, weight_decay);
  detail::check_not_negative(name, "lr_decay", lr_decay);
  detail::check_not_negative(name, "initial_accumulator_value", initial_accumulator_value);
  detail::check_not_negative(name, "eps", eps);
}

void AdagradOptions::update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
                            const Site& site) const {
  auto u = detail::common_update<AdagradUpdate>(*this, grad_scale);
  u.lr_decay = lr_decay, u.eps = eps, u.step = step;
  adagrad_update(tensors, u, site);
}

}  // namespace deft::optim
