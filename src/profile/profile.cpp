#include "profile/profile.h"

#include <algorithm>
#include <numeric>

namespace deft::profile {

const char* name_of(Bound bound) {
  constexpr const char* names[] = {"compute-bound", "memory-bound", "overhead-bound", "input-bound",
                                   "unknown",       "copy-bound",   "sync-bound",     "instruction-bound"};
  return names[static_cast<int>(bound)];
}

double OpRow::seconds() const {
  return on_device ? std::max(kernel_seconds, overhead_seconds) : kernel_seconds + overhead_seconds;
}

double Profile::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

}  // namespace deft::profile
