// Whether a thread had a core when it could run, or other programs had it: figures of a busy machine are judged by
// that.
#pragma once

#include <cstdint>

namespace deft::profile {

struct CoreTime {
  int64_t ran_ns = 0, waited_ns = 0;  // since the thread began; no waits where the system does not tell

  static CoreTime now();  // of this thread
  // The part of the time since then that it ran, 0 to 1. 1 if unknown, or if the thread had nothing to do.
  double share_since(const CoreTime& then) const;
};

}  // namespace deft::profile
