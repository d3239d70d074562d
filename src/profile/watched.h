// Profiles of workloads on a device that can be repeated.
//
// Looking at a device slows down who asks it for work: CUPTI adds a microsecond or two to each launch, a tenth of the
// time and more where kernels are short. So the work is done twice, the second time with an eye on the device. What the
// device did is taken from there, and the times of the host from the first run.
#pragma once

#include <functional>

#include "profile/collector.h"

namespace deft::profile {

struct Watched {
  Profile profile;
  Trace trace;  // of the last run, where it is wanted
};
// `run` does the same work each time; false: it was interrupted, and is not repeated.
Watched profile_run(const std::function<bool()>& run, bool on_device, bool trace);

// `plain` with what `watched`, a profile of the same work, knows of the device.
Profile with_device(Profile plain, const Profile& watched);

}  // namespace deft::profile
