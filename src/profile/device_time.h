// Where the time goes when a device works beside the host: while the device is busy the time is its kernels', in the
// gaps it belongs to what the host does.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "profile/host_zones.h"
#include "profile/profile.h"
#include "runtime/device_activity.h"

namespace deft::profile {

// From `begin` to `end`, in seconds since the session's start.
struct TimeSpan {
  double begin = 0, end = 0;
  Bucket bucket = Bucket::other;
  bool operator==(const TimeSpan&) const = default;
};

// What the host did, without overlaps and in order. Time outside all zones is left out. `asks` (zones_that_ask() in
// profile/device_ops.h): the time of a kernel's zone that only asks a device for it is dispatch.
std::vector<TimeSpan> host_spans(const HostZones& host, const std::vector<bool>& asks = {});

struct DeviceShares {
  double busy_seconds = 0;                                       // some kernel or copy ran
  std::array<double, kBucketCount> seconds{}, device_seconds{};  // of all, of the device in it
};
// `host` as above; `device` sorted by begin, overlaps allowed (streams): the one that began first has the time. What
// neither covers is `other`, so that the buckets add up to `wall_seconds`.
DeviceShares share_time(std::span<const TimeSpan> host, std::span<const TimeSpan> device, double wall_seconds);

// Puts the device's part into a profile: its buckets and device_busy_seconds. Where the ring has lost what the host did
// before `known_from`, the time since then stands for all of it.
void add_device_time(Profile& profile, std::span<const TimeSpan> host, std::span<const TimeSpan> device,
                     double known_from = 0);

// GEMMs and convolutions are recognised by the names of their kernels.
Bucket bucket_of(const DeviceActivity& activity);
// "void deft::cuda::(anonymous namespace)::map_last<...>(...)", mangled or not, is "map_last".
std::string short_kernel_name(const std::string& name);
// One row for each kernel, the longest first.
std::vector<DeviceRow> device_rows(const std::vector<DeviceActivity>& activities);

}  // namespace deft::profile
