// What keeps each op from being faster: its time against what its arithmetic and its bytes take at the peaks of the
// machine.
#pragma once

#include "profile/peaks.h"
#include "profile/profile.h"

namespace deft::profile {

// Seconds of all calls of a row at the peaks; 0 where a peak is not known.
struct LimitTimes {
  double compute = 0, memory = 0;
};
LimitTimes limit_times(const OpRow& row, const MachinePeaks& peaks);

// A kernel takes up to this by itself, next to no work; a call around it up to kMostOverhead: what is beyond that is
// fresh memory, not the price of a call.
inline constexpr double kCallSeconds = 2e-6, kMostOverhead = 5e-6;
// Seconds of a row that are neither arithmetic nor bytes.
double overhead_of(const OpRow& row, const LimitTimes& limit);

// Sets `bound` and `of_limit`. Overhead: it is more than half of the row's time. Memory: only where the bytes explain
// the time, be they in a cache or not; ops that take much longer are bound by their instructions. `core_share`: as in
// Profile; what other programs took is no fault of the op.
void classify(OpRow& row, const MachinePeaks& peaks, double core_share = 1);
// Ops on a device are measured by `device`: launched longer than they run is overhead. Without its activity, or with no
// peaks of it, they have no class.
void classify(Profile& profile, const MachinePeaks& host, const MachinePeaks& device = {});

}  // namespace deft::profile
