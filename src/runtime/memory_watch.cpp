#include "runtime/memory_watch.h"

#include <pthread.h>

#include <mutex>

namespace deft {

namespace {

constinit std::mutex watch_mutex;
constinit MemoryWatch* active_watch = nullptr;

[[maybe_unused]] const int watch_fork_handlers =
    pthread_atfork([] { watch_mutex.lock(); }, [] { watch_mutex.unlock(); }, [] { watch_mutex.unlock(); });

}  // namespace

void set_memory_watch(MemoryWatch* watch) {
  std::lock_guard lock(watch_mutex);
  active_watch = watch;
  detail::set_allocations_matter(watch != nullptr);
}

namespace detail {

bool notify_made(const MemoryBlock& block) noexcept {
  std::lock_guard lock(watch_mutex);
  if (active_watch) active_watch->made(block);
  return active_watch != nullptr;
}
void notify_named(const void* owner, const char* maker, const Site& site) noexcept {
  std::lock_guard lock(watch_mutex);
  if (active_watch) active_watch->named(owner, maker, site);
}
void notify_moved(const void* owner, MemoryCategory to) noexcept {
  std::lock_guard lock(watch_mutex);
  if (active_watch) active_watch->moved(owner, to);
}
void notify_gone(const void* owner) noexcept {
  std::lock_guard lock(watch_mutex);
  if (active_watch) active_watch->gone(owner);
}

}  // namespace detail

}  // namespace deft
