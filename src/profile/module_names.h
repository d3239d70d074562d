// What the modules of a session are called, and their rows.
#pragma once

#include <deque>
#include <unordered_map>

#include "core/observer.h"
#include "profile/zone_tree.h"

namespace deft::profile {

class ModuleNames {
 public:
  // The label of a module in stacks and traces; null: it was not asked for its names yet.
  const char* find(const void* module) const {
    const auto at = names_.find(module);
    return at == names_.end() ? nullptr : at->second.label;
  }
  const char* ask(const ModuleCall& call, bool outermost);  // outermost: for the names of its whole tree
  std::vector<ModuleRow> rows(const ZoneTree& tree, double seconds_per_tick) const;  // in the order of their first call
  std::deque<std::string> take_labels() { return std::move(labels_); }

 private:
  struct Names {
    std::string name, type;
    const char* label = nullptr;  // null: not called yet
  };
  std::unordered_map<const void*, Names> names_;
  std::deque<std::string> labels_;  // stay where they are
};

}  // namespace deft::profile
