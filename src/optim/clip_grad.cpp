#include "optim/clip_grad.h"

#include "ops/tensor_lists.h"

#include <cmath>

#include "base/check.h"
#include "core/grad_mode.h"
#include "ops/activation.h"
#include "optim/captured_call.h"

namespace deft::optim {

namespace {

std::vector<Tensor> gradients(const std::vector<Tensor>& params, const char* name) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < params.size(); ++i) {
    DEFT_CHECK(params[i].defined(), ValueError, "{}: parameter {} is undefined", name, i);
    if (!params[i].requires_grad()) continue;
    if (Tensor g = params[i].grad(); g.defined()) all.push_back(std::move(g));
  }
  return all;
}

}  // namespace

double grad_norm(const std::vector<Tensor>& params, double norm_type, Site site) {
  for (const Tensor& g : gradients(params, "grad_norm")) note_host_read("grad_norm", g, site);
  return total_norm(gradients(params, "grad_norm"), norm_type, site);
}

double clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, double norm_type, bool error_if_nonfinite,
                       Site site) {
  if (context().bits & kCapture) [[unlikely]] {
    double norm = 0;
    CapturedCall call{"clip_grad_norm_", {}, {}, with_gradient(params), true, effective_site(site)};
    {
      deft::detail::CapturePause pause;
      norm = clip_grad_norm_(params, max_norm, norm_type, error_if_nonfinite, site);
    }
    note_call(std::move(call), [=] { clip_grad_norm_(params, max_norm, norm_type, error_if_nonfinite, site); });
    return norm;
  }
  const std::vector<Tensor> grads = gradients(params, "clip_grad_norm_");
  if (norm_type == 2 && !error_if_nonfinite) return clip_norm_(grads, max_norm, site);
  const double norm = total_norm(grads, norm_type, site);
  DEFT_CHECK(!error_if_nonfinite || std::isfinite(norm), ValueError,
             "clip_grad_norm_: the norm of the gradients is {}; look for the op that made it with AnomalyGuard", norm);
  const double factor = clip_factor(norm, max_norm);
  if (factor != 1) scale_tensors_(grads, factor, site);
  return norm;
}

void clip_grad_value_(const std::vector<Tensor>& params, double limit, Site site) {
  DEFT_CHECK(limit >= 0, ValueError, "clip_grad_value_: the limit must not be negative, found {}", limit);
  NoGradGuard quiet(site);
  for (Tensor& g : gradients(params, "clip_grad_value_")) g.clamp_(-limit, limit, site);
}

}  // namespace deft::optim
