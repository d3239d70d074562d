#include "profile/memory_ledger.h"

#include <algorithm>

namespace deft::profile {

void BoundedCourse::Window::add(const MemoryPoint& point) {
  if (!used || point.use.total > highest.use.total) highest = point;
  last = point;
  used = true;
}

// Pairs of windows become one.
void BoundedCourse::halve() {
  const size_t n = windows_.size();
  for (size_t i = 0; i < n; ++i) {
    Window merged;
    for (size_t from = 2 * i; from < std::min(2 * i + 2, n); ++from) {
      if (!windows_[from].used) continue;
      merged.add(windows_[from].highest);
      merged.last = windows_[from].last;
    }
    windows_[i] = merged;
  }
  length_ *= 2;
}

void BoundedCourse::add(const MemoryPoint& point) {
  while (point.seconds >= length_ * static_cast<double>(windows_.size())) halve();
  windows_[static_cast<size_t>(point.seconds / length_)].add(point);
}

std::vector<MemoryPoint> BoundedCourse::points() const {
  std::vector<MemoryPoint> out;
  for (const Window& w : windows_) {
    if (!w.used) continue;
    out.push_back(w.highest);
    if (w.last.seconds > w.highest.seconds) out.push_back(w.last);
  }
  return out;
}

void MemoryLedger::hold(size_t maker, MemoryCategory category, int64_t bytes, int64_t count) {
  if (maker >= held_.size()) held_.resize(maker + 1);
  Held& held = held_[maker][static_cast<size_t>(category)];
  held.bytes += bytes;
  held.count += count;
}

void MemoryLedger::begin(const MemoryPoint& now) {
  if (!at_peak_ || now.use.total >= peak_.use.total) return;
  held_at_peak_ = held_;
  at_peak_ = false;
}

void MemoryLedger::end(const MemoryPoint& now) {
  course_.add(now);
  const bool higher = now.use.total > peak_.use.total;
  if (!higher && !at_peak_) return;
  peak_.use = now.use;  // also when bytes only changed their category
  if (higher) peak_.seconds = now.seconds;
  at_peak_ = true;
}

}  // namespace deft::profile
