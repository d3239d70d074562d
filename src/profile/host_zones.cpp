#include "profile/host_zones.h"

#include <cstring>

namespace deft::profile {

namespace {

std::vector<const TraceEvent*> outermost_first(const EventRing& events) {
  std::vector<const TraceEvent*> sorted;
  for (size_t i = 0; i < events.size(); ++i) sorted.push_back(&events[i]);
  std::sort(sorted.begin(), sorted.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->depth < b->depth;
  });
  return sorted;
}

bool begins_backward(const TraceEvent& e) {
  return e.bucket == Bucket::autograd && std::strcmp(e.name, "backward") == 0;
}

}  // namespace

HostZones::HostZones(const Trace& trace, const EventRing& events) {
  std::vector<int32_t> open;
  uint64_t at = trace.start;
  const auto reach = [&](uint64_t tick) {  // the innermost zone has the time up to there
    if (!open.empty() && tick > at) pieces_.push_back({trace.seconds(at), trace.seconds(tick), open.back()});
    at = std::max(at, tick);
  };
  const auto close_before = [&](uint64_t tick) {
    while (!open.empty() && zones_[static_cast<size_t>(open.back())].event->end <= tick) {
      reach(zones_[static_cast<size_t>(open.back())].event->end);
      open.pop_back();
    }
  };
  for (const TraceEvent* event : outermost_first(events)) {
    close_before(event->begin);
    reach(event->begin);
    const int32_t outer = open.empty() ? -1 : open.back();
    const bool backward = begins_backward(*event) || (outer >= 0 && zones_[static_cast<size_t>(outer)].backward);
    open.push_back(static_cast<int32_t>(zones_.size()));
    zones_.push_back({event, outer, backward});
  }
  close_before(UINT64_MAX);
}

int32_t HostZones::at(double seconds) const {
  const auto later = std::upper_bound(pieces_.begin(), pieces_.end(), seconds,
                                      [](double value, const Piece& piece) { return value < piece.begin; });
  if (later == pieces_.begin()) return -1;
  const Piece& piece = *(later - 1);
  return seconds < piece.end ? piece.zone : -1;
}

}  // namespace deft::profile
