// Zones: where the time of a thread goes. Without a listener a zone costs one predictable branch.
#pragma once

#include "runtime/context.h"

namespace deft {

// What a zone is for. The time of nested zones counts for the innermost, so that buckets are exclusive.
enum class Bucket : uint8_t {
  data_wait,       // the loop waits for its next batch
  copy,            // between host and device
  linear_algebra,  // kernels of matmuls, convolutions, attention
  kernel,          // all other kernels
  autograd,        // recording the graph, walking it backward
  dispatch,        // the work of an op besides its kernel
  optimizer,       // steps, with everything in them
  sync,            // the host waits for a device
  allocation,      // memory from the system and back to it; what is cached is part of its op
  other,           // the program's own time
};
inline constexpr int kBucketCount = 10;
const char* name_of(Bucket bucket);  // "data wait", "linear algebra"

// Zones nested deeper than this count for the innermost that is not, and are not reported.
inline constexpr int kDeepestZone = 128;

// A listener gets every zone of threads that run under its context (kProfile set), on these threads. Names live as long
// as the process.
struct ProfileHook {
  virtual ~ProfileHook() = default;
  virtual void begin(const char* zone, Bucket bucket, const Site& site) = 0;
  virtual void end() = 0;  // of the zone that began last on this thread
};
// nullptr removes it. The hook must outlive all zones; ProfileScope (below) sets the context bit.
void set_profile_hook(ProfileHook* hook);

namespace detail {
bool zone_begin(const char* zone, Bucket bucket, const Site& site);
void zone_end();
}  // namespace detail

class Zone {
 public:
  explicit Zone(const char* name, Bucket bucket, const Site& site = Site::current()) {
    if (context().bits & kProfile) [[unlikely]]
      open_ = detail::zone_begin(name, bucket, site);
  }
  ~Zone() {
    if (open_) [[unlikely]]
      detail::zone_end();
  }
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

 private:
  bool open_ = false;
};

// The current work of this thread: the innermost of its open zones that has a line and is no module's. No name: none.
struct OpenZone {
  const char* name = nullptr;
  Site site;
};
OpenZone innermost_zone();

// Turns zones on for this thread and everything it starts.
class ProfileScope {
 public:
  explicit ProfileScope(const char* name) : outer_(context()) {
    context().bits |= kProfile;
    context().profile_scope = name;
  }
  ~ProfileScope() {
    context().profile_scope = outer_.profile_scope;
    if (!(outer_.bits & kProfile)) context().bits &= ~kProfile;
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  ExecContext outer_;
};

// Threads that begin from now on, Deft's or not, are profiled from their start.
void set_default_profiling(bool on);

}  // namespace deft
