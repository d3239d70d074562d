#include "core/graph_stats.h"

#include <algorithm>
#include <atomic>
#include <mutex>

namespace deft {

namespace {

// Live nodes by the step they were made in. A step takes over the slot of the one kWindow before it; nodes still alive
// from then are counted as ancient. So ages are exact below kWindow steps, and read as kWindow from there on.
constexpr uint32_t kWindow = 4096;
constexpr uint32_t kNearlyAncient = kWindow - 64;  // from this age on a free takes the lock
std::mutex slot_change;
std::atomic<int64_t> ancient_nodes{0};
std::atomic<int64_t> nodes_of_step[kWindow];
std::atomic<uint64_t> nodes_made{0}, nodes_freed{0};
std::atomic<int64_t> saved_bytes{0};
std::atomic<uint32_t> current_step{0}, oldest_step{0};

}  // namespace

GraphStats graph_stats() {
  GraphStats s;
  uint64_t freed =
      nodes_freed.load(std::memory_order_acquire);  // before `made`, so that the difference is never negative
  s.live_nodes = static_cast<int64_t>(nodes_made.load(std::memory_order_relaxed) - freed);
  s.saved_bytes = saved_bytes.load(std::memory_order_relaxed);
  uint32_t now = current_step.load(std::memory_order_relaxed);
  s.step = now;
  // Each slot is passed once per step, so the walk is O(1) amortised over steps.
  uint32_t oldest = std::max(oldest_step.load(std::memory_order_relaxed), now >= kWindow ? now - kWindow + 1 : 0);
  while (oldest < now && nodes_of_step[oldest % kWindow].load(std::memory_order_relaxed) == 0) ++oldest;
  oldest_step.store(oldest, std::memory_order_relaxed);
  s.oldest_node_age = ancient_nodes.load(std::memory_order_relaxed) > 0 ? kWindow : s.live_nodes ? now - oldest : 0;
  return s;
}

void advance_step() {
  std::lock_guard lock(slot_change);
  uint32_t next = current_step.load(std::memory_order_relaxed) + 1;
  int64_t left_over = nodes_of_step[next % kWindow].exchange(0, std::memory_order_relaxed);
  ancient_nodes.fetch_add(left_over, std::memory_order_relaxed);
  current_step.store(next, std::memory_order_relaxed);
}
void count_saved_bytes(int64_t delta) noexcept { saved_bytes.fetch_add(delta, std::memory_order_relaxed); }

uint64_t count_node_created(uint32_t& step) noexcept {
  step = current_step.load(std::memory_order_relaxed);
  nodes_of_step[step % kWindow].fetch_add(1, std::memory_order_relaxed);
  return nodes_made.fetch_add(1, std::memory_order_relaxed) + 1;
}

void count_node_freed(uint32_t step) noexcept {
  nodes_freed.fetch_add(1, std::memory_order_release);
  uint32_t age = current_step.load(std::memory_order_relaxed) - step;
  if (age < kNearlyAncient) [[likely]] {
    nodes_of_step[step % kWindow].fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  std::lock_guard lock(slot_change);
  age = current_step.load(std::memory_order_relaxed) - step;
  (age < kWindow ? nodes_of_step[step % kWindow] : ancient_nodes).fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace deft
