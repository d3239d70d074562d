#include "profile/zone_tree.h"

#include <algorithm>
#include <bit>
#include <map>

namespace deft::profile {

ZoneTree::ZoneTree() : nodes_(1) { root().after[0] = root().after[1] = &root(); }

ZoneTree::Node& ZoneTree::child(Node& parent, const char* name, const void* module, const Kind& kind) {
  const uint64_t key = static_cast<uint64_t>(parent.index) << 32 | std::bit_cast<uint32_t>(kind);
  const uint64_t hash = mix(mix(key, reinterpret_cast<uintptr_t>(name)), reinterpret_cast<uintptr_t>(module));
  const int32_t found = index_.find(hash, [&](int32_t i) {
    const Node& n = nodes_[static_cast<size_t>(i)];
    return n.parent == &parent && n.name == name && n.module == module && n.kind == kind;
  });
  if (found >= 0) return nodes_[static_cast<size_t>(found)];
  static const char* const more = "(further stacks)";
  if (nodes_.size() >= kMaxNodes && name != more) return child(root(), more, nullptr, kind);
  const int32_t added = static_cast<int32_t>(nodes_.size());
  Node& n = nodes_.emplace_back();
  n.name = name;
  n.parent = &parent;
  n.module = module;
  n.kind = kind;
  n.index = added;
  n.after[0] = n.after[1] = &root();  // which no zone is
  index_.add(hash, added);
  return n;
}

std::array<double, kBucketCount> bucket_seconds(const ZoneTree& tree, double seconds_per_tick) {
  std::array<uint64_t, kBucketCount> ticks{};
  for (const ZoneTree::Node& n : tree.nodes()) ticks[static_cast<size_t>(n.kind.bucket)] += n.self;
  std::array<double, kBucketCount> seconds;
  for (size_t b = 0; b < seconds.size(); ++b) seconds[b] = static_cast<double>(ticks[b]) * seconds_per_tick;
  return seconds;
}

std::vector<FlameRow> flame_rows(const ZoneTree& tree, double seconds_per_tick) {
  std::vector<std::string> stacks;
  std::map<std::string, FlameRow> by_stack;  // the same name may be in several places of the program
  for (const ZoneTree::Node& n : tree.nodes()) {
    std::string stack = n.parent ? stacks[static_cast<size_t>(n.parent->index)] : "";
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
