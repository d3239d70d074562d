#include "runtime/profile_hook.h"

#include <atomic>
#include <new>

namespace deft {

namespace {
std::atomic<ProfileHook*> active_hook{nullptr};

// An open zone, with or without a listener.
struct Entry {
  const char* name;
  Site site;
  ProfileHook* listener;  // got its begin, so it alone gets its end
  Bucket bucket;
};
// On the heap: thread-local room is scarce in a library that is loaded late.
struct OpenZones {
  Entry* list;
  int depth, room;
  bool gone;  // the thread ends; other destructors may open zones still
};
constinit thread_local OpenZones open_zones{};

struct Owner {
  bool owns = false;
  ~Owner() {
    delete[] open_zones.list;
    open_zones = {.list = nullptr, .depth = 0, .room = 0, .gone = true};
  }
};
thread_local Owner owner;

bool make_room() {
  if (open_zones.list || open_zones.gone) return false;
  open_zones.list = new (std::nothrow) Entry[kDeepestZone];
  if (!open_zones.list) return false;
  open_zones.room = kDeepestZone;
  owner.owns = true;  // being used is what makes its destructor run
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

// Apart: zone_begin saves no registers for it.
[[gnu::cold, gnu::noinline]] static bool first_begin(const char* zone, Bucket bucket, const Site& site) {
  return make_room() && zone_begin(zone, bucket, site);
}
bool zone_begin(const char* zone, Bucket bucket, const Site& site) {
  OpenZones& zones = open_zones;
  if (zones.depth == zones.room) [[unlikely]]
    return first_begin(zone, bucket, site);
  ProfileHook* const hook = active_hook.load(std::memory_order_acquire);
  // One by one: GCC 12 copies a whole Entry by way of the stack, where reads wait for the writes.
  Entry& e = zones.list[zones.depth++];
  e.name = zone;
  e.site = site;
  e.listener = hook;
  e.bucket = bucket;
  if (hook) [[likely]]
    hook->begin(zone, bucket, site);
  return true;
}
void zone_end() {
  const Entry& e = open_zones.list[--open_zones.depth];
  if (e.listener && e.listener == active_hook.load(std::memory_order_acquire)) e.listener->end();
}

}  // namespace detail

OpenZone innermost_zone() {
  for (int i = open_zones.depth; i-- > 0;) {
    const Entry& e = open_zones.list[i];
    if (e.site.line() && e.bucket != Bucket::other && e.bucket != Bucket::allocation) return {e.name, e.site};
  }
  return {};
}

}  // namespace deft
