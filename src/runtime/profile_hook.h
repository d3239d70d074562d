// Profiler zones: one predictable branch when nobody listens.
#pragma once

#include "runtime/context.h"

namespace deft {

// A listener gets every zone of threads that run under its context (kProfile set).
struct ProfileHook {
  virtual ~ProfileHook() = default;
  virtual void begin(const char* zone, const Site& site) = 0;
  virtual void end(const char* zone) = 0;
};
// nullptr removes it. The hook must outlive all zones; ProfileScope (below) sets the context bit.
void set_profile_hook(ProfileHook* hook);

namespace detail {
void zone_begin(const char* zone, const Site& site);
void zone_end(const char* zone);
}  // namespace detail

class Zone {
 public:
  explicit Zone(const char* name, const Site& site = Site::current()) : name_(nullptr) {
    if (context().bits & kProfile) [[unlikely]] {
      name_ = name;
      detail::zone_begin(name, site);
    }
  }
  ~Zone() {
    if (name_) [[unlikely]]
      detail::zone_end(name_);
  }
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

 private:
  const char* name_;
};

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

}  // namespace deft
