#include "profile/zone_tree.h"

#include <algorithm>
#include <map>

namespace deft::profile {

int32_t ZoneTree::child(int32_t parent, const char* name, const void* module, Bucket bucket) {
  const uint64_t key = static_cast<uint64_t>(parent) << 8 | static_cast<uint64_t>(bucket);
  const uint64_t hash = mix(mix(key, reinterpret_cast<uintptr_t>(name)), reinterpret_cast<uintptr_t>(module));
  const int32_t found = index_.find(hash, [&](int32_t i) {
    const Node& n = (*this)[i];
    return n.parent == parent && n.name == name && n.module == module && n.bucket == bucket;
  });
  if (found >= 0) return found;
  static const char* const more = "(further stacks)";
  if (nodes_.size() >= kMaxNodes && name != more) return child(kRoot, more, nullptr, bucket);
  const int32_t added = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({.name = name, .module = module, .parent = parent, .bucket = bucket});
  index_.add(hash, added);
  return added;
}

std::array<double, kBucketCount> bucket_seconds(const ZoneTree& tree, double seconds_per_tick) {
  std::array<uint64_t, kBucketCount> ticks{};
  for (const ZoneTree::Node& n : tree.nodes()) ticks[static_cast<size_t>(n.bucket)] += n.self;
  std::array<double, kBucketCount> seconds;
  for (size_t b = 0; b < seconds.size(); ++b) seconds[b] = static_cast<double>(ticks[b]) * seconds_per_tick;
  return seconds;
}

std::vector<FlameRow> flame_rows(const ZoneTree& tree, double seconds_per_tick) {
  std::vector<std::string> stacks;
  std::map<std::string, FlameRow> by_stack;  // the same name may be in several places of the program
  for (const ZoneTree::Node& n : tree.nodes()) {
    std::string stack = n.parent < 0 ? "" : stacks[static_cast<size_t>(n.parent)];
    if (!stack.empty()) stack += ';';
    stacks.push_back(stack + n.name);
    if (!n.self) continue;
    FlameRow& row = by_stack[stacks.back()];
    row.calls += n.calls;
    row.self_seconds += static_cast<double>(n.self) * seconds_per_tick;
  }
  std::vector<FlameRow> rows;
  for (auto& [stack, row] : by_stack) {
    row.stack = stack.empty() ? "(outside all zones)" : stack;
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const FlameRow& a, const FlameRow& b) { return a.self_seconds > b.self_seconds; });
  return rows;
}

}  // namespace deft::profile
