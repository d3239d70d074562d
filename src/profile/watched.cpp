#include "profile/watched.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace deft::profile {

namespace {

using Key = std::tuple<std::string, std::string, bool, DType>;
Key key_of(const OpRow& row) { return {row.name, row.site, row.backward, row.dtype}; }

// What the host takes for the ops of `plain`: all there is of ops on a device.
std::map<Key, double> host_seconds(const Profile& plain) {
  std::map<Key, double> seconds;
  for (const OpRow& row : plain.ops) seconds[key_of(row)] += row.kernel_seconds + row.overhead_seconds;
  return seconds;
}

}  // namespace

Profile with_device(Profile plain, const Profile& watched) {
  plain.device_note = watched.device_note;
  if (watched.device_busy_seconds < 0) return plain;
  // Kernels take what they take, watched or not; the gaps between them are as long as the host makes them.
  const double busy = std::min(watched.device_busy_seconds, plain.wall_seconds);
  const double gaps = watched.wall_seconds - watched.device_busy_seconds;
  const double of_device = watched.device_busy_seconds > 0 ? busy / watched.device_busy_seconds : 0;
  const double of_gaps = gaps > 0 ? (plain.wall_seconds - busy) / gaps : 0;
  for (size_t i = 0; i < plain.seconds.size(); ++i) {
    plain.device_seconds[i] = of_device * watched.device_seconds[i];
    plain.seconds[i] = plain.device_seconds[i] + of_gaps * (watched.seconds[i] - watched.device_seconds[i]);
  }
  plain.device_busy_seconds = busy;
  plain.device = watched.device;
  plain.dropped = watched.dropped;
  plain.watching_seconds = std::max(0.0, watched.wall_seconds - plain.wall_seconds);
  const std::map<Key, double> host = host_seconds(plain);
  plain.ops = watched.ops;
  for (OpRow& row : plain.ops)
    if (const auto found = host.find(key_of(row)); row.on_device && found != host.end())
      row.overhead_seconds = found->second;
  std::stable_sort(plain.ops.begin(), plain.ops.end(),
                   [](const OpRow& a, const OpRow& b) { return a.seconds() > b.seconds(); });
  return plain;
}

Watched profile_run(const std::function<bool()>& run, bool on_device, bool trace) {
  Watched out;
  bool whole = true;
  const auto profiled = [&](const ProfileOptions& options) {
    ProfileSession session(options);
    whole = run();
    Profile p = session.stop();
    out.trace = session.take_trace();
    return p;
  };
  out.profile = profiled({.trace = trace && !on_device, .device = false});
  if (on_device && whole) out.profile = with_device(std::move(out.profile), profiled({}));
  return out;
}

}  // namespace deft::profile
