#include "runtime/profile_hook.h"

#include <atomic>
#include <new>

namespace deft {

namespace {
std::atomic<ProfileHook*> active_hook{nullptr};
// A zone that begins under one listener never ends under another.
thread_local ProfileHook* listener = nullptr;
thread_local int open_zones = 0;

// All open zones, whether somebody listens or not.
struct Entry {
  const char* name;
  Site site;
  Bucket bucket;
  bool told;
};
constexpr int kDeepest = 128;
thread_local int depth = 0;
// On the heap: thread-local room is scarce in a library that is loaded late.
struct Entries {
  Entry* list = nullptr;
  ~Entries() {
    delete[] list;
    list = nullptr;
    depth = kDeepest;  // other destructors of this thread may open zones still
  }
};
thread_local Entries entries;

bool has_room() {
  if (depth == kDeepest) return false;  // counts for the zone around it
  if (!entries.list) entries.list = new (std::nothrow) Entry[kDeepest];
  return entries.list;
}

bool begin_told(const char* zone, Bucket bucket, const Site& site) {
  ProfileHook* hook = active_hook.load(std::memory_order_acquire);
  if (open_zones == 0) listener = hook;
  if (!hook || hook != listener) return false;
  ++open_zones;
  hook->begin(zone, bucket, site);
  return true;
}
}  // namespace

const char* name_of(Bucket bucket) {
  constexpr const char* names[kBucketCount] = {"data wait", "copies",    "linear algebra", "other kernels", "autograd",
                                               "dispatch",  "optimizer", "sync",           "allocation",    "other"};
  return names[static_cast<int>(bucket)];
}

void set_profile_hook(ProfileHook* hook) { active_hook.store(hook, std::memory_order_release); }

namespace detail {

bool zone_begin(const char* zone, Bucket bucket, const Site& site) {
  if (!has_room()) return false;
  Entry& e = entries.list[depth++];
  e = {zone, site, bucket, false};
  e.told = begin_told(zone, bucket, site);
  return true;
}
void zone_end() {
  if (!entries.list[--depth].told) return;
  --open_zones;
  if (active_hook.load(std::memory_order_acquire) == listener && listener) listener->end();
}

}  // namespace detail

OpenZone innermost_zone() {
  for (int i = entries.list ? depth : 0; i-- > 0;) {
    const Entry& e = entries.list[i];
    if (e.site.line() && e.bucket != Bucket::other && e.bucket != Bucket::allocation) return {e.name, e.site};
  }
  return {};
}

}  // namespace deft
