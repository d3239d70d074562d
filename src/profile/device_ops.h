// Which op asked for which kernel of a device: the innermost the host was in when it asked.
#pragma once

#include <span>
#include <vector>

#include "profile/host_zones.h"

namespace deft::profile {

// What a device did, in seconds since the session's start.
struct DeviceWork {
  double asked = -1;  // -1: not known, or by another thread
  double seconds = 0;
};

// Ops that asked for kernels become on_device (profile.h) and get their time, `scale` times what is seen of it; then
// the longest op is first again. Ops of one name at one line that differ in type share it by their bytes.
void add_device_time_to_ops(Profile& profile, const HostZones& host, std::span<const DeviceWork> device,
                            double scale = 1);

// For each zone of the host, whether something was asked for in it: its time is a launch's, not a kernel's.
std::vector<bool> zones_that_ask(const HostZones& host, std::span<const DeviceWork> device);

}  // namespace deft::profile
