#include "core/observer.h"

#include <atomic>

#include "runtime/sync.h"

namespace deft {

namespace {
std::atomic<Observer*> active{nullptr};

void notify_sync(const char* what, const Site& site) {
  if (Observer* o = detail::active_observer()) o->host_waited(what, site);
}
}  // namespace

void set_observer(Observer* observer) {
  active.store(observer, std::memory_order_release);
  set_sync_hook(observer ? notify_sync : nullptr);
}

namespace detail {
Observer* active_observer() { return active.load(std::memory_order_acquire); }
}  // namespace detail

}  // namespace deft
