// What a GPU can do at most, measured with the best there is for it: large GEMMs by its library, and copies.
#pragma once

#include "profile/peaks.h"

namespace deft::profile {

// Of the first GPU; all 0 where there is none. Takes a second and up to 1 GB of its memory when it is first asked for,
// and is kept for the life of the process. f32: with the numerics in use then (runtime/numerics.h).
const MachinePeaks& device_peaks();

}  // namespace deft::profile
