#include "optim/lamb.h"

#include "optim/options_common.h"

namespace deft::optim {

void LAMBOptions::check(const char* name) const {
  detail::check_rate(name, lr, weight_decay);
  detail::check_fraction(name, "beta1", beta1);
  detail::check_fraction(name, "beta2", beta2);
  detail::check_not_negative(name, "eps", eps);
}

void LAMBOptions::update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
                         const Site& site) const {
  auto u = detail::common_update<LambUpdate>(*this, grad_scale);
  u.beta1 = beta1, u.beta2 = beta2, u.eps = eps, u.step = step;
  lamb_update(tensors, u, site);
}

}  // namespace deft::optim
