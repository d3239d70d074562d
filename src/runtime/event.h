#pragma once

#include <memory>

#include "base/site.h"
#include "runtime/device.h"

namespace deft {

class Stream;

// A point in a stream. Copies of an event stay at the point it was recorded at.
class Event {
 public:
  Event() = default;  // done
  explicit Event(Device device, bool timed = false);
  void record(const Stream& stream);
  bool query() const;                                   // true: reached, or never recorded
  void synchronize(Site site = Site::current()) const;  // the host waits; counted as a synchronisation
  void wait_uncounted() const;
  double elapsed_ms(const Event& end) const;  // both timed and reached
  explicit operator bool() const { return static_cast<bool>(state_); }

 private:
  friend class Stream;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace deft
