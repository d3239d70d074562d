#include "graph/uses.h"

#include <algorithm>

namespace deft::graph {

Uses::Uses(const Graph& graph) : g_(graph), places_(graph.buffers.size(), 0) {
  std::vector<bool> used(graph.values.size(), false);
  for (const Instruction& x : graph.instructions) {
    for (ValueId id : x.inputs)
      if (id != kNone) used[static_cast<size_t>(id)] = true;
    for (ValueId id : x.outputs) used[static_cast<size_t>(id)] = true;
  }
  for (ValueId id : graph.outputs) used[static_cast<size_t>(id)] = true;
  for (size_t i = 0; i < used.size(); ++i) places_[static_cast<size_t>(graph.values[i].buffer)] += used[i];
}

bool Uses::writes(const Instruction& x, BufferId buffer) const {
  if (!x.def) return false;
  auto written = written_values(x);
  return std::any_of(written.begin(), written.end(), [&](ValueId id) { return g_.value(id).buffer == buffer; });
}
bool Uses::reads(const Instruction& x, BufferId buffer) const {
  if (!x.def || x.action == Action::view) return false;
  return std::any_of(x.inputs.begin(), x.inputs.end(),
                     [&](ValueId id) { return id != kNone && g_.value(id).buffer == buffer; });
}

int Uses::maker(ValueId id, size_t at) const {
  while (at-- > 0) {
    const Instruction& x = g_.instructions[at];
    if (!x.def) continue;
    auto written = written_values(x);
    if (std::find(written.begin(), written.end(), id) != written.end()) return static_cast<int>(at);
  }
  return -1;
}

bool Uses::only_between(ValueId id, size_t maker, size_t reader) const {
  BufferId buffer = g_.value(id).buffer;
  if (g_.buffer_of(id).kind != BufferKind::temporary || places_[static_cast<size_t>(buffer)] != 1) return false;
  for (size_t i = maker + 1; i < reader; ++i)
    if (reads(g_.instructions[i], buffer) || writes(g_.instructions[i], buffer)) return false;
  const Instruction& last = g_.instructions[reader];
  if (last.action == Action::write && last.outputs[0] == id) return true;  // gone with this instruction
  for (size_t i = reader + 1; i < g_.instructions.size(); ++i)
    if (reads(g_.instructions[i], buffer)) return false;
  return std::find(g_.outputs.begin(), g_.outputs.end(), id) == g_.outputs.end();
}

bool Uses::inputs_stand(size_t from, size_t to) const {
  for (size_t i = from + 1; i < to; ++i)
    for (ValueId id : g_.instructions[from].inputs)
      if (id != kNone && writes(g_.instructions[i], g_.value(id).buffer)) return false;
  return true;
}

void remove_taken(Graph& graph) {
  std::erase_if(graph.instructions, [](const Instruction& x) { return x.def == nullptr; });
}

}  // namespace deft::graph
