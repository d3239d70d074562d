#include "core/grad_mode.h"

namespace deft {

void set_grad_enabled(bool enabled, Site site) {
  ExecContext& c = context();
  if (enabled) {
    c.bits &= ~kGradOff;
  } else {
    if (!(c.bits & kGradOff)) c.grad_site = site;  // the outermost switch is the one to name
    c.bits |= kGradOff;
  }
}

InferenceModeGuard::InferenceModeGuard(bool enabled, Site site) {
  set_grad_enabled(!enabled, site);
  ExecContext& c = context();
  if (enabled && !(c.bits & kInference)) c.grad_site = site;
  c.bits = enabled ? c.bits | kInference : c.bits & ~kInference;
}

}  // namespace deft
