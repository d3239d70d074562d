#include "core/derived_cache.h"

#include <pthread.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/env_number.h"
#include "base/error.h"
#include "core/engine.h"
#include "core/tensor.h"
#include "runtime/context.h"

namespace deft {

namespace {

constexpr size_t kDefaultLimit = size_t{1} << 30;
constexpr size_t kMostSeen = 1024;  // tensors of which only the first sight is known

struct Entry {
  Entry(const Tensor& t, const DerivedForm& f, uint32_t v)
      : storage(t.impl()->storage),
        data(t.impl()->data),
        dtype(t.dtype()),
        sizes(t.sizes()),
        strides(t.strides()),
        form(f),
        version(v) {}
  bool is_of(const Tensor& t, const DerivedForm& f) const {
    return data == t.impl()->data && dtype == t.dtype() && form == f && sizes == t.sizes() && strides == t.strides();
  }

  Storage* storage;
  const void* data;
  DType dtype;
  Shape sizes, strides;
  DerivedForm form;
  uint32_t version;
  uint64_t used = 0;  // when it was last used, in calls
  Derived made;       // without an object: seen only; its bytes, if known, found no room
};
using Entries = std::list<Entry>;

constinit std::mutex mutex;
[[maybe_unused]] const int fork_handlers =
    pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });

// The lock is held in every member. Removed entries move to `gone`, which the caller destroys after unlocking: an
// object may own tensors whose storages call back here.
class Cache {
 public:
  // The entry of this tensor, form and version. One of an older version goes.
  std::optional<Entries::iterator> find(const Tensor& t, const DerivedForm& form, uint32_t version, Entries& gone) {
    const auto e = find_any(t, form);
    if (!e || (*e)->version == version) return e;
    drop(*e, gone);
    return {};
  }

  // The entry of this tensor and form, of whatever version.
  std::optional<Entries::iterator> find_any(const Tensor& t, const DerivedForm& form) {
    const auto of_storage = by_storage_.find(t.impl()->storage);
    if (of_storage == by_storage_.end()) return {};
    for (const Entries::iterator e : of_storage->second)
      if (e->is_of(t, form)) return e;
    return {};
  }

  void add(const Tensor& t, const DerivedForm& form, uint32_t version, Entries& gone) {
    if (seen_.size() == kMostSeen) remove(std::prev(seen_.end()), stats.evicted, gone);
    Storage* storage = t.impl()->storage;
    storage->place.store(StoragePlace::known_buffer, std::memory_order_relaxed);  // first: what follows may throw
    auto& of_storage = by_storage_[storage];
    of_storage.reserve(of_storage.size() + 1);
    seen_.emplace_front(t, form, version).used = ++calls_;
    of_storage.push_back(seen_.begin());
  }

  void drop(Entries::iterator e, Entries& gone) { remove(e, stats.dropped, gone); }

  // Marks it as the most recently used; returns its previous time of use.
  uint64_t touch(Entries::iterator e) {
    Entries& list = list_of(e);
    list.splice(list.begin(), list, e);
    return std::exchange(e->used, ++calls_);
  }

  void keep(Entries::iterator e, const Derived& made) {
    detail::give_back_first(clear_derived_cache);
    kept_.splice(kept_.begin(), seen_, e);
    e->made = made;
    bytes_ += made.bytes;
    ++stats.kept;
    memory_acquired(static_cast<size_t>(made.bytes), MemoryCategory::workspace);
    if (detail::allocations_matter()) [[unlikely]]
      detail::notify_made({&*e, made.bytes, MemoryCategory::workspace, kCPU});
  }

  // Makes room for `bytes` more. Entries used after `since` stay.
  bool make_room(int64_t bytes, uint64_t since, Entries& gone) {
    const auto lacking = [&] { return bytes_ + bytes - static_cast<int64_t>(limit()); };
    if (lacking() <= 0) return true;
    for (auto next = kept_.begin(); next != kept_.end();) {
      const auto e = next++;
      if (e->version != e->storage->current_version()) remove(e, stats.dropped, gone);
    }
    int64_t idle = 0;
    for (const Entry& e : kept_) idle += e.used <= since ? e.made.bytes : 0;
    if (lacking() > idle) return false;
    while (lacking() > 0) remove(std::prev(kept_.end()), stats.evicted, gone);
    return true;
  }

  void forget(Storage& storage, Entries& gone) noexcept {
    const auto of_storage = by_storage_.find(&storage);
    if (of_storage == by_storage_.end()) return;
    for (const Entries::iterator e : of_storage->second) take(e, stats.dropped, gone);
    forget_storage(of_storage);
  }
  void clear(Entries& gone) noexcept {
    while (!by_storage_.empty()) forget(*by_storage_.begin()->first, gone);
  }

  size_t limit() {
    if (!limit_known_) set_limit(number_from_env("DEFT_PACK_CACHE", kDefaultLimit));
    return limit_;
  }
  void set_limit(size_t bytes) {
    limit_ = std::min(bytes, static_cast<size_t>(INT64_MAX / 2));
    limit_known_ = true;
  }

  DerivedCacheStats current_stats() const {
    DerivedCacheStats s = stats;
    s.objects = static_cast<int64_t>(kept_.size());
    s.bytes = bytes_;
    return s;
  }
  DerivedCacheStats stats;

 private:
  using ByStorage = std::unordered_map<Storage*, std::vector<Entries::iterator>>;

  Entries& list_of(Entries::iterator e) { return e->made.object ? kept_ : seen_; }
  // Removes it from its list and counts the reason.
  void take(Entries::iterator e, int64_t& reason, Entries& gone) noexcept {
    Entries& list = list_of(e);
    if (e->made.object) {
      bytes_ -= e->made.bytes;
      memory_released(static_cast<size_t>(e->made.bytes), MemoryCategory::workspace);
      if (detail::allocations_matter()) [[unlikely]]
        detail::notify_gone(&*e);
      ++reason;
    }
    gone.splice(gone.end(), list, e);
  }
  void forget_storage(ByStorage::iterator of_storage) noexcept {
    Storage& s = *of_storage->first;
    s.place.store(s.memory ? StoragePlace::device : StoragePlace::buffer, std::memory_order_relaxed);
    by_storage_.erase(of_storage);
  }
  void remove(Entries::iterator e, int64_t& reason, Entries& gone) noexcept {
    const auto of_storage = by_storage_.find(e->storage);
    std::erase(of_storage->second, e);
    if (of_storage->second.empty()) forget_storage(of_storage);
    take(e, reason, gone);
  }

  Entries kept_, seen_;  // the one used last comes first
  ByStorage by_storage_;
  int64_t bytes_ = 0;
  uint64_t calls_ = 0;
  size_t limit_ = 0;
  bool limit_known_ = false;
};

// Never destroyed: storages that live until the process ends call it.
Cache& cache() {
  static Cache& c = *new Cache;
  return c;
}

bool is_own(const Storage& s) {
  const StoragePlace place = s.place.load(std::memory_order_relaxed);
  return place == StoragePlace::buffer || place == StoragePlace::known_buffer || place == StoragePlace::device;
}

// Forms made at the first call are for the CPU: devices read weights in place.
bool may_keep(const Tensor& t) {
  if (!is_own(*t.impl()->storage) || t.impl()->storage->memory || t.is_inference()) return false;
  // The next step of the optimizer changes it.
  return !t.requires_grad() || (context().bits & (kGradOff | kInference) && !in_backward());
}

}  // namespace

std::shared_ptr<const void> find_derived(const Tensor& from, const DerivedForm& form, FunctionRef<Derived()> make) {
  const uint32_t version = from.impl()->storage->current_version();  // before the bytes are read
  Entries gone;
  Cache& c = cache();
  uint64_t since = 0;
  {
    std::lock_guard lock(mutex);
    if (c.limit() == 0 || !may_keep(from)) return nullptr;
    const auto e = c.find(from, form, version, gone);
    if (e) since = c.touch(*e);
    if (e && (*e)->made.object) return ++c.stats.hits, (*e)->made.object;
    ++c.stats.misses;
    if (!e) return c.add(from, form, version, gone), nullptr;
    if (!c.make_room((*e)->made.bytes, since, gone)) return nullptr;
  }
  Derived made;
  try {
    made = make();
  } catch (const OutOfMemoryError&) {
    clear_derived_cache();
    return nullptr;
  }
  std::lock_guard lock(mutex);
  const auto e = c.find(from, form, version, gone);
  if (!e || c.limit() == 0) return made.object;
  if ((*e)->made.object) return (*e)->made.object;  // another thread was first
  (*e)->made.bytes = made.bytes;
  if (c.make_room(made.bytes, since, gone)) c.keep(*e, made);
  return made.object;
}

std::shared_ptr<const void> kept_derived(const Tensor& from, const DerivedForm& form, bool outdated) {
  const Storage& s = *from.impl()->storage;
  if (s.place.load(std::memory_order_relaxed) != StoragePlace::known_buffer) return nullptr;
  std::lock_guard lock(mutex);
  const auto e = cache().find_any(from, form);
  return e && (outdated || (*e)->version == s.current_version()) ? (*e)->made.object : nullptr;
}

void keep_derived(const Tensor& from, const DerivedForm& form, const Derived& made) {
  const uint32_t version = from.impl()->storage->current_version();
  Entries gone;
  std::lock_guard lock(mutex);
  Cache& c = cache();
  if (c.limit() == 0 || !is_own(*from.impl()->storage) || from.is_inference()) return;
  auto e = c.find_any(from, form);
  if (e && (*e)->made.object == made.object) {
    (*e)->version = version;
    return;
  }
  if (e) c.drop(*e, gone);
  if (!c.make_room(made.bytes, UINT64_MAX, gone)) return;
  c.add(from, form, version, gone);
  c.keep(*c.find_any(from, form), made);
}

bool may_keep_derived(const Tensor& from) {
  std::lock_guard lock(mutex);
  return cache().limit() > 0 && may_keep(from);
}

void trust_versions(Storage& external) noexcept {
  if (external.place.load(std::memory_order_relaxed) == StoragePlace::external && external.on_free && !external.memory)
    external.place.store(StoragePlace::buffer, std::memory_order_relaxed);
}

void forget_derived(Storage& storage) noexcept {
  Entries gone;
  std::lock_guard lock(mutex);
  cache().forget(storage, gone);
}

void keep_nothing_derived(Storage& storage) noexcept {
  Entries gone;
  std::lock_guard lock(mutex);
  cache().forget(storage, gone);
  if (is_own(storage)) storage.place.store(StoragePlace::shared_buffer, std::memory_order_relaxed);
}

void clear_derived_cache() {
  Entries gone;
  std::lock_guard lock(mutex);
  cache().clear(gone);
}

void set_derived_cache_limit(size_t bytes) {
  Entries gone;
  std::lock_guard lock(mutex);
  Cache& c = cache();
  c.set_limit(bytes);
  bytes == 0 ? c.clear(gone) : void(c.make_room(0, UINT64_MAX, gone));
}

size_t derived_cache_limit() {
  std::lock_guard lock(mutex);
  return cache().limit();
}

DerivedCacheStats derived_cache_stats() {
  std::lock_guard lock(mutex);
  return cache().current_stats();
}

}  // namespace deft
