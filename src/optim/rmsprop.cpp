#include "optim/rmsprop.h"

#include "optim/options_common.h"

namespace deft::optim {

void RMSpropOptions::check(const char* name) const {
  detail::check_rate(name, lr, weight_decay);
  detail::check_fraction(name, "alpha", alpha);
  detail::check_not_negative(name, "eps", eps);
  detail::check_not_negative(name, "momentum", momentum);
}

void RMSpropOptions::update(const std::vector<UpdateTensor>& tensors, int64_t, double grad_scale,
                            const Site& site) const {
  auto u = detail::common_update<RmspropUpdate>(*this, grad_scale);
  u.alpha = alpha, u.eps = eps, u.momentum = momentum, u.centered = centered;
  rmsprop_update(tensors, u, site);
}

}  // namespace deft::optim
