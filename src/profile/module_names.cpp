#include "profile/module_names.h"

#include <algorithm>

namespace deft::profile {

const char* ModuleNames::ask(const ModuleCall& call, bool outermost) {
  // A tree that is met later may hold one met before, under a longer name.
  if (outermost)
    for (auto& [name, module] : call.tree(call.module)) names_[module].name = name;
  Names& mine = names_[call.module];
  mine.type = call.describe(call.module);
  mine.label = labels_.emplace_back(mine.name.empty() ? mine.type.substr(0, mine.type.find('(')) : mine.name).c_str();
  return mine.label;
}

namespace {

// Ticks of each node with all below it, and with those below that belong to no other module.
struct Spans {
  std::vector<uint64_t> all, own;
  explicit Spans(const std::deque<ZoneTree::Node>& nodes) : all(nodes.size()), own(nodes.size()) {
    for (size_t i = nodes.size(); i-- > 0;) {
      all[i] += nodes[i].self;
      own[i] += nodes[i].self;
      if (!nodes[i].parent) continue;
      const size_t parent = static_cast<size_t>(nodes[i].parent->index);
      all[parent] += all[i];
      if (!nodes[i].module) own[parent] += own[i];
    }
  }
};

bool inside_itself(const ZoneTree::Node& n) {
  for (const ZoneTree::Node* around = n.parent; around; around = around->parent)
    if (around->module == n.module) return true;
  return false;
}

}  // namespace

std::vector<ModuleRow> ModuleNames::rows(const ZoneTree& tree, double seconds_per_tick) const {
  const std::deque<ZoneTree::Node>& nodes = tree.nodes();
  const Spans spans(nodes);
  std::vector<ModuleRow> rows;
  std::unordered_map<const void*, size_t> row_of;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ZoneTree::Node& n = nodes[i];
    if (!n.module) continue;
    const auto [at, added] = row_of.emplace(n.module, rows.size());
    if (added) {
      const Names& names = names_.at(n.module);
      rows.push_back({.name = names.name, .type = names.type});
    }
    ModuleRow& row = rows[at->second];
    row.calls += n.calls;
    row.self_seconds += static_cast<double>(spans.own[i]) * seconds_per_tick;
    if (!inside_itself(n)) row.seconds += static_cast<double>(spans.all[i]) * seconds_per_tick;
  }
  return rows;
}

}  // namespace deft::profile
