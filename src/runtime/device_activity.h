// What a device did and when, as its driver reports it, for the profiler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deft {

struct DeviceActivity {
  enum class Kind : uint8_t { kernel, copy, fill };
  Kind kind = Kind::kernel;
  std::string name;                  // of a kernel, as it was compiled
  int64_t begin_ns = 0, end_ns = 0;  // of std::chrono::steady_clock
  int64_t asked_ns = 0;              // when the thread that started to collect asked for it; 0: another thread did
};

// Begins to collect, for the whole process and for the work this thread enqueues. Empty if it does, otherwise why not.
std::string start_device_activity();
// Waits for the devices and returns their activities since the start, the earliest first; at most kMostActivities,
// `dropped` counts the others.
std::vector<DeviceActivity> stop_device_activity(int64_t& dropped);
inline constexpr int64_t kMostActivities = 1 << 20;

}  // namespace deft
