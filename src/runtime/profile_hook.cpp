#include "runtime/profile_hook.h"

#include <atomic>

namespace deft {

namespace {
std::atomic<ProfileHook*> active_hook{nullptr};
}

void set_profile_hook(ProfileHook* hook) { active_hook.store(hook, std::memory_order_release); }

namespace detail {

void zone_begin(const char* zone, const Site& site) {
  if (auto* hook = active_hook.load(std::memory_order_acquire)) hook->begin(zone, site);
}
void zone_end(const char* zone) {
  if (auto* hook = active_hook.load(std::memory_order_acquire)) hook->end(zone);
}

}  // namespace detail

}  // namespace deft
