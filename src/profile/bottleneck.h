// What a whole workload waits for most, and what would help: decided by shares of its time.
#pragma once

#include "profile/peaks.h"
#include "profile/profile.h"

namespace deft::profile {

// Parts of the profiled time; they add up to 1.
struct Shares {
  double input = 0;     // waiting for batches
  double overhead = 0;  // starting ops and keeping the graph, not working
  double memory = 0, compute = 0;
  double copy = 0, sync = 0;  // to and from a device, and waiting for it
  double own = 0;             // the program's own code
  double unknown = 0;         // kernels whose work is not known
};
// Of a profile whose ops have their classes (profile/roofline.h).
Shares shares_of(const Profile& profile);

// Sets `bound` and `sentence`: the largest share decides.
void find_bottleneck(Profile& profile);

// Classes of all ops and of the whole. Without peaks those of this machine and, for a profile with a device, of its GPU
// are measured, once in a process.
void judge(Profile& profile, const MachinePeaks& host, const MachinePeaks& device = {});
void judge(Profile& profile);

// Measured as in judge(): of the GPU if distinguishable ops of the profile ran there, otherwise of the processor.
const MachinePeaks& roofs_of(const Profile& profile);

}  // namespace deft::profile
