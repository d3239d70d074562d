#include "profile/device_ops.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace deft::profile {

namespace {

// Rows of one op at one line.
struct Group {
  std::vector<OpRow*> rows;
  double seconds = 0;  // on the device
};

class Groups {
 public:
  explicit Groups(Profile& profile) {
    for (OpRow& row : profile.ops) groups_[{row.name, row.site, row.backward}].rows.push_back(&row);
  }

  // Null: the zone is no op.
  Group* of(const HostZones::ZoneOf& zone) {
    const TraceEvent& e = *zone.event;
    const auto [it, added] = known_.try_emplace({e.name, std::bit_cast<uintptr_t>(e.site), zone.backward}, nullptr);
    if (added) {
      const auto found = groups_.find({e.name, e.site.line() ? to_string(e.site) : "", zone.backward});
      if (found != groups_.end()) it->second = &found->second;
    }
    return it->second;
  }

  std::map<std::tuple<std::string, std::string, bool>, Group>& all() { return groups_; }

 private:
  std::map<std::tuple<std::string, std::string, bool>, Group> groups_;
  std::map<std::tuple<const char*, uintptr_t, bool>, Group*> known_;  // by what events carry
};

// Rows on the device where there are any: their neighbours ran on the host.
std::vector<OpRow*> rows_there(const Group& group) {
  std::vector<OpRow*> there;
  for (OpRow* row : group.rows)
    if (row->on_device) there.push_back(row);
  return there.empty() ? group.rows : there;
}

void share_out(const Group& group, double scale) {
  const std::vector<OpRow*> rows = group.seconds > 0 ? rows_there(group) : std::vector<OpRow*>();
  double bytes = 0;
  for (const OpRow* row : rows) bytes += row->bytes;
  for (OpRow* row : rows) row->on_device = true;
  for (OpRow* row : group.rows) {
    if (!row->on_device) continue;
    row->overhead_seconds += row->kernel_seconds;
    const double part = bytes > 0 ? row->bytes / bytes : 1 / static_cast<double>(std::max<size_t>(rows.size(), 1));
    row->kernel_seconds = scale * group.seconds * part;
  }
}

}  // namespace

void add_device_time_to_ops(Profile& profile, const HostZones& host, std::span<const DeviceWork> device, double scale) {
  Groups groups(profile);
  for (const DeviceWork& work : device) {
    int32_t zone = work.asked < 0 ? -1 : host.at(work.asked);
    Group* group = nullptr;
    for (; zone >= 0 && !group; zone = host.zones()[static_cast<size_t>(zone)].outer)
      group = groups.of(host.zones()[static_cast<size_t>(zone)]);
    if (group) group->seconds += work.seconds;
  }
  for (const auto& [key, group] : groups.all()) share_out(group, scale);
  std::stable_sort(profile.ops.begin(), profile.ops.end(),
                   [](const OpRow& a, const OpRow& b) { return a.seconds() > b.seconds(); });
}

std::vector<bool> zones_that_ask(const HostZones& host, std::span<const DeviceWork> device) {
  std::vector<bool> asks(host.zones().size());
  for (const DeviceWork& work : device)
    if (const int32_t zone = work.asked < 0 ? -1 : host.at(work.asked); zone >= 0)
      asks[static_cast<size_t>(zone)] = true;
  return asks;
}

}  // namespace deft::profile
