#include "runtime/context.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "runtime/numerics.h"
#include "runtime/profile_hook.h"

namespace deft {

namespace {
bool deterministic_in_env() {
  const char* text = std::getenv("DEFT_DETERMINISTIC");
  const std::string_view word = text ? text : "";
  if (word != "" && word != "0" && word != "1")
    std::fprintf(stderr, "deft: DEFT_DETERMINISTIC=%s is neither 0 nor 1; 0 is used\n", text);
  return word == "1";
}
struct ProcessDefault {
  std::mutex mutex;
  bool grad = true;
  Site site;
  bool deterministic = deterministic_in_env();
  bool profiling = false;
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
  if (d.deterministic) c.bits |= kDeterministic;
  if (d.profiling) c.bits |= kProfile;
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

void set_deterministic(bool on) {
  ProcessDefault& d = process_default();
  {
    std::lock_guard lock(d.mutex);
    d.deterministic = on;
  }
  ExecContext& c = context();
  c.bits = on ? c.bits | kDeterministic : c.bits & ~kDeterministic;
}
void set_default_profiling(bool on) {
  ProcessDefault& d = process_default();
  std::lock_guard lock(d.mutex);
  d.profiling = on;
}

bool deterministic() { return context().bits & kDeterministic; }

}  // namespace deft
