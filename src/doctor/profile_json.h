// The parts of a report that say where time and memory went.
#pragma once

#include <nlohmann/json.hpp>

#include "profile/memory_timeline.h"
#include "profile/peaks.h"
#include "profile/profile.h"

namespace deft::doctor {

using Json = nlohmann::ordered_json;

// "profile": buckets, ops, modules, roofline, the profiler's own cost. What is not known is null. Of ops the longest
// `most_ops` are kept; 0: all.
Json profile_json(const profile::Profile& profile, const profile::MachinePeaks& peaks, size_t most_ops = 0);
// "bottleneck": class and sentence, of a profile that was judged (profile/bottleneck.h).
Json bottleneck_json(const profile::Profile& profile);
// "memory": the highest moment by category and who held it, each category at its own highest, timeline; devices apart.
Json memory_json(const profile::MemoryReport& report);

}  // namespace deft::doctor
