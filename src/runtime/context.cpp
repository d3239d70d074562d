#include "runtime/context.h"

#include <mutex>

namespace deft {

namespace {
struct ProcessDefault {
  std::mutex mutex;
  bool grad = true;
  Site site;
};
ProcessDefault& process_default() {
  static auto* d = new ProcessDefault;  // never destroyed: threads may outlive static destruction
  return *d;
}
}  // namespace

namespace detail {

constinit thread_local ExecContext exec_context;

void take_process_default(ExecContext& c) {
  ProcessDefault& d = process_default();
  std::lock_guard lock(d.mutex);
  c.bits &= ~kFresh;
  if (!d.grad) {
    c.bits |= kGradOff;
    c.grad_site = d.site;
  }
}

}  // namespace detail

void set_default_grad_mode(bool enabled, Site site) {
  ProcessDefault& d = process_default();
  {
    std::lock_guard lock(d.mutex);
    d.grad = enabled;
    d.site = site;
  }
  ExecContext& c = context();
  c.bits = enabled ? c.bits & ~kGradOff : c.bits | kGradOff;
  if (!enabled) c.grad_site = site;
}

}  // namespace deft
