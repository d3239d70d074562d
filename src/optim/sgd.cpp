#include "optim/sgd.h"

#include "base/check.h"
#include "optim/options_common.h"

namespace deft::optim {

void SGDOptions::check(const char* name) const {
  detail::check_rate(name, lr, weight_decay);
  detail::check_not_negative(name, "momentum", momentum);
  DEFT_CHECK(!nesterov || (momentum > 0 && dampening == 0), ValueError,
             "{}: nesterov needs momentum > 0 and dampening = 0, found {} and {}", name, momentum, dampening);
}

void SGDOptions::update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
                        const Site& site) const {
  auto u = detail::common_update<SgdUpdate>(*this, grad_scale);
  u.momentum = momentum, u.dampening = dampening, u.nesterov = nesterov, u.first = step == 1;
  sgd_update(tensors, u, site);
}

}  // namespace deft::optim
