// One side of a memory timeline, host or devices: what is alive and who made it, the highest moment, the points.
#pragma once

#include <array>
#include <climits>
#include <cstdint>
#include <vector>

#include "profile/memory_timeline.h"

namespace deft::profile {

// The course of a quantity in at most `most` points. Time is cut into windows of equal length, doubled when there are
// too many; a window keeps its highest point and its last one, so that no peak is lost and every step down is seen.
class BoundedCourse {
 public:
  explicit BoundedCourse(int most) : windows_(static_cast<size_t>(most / 2)) {}
  void add(const MemoryPoint& point);
  std::vector<MemoryPoint> points() const;

 private:
  struct Window {
    MemoryPoint highest, last;
    bool used = false;
    void add(const MemoryPoint& point);
  };
  void halve();

  std::vector<Window> windows_;
  double length_ = 1e-6;  // of a window, in seconds
};

struct Held {
  int64_t bytes = 0, count = 0;
};
using HeldByCategory = std::array<Held, kMemoryCategoryCount>;

class MemoryLedger {
 public:
  explicit MemoryLedger(int most_points) : course_(most_points) {}

  // An event: begin() with the counters after it, changes of who holds what, end() with the same counters.
  void begin(const MemoryPoint& now);
  void hold(size_t maker, MemoryCategory category, int64_t bytes, int64_t count);  // `maker`: a number of the caller's
  void end(const MemoryPoint& now);

  const MemoryPoint& peak() const { return peak_; }
  std::vector<MemoryPoint> points() const { return course_.points(); }
  const std::vector<HeldByCategory>& held_at_peak() const { return at_peak_ ? held_ : held_at_peak_; }

 private:
  BoundedCourse course_;
  std::vector<HeldByCategory> held_, held_at_peak_;  // by maker
  MemoryPoint peak_{0, {INT64_MIN, {}}};
  bool at_peak_ = false;  // nothing was freed since the highest moment
};

}  // namespace deft::profile
