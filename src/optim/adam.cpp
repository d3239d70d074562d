#include "optim/adam.h"

#include "optim/options_common.h"

namespace deft::optim {

namespace {

template <class O>
void check_adam(const char* name, const O& o) {
  detail::check_rate(name, o.lr, o.weight_decay);
  detail::check_fraction(name, "beta1", o.beta1);
  detail::check_fraction(name, "beta2", o.beta2);
  detail::check_not_negative(name, "eps", o.eps);
}
template <class O>
void step_adam(const O& o, bool decoupled, const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
               const Site& site) {
  auto u = detail::common_update<AdamUpdate>(o, grad_scale);
  u.beta1 = o.beta1, u.beta2 = o.beta2, u.eps = o.eps, u.amsgrad = o.amsgrad;
  u.step = step, u.decoupled = decoupled;
  adam_update(tensors, u, site);
}

}  // namespace

void AdamOptions::check(const char* name) const { check_adam(name, *this); }
void AdamWOptions::check(const char* name) const { check_adam(name, *this); }
void AdamOptions::update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
                         const Site& site) const {
  step_adam(*this, false, tensors, step, grad_scale, site);
}
void AdamWOptions::update(const std::vector<UpdateTensor>& tensors, int64_t step, double grad_scale,
                          const Site& site) const {
  step_adam(*this, true, tensors, step, grad_scale, site);
}

}  // namespace deft::optim
