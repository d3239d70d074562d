#include "graph/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace deft::graph {

namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(size_t bytes) { return (static_cast<int64_t>(bytes) + kAlign - 1) / kAlign * kAlign; }

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest place where `bytes` fit between the blocks given, which are sorted by offset.
int64_t lowest_place(const std::vector<std::pair<int64_t, int64_t>>& blocks, int64_t bytes) {
  int64_t at = 0;
  for (const auto& [offset, size] : blocks) {
    if (at + bytes <= offset) break;
    at = std::max(at, offset + size);
  }
  return at;
}

}  // namespace

std::vector<Lifetime> lifetimes(const Graph& graph) {
  std::vector<Lifetime> all(graph.buffers.size());
  auto touch = [&](ValueId id, size_t at) {
    if (id == kNone) return;
    Lifetime& l = all[static_cast<size_t>(graph.value(id).buffer)];
    if (l.first < 0) l.first = static_cast<int32_t>(at);
    l.last = static_cast<int32_t>(at);
  };
  for (size_t i = 0; i < graph.instructions.size(); ++i) {
    if (graph.instructions[i].action == Action::view) continue;  // nothing is read
    for (ValueId id : graph.instructions[i].inputs) touch(id, i);
    for (ValueId id : graph.instructions[i].outputs) touch(id, i);
  }
  for (ValueId id : graph.outputs) touch(id, graph.instructions.size());
  return all;
}

MemoryPlan plan_memory(const Graph& graph) {
  MemoryPlan plan;
  std::vector<Lifetime> lives = lifetimes(graph);
  plan.offsets.assign(graph.buffers.size(), kOutside);
  std::vector<bool> result(graph.buffers.size(), false);
  for (ValueId id : graph.outputs) result[static_cast<size_t>(graph.value(id).buffer)] = true;
  std::vector<size_t> order;
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const Buffer& b = graph.buffers[i];
    if (b.kind == BufferKind::temporary && !result[i] && lives[i].first >= 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return graph.buffers[a].bytes > graph.buffers[b].bytes; });
  std::vector<int64_t> alive(graph.instructions.size() + 1, 0);
  for (size_t n = 0; n < order.size(); ++n) {
    size_t i = order[n];
    int64_t bytes = aligned(graph.buffers[i].bytes);
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (size_t m = 0; m < n; ++m)
      if (overlap(lives[i], lives[order[m]]))
        taken.emplace_back(plan.offsets[order[m]], aligned(graph.buffers[order[m]].bytes));
    std::sort(taken.begin(), taken.end());
    plan.offsets[i] = lowest_place(taken, bytes);
    plan.bytes = std::max(plan.bytes, plan.offsets[i] + bytes);
    plan.sum += bytes;
    for (int32_t t = lives[i].first; t <= lives[i].last; ++t) alive[static_cast<size_t>(t)] += bytes;
  }
  if (!alive.empty()) plan.floor = *std::max_element(alive.begin(), alive.end());
  return plan;
}

}  // namespace deft::graph
