// The events of a session in their order, and the file for chrome://tracing and ui.perfetto.dev.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "profile/profile.h"

namespace deft::profile {

// A zone that ended.
struct TraceEvent {
  uint64_t begin = 0, end = 0;  // ticks
  const char* name = "";
  Site site;
  Bucket bucket = Bucket::other;  // where its own time counts
  uint16_t depth = 0;             // zones around it
};

// The last events that fit into `bytes`.
class EventRing {
 public:
  explicit EventRing(size_t bytes = 0)
      : events_(std::make_unique_for_overwrite<Place[]>(bytes / sizeof(TraceEvent))),
        capacity_(bytes / sizeof(TraceEvent)) {}
  void push(const TraceEvent& event) {
    if (TraceEvent* place = next()) *place = event;
  }
  // Where the next event is to be written; null: there is no room for any.
  TraceEvent* next() {
    ++pushed_;
    if (capacity_ == 0) return nullptr;
    TraceEvent* const place = &events_[next_].event;
    if (++next_ == capacity_) next_ = 0;
    return place;
  }
  size_t size() const { return static_cast<size_t>(std::min<uint64_t>(pushed_, capacity_)); }
  uint64_t dropped() const { return pushed_ - size(); }
  // By the time of their end.
  const TraceEvent& operator[](size_t i) const {
    const size_t at = (pushed_ > capacity_ ? next_ : 0) + i;
    return events_[at < capacity_ ? at : at - capacity_].event;
  }

 private:
  union Place {  // left uninitialised: unused pages stay untouched
    Place() {}
    TraceEvent event;
  };
  std::unique_ptr<Place[]> events_;
  size_t capacity_, next_ = 0;
  uint64_t pushed_ = 0;
};

struct TraceThread {
  std::string name;
  EventRing events;
};

struct Trace {
  uint64_t start = 0;  // tick of the session's first moment
  double seconds_per_tick = 1;
  std::vector<TraceThread> threads;  // the profiled one first
  std::deque<std::string> labels;    // names of modules, for events

  double seconds(uint64_t tick) const {  // since the start
    return static_cast<double>(static_cast<int64_t>(tick - start)) * seconds_per_tick;
  }
};

// A figure over time, drawn as a curve: bytes in use, for example.
struct CounterTrack {
  std::string name;
  std::vector<std::pair<double, double>> points;  // seconds since the start, value
};

// Writes event by event; SaveError if the file cannot be written.
void write_trace(const Trace& trace, const std::string& path, std::span<const CounterTrack> counters = {});

// "train;backward;conv2d 1234" for each row, in microseconds of its own time: what flame graph tools read.
std::string flame_text(const Profile& profile);

}  // namespace deft::profile
