// Exact counters, peak scopes and failure injection.
//
// Note [High-water marks]: each counter keeps the maximum it reached since a scope last began. Beginning a scope folds
// that mark into every active scope and restarts it at the current value, so an allocation costs the same however many
// scopes are open. Ending one needs no fold: all others began no later than the mark. A call that is still running on
// another thread at the very moment a scope begins or ends may be counted on either side.
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "base/check.h"
#include "runtime/memory.h"
#include "runtime/small_pool.h"

namespace deft {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

struct alignas(64) Counter {
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> mark{0};

  void raise(int64_t value) {
    int64_t m = mark.load(kRelaxed);
    while (m < value && !mark.compare_exchange_weak(m, value, kRelaxed)) {
    }
  }
  void add(int64_t bytes) { raise(live.fetch_add(bytes, kRelaxed) + bytes); }
  void subtract(int64_t bytes) { live.fetch_sub(bytes, kRelaxed); }
  // Take-then-raise, so that an add between the two steps is not lost.
  int64_t restart_mark() {
    int64_t old = mark.exchange(INT64_MIN, kRelaxed);
    int64_t now = live.load(kRelaxed);
    raise(now);
    return std::max(old, now);
  }
};

constinit Counter total_use;
constinit Counter category_use[kMemoryCategoryCount];
constinit std::atomic<int64_t> storages{0};

Counter& counter(MemoryCategory c) { return category_use[static_cast<int>(c)]; }

}  // namespace

struct MemoryScope::State {
  State *next, *prev;
  int64_t start, peak;
  int64_t category_peak[kMemoryCategoryCount];
};

namespace {

constinit std::mutex scopes_mutex;
constinit MemoryScope::State* active_scopes = nullptr;

[[maybe_unused]] const int stats_fork_handlers =
    pthread_atfork([] { scopes_mutex.lock(); }, [] { scopes_mutex.unlock(); }, [] { scopes_mutex.unlock(); });

void fold_marks() {  // the lock is held
  int64_t total = total_use.restart_mark();
  for (auto* s = active_scopes; s; s = s->next) s->peak = std::max(s->peak, total);
  for (int i = 0; i < kMemoryCategoryCount; ++i) {
    int64_t mark = category_use[i].restart_mark();
    for (auto* s = active_scopes; s; s = s->next) s->category_peak[i] = std::max(s->category_peak[i], mark);
  }
}

}  // namespace

const char* name_of(MemoryCategory category) {
  constexpr const char* names[kMemoryCategoryCount] = {"parameter", "gradient", "optimizer", "saved",
                                                       "workspace", "data",     "other"};
  return names[static_cast<int>(category)];
}

void memory_acquired(size_t bytes, MemoryCategory category) noexcept {
  storages.fetch_add(1, kRelaxed);
  total_use.add(static_cast<int64_t>(bytes));
  counter(category).add(static_cast<int64_t>(bytes));
}
void memory_released(size_t bytes, MemoryCategory category) noexcept {
  total_use.subtract(static_cast<int64_t>(bytes));
  counter(category).subtract(static_cast<int64_t>(bytes));
}
void memory_moved(size_t bytes, MemoryCategory from, MemoryCategory to) noexcept {
  counter(from).subtract(static_cast<int64_t>(bytes));
  counter(to).add(static_cast<int64_t>(bytes));
}

namespace {
constinit std::atomic<int64_t> device_use[kMemoryCategoryCount];
}
void device_memory_changed(int64_t bytes, MemoryCategory category) noexcept {
  device_use[static_cast<int>(category)].fetch_add(bytes, kRelaxed);
}
MemoryUse device_memory_live() {
  MemoryUse use;
  for (int i = 0; i < kMemoryCategoryCount; ++i) use.total += use.by_category[i] = device_use[i].load(kRelaxed);
  return use;
}

MemoryUse memory_live() {
  MemoryUse use;
  use.total = total_use.live.load(kRelaxed);
  for (int i = 0; i < kMemoryCategoryCount; ++i) use.by_category[i] = category_use[i].live.load(kRelaxed);
  return use;
}
int64_t storage_allocations() { return storages.load(kRelaxed); }

MemoryScope::MemoryScope() : state_(new (detail::allocate_small_unchecked(sizeof(State))) State{}) {
  std::lock_guard lock(scopes_mutex);
  fold_marks();
  MemoryUse use = memory_live();
  state_->start = state_->peak = use.total;
  std::copy(use.by_category.begin(), use.by_category.end(), state_->category_peak);
  state_->next = active_scopes;
  if (active_scopes) active_scopes->prev = state_;
  active_scopes = state_;
}
MemoryScope::~MemoryScope() {
  {
    std::lock_guard lock(scopes_mutex);
    (state_->prev ? state_->prev->next : active_scopes) = state_->next;
    if (state_->next) state_->next->prev = state_->prev;
  }
  free_small(state_, sizeof(State));
}
int64_t MemoryScope::start_bytes() const { return state_->start; }
int64_t MemoryScope::peak_bytes() const {
  std::lock_guard lock(scopes_mutex);
  return std::max(state_->peak, total_use.mark.load(kRelaxed));
}
int64_t MemoryScope::peak_bytes(MemoryCategory category) const {
  std::lock_guard lock(scopes_mutex);
  return std::max(state_->category_peak[static_cast<int>(category)], counter(category).mark.load(kRelaxed));
}

namespace {
constexpr int64_t kOff = -1, kNoFuse = INT64_MAX;  // kNoFuse: allocations are watched, but none is to fail
constinit std::atomic<int64_t> without_fuse{kOff};
}  // namespace

void fail_allocation_after(int64_t n) {
  detail::allocation_fuse.store(n >= 0 ? std::min(n, kNoFuse - 1) : without_fuse.load(kRelaxed), kRelaxed);
}

namespace detail {

constinit std::atomic<int64_t> allocation_fuse{kOff};

void set_allocations_matter(bool on) {
  int64_t before = on ? kOff : kNoFuse;
  const int64_t now = on ? kNoFuse : kOff;
  without_fuse.store(now, kRelaxed);
  allocation_fuse.compare_exchange_strong(before, now, kRelaxed);  // a fuse that burns stays
}

void burn_fuse() {
  int64_t n = allocation_fuse.load(kRelaxed);
  const auto next = [&] { return n == 0 ? without_fuse.load(kRelaxed) : n - 1; };
  while (n >= 0 && n != kNoFuse && !allocation_fuse.compare_exchange_weak(n, next(), kRelaxed)) {
  }
  DEFT_CHECK(n != 0, OutOfMemoryError,
             "allocate: this allocation was made to fail by fail_allocation_after(); pass -1 to turn that off");
}

}  // namespace detail

}  // namespace deft
