#include <fmt/format.h>

#include "graph/passes.h"

namespace deft::graph {

// Backwards: a buffer is wanted once something later reads it. Writes to outside memory are always wanted.
void remove_unused(Graph& graph, Notes& notes) {
  std::vector<bool> wanted(graph.buffers.size(), false);
  auto want = [&](ValueId id) {
    if (id != kNone) wanted[static_cast<size_t>(graph.value(id).buffer)] = true;
  };
  for (ValueId id : graph.outputs) want(id);
  std::vector<Instruction> kept;
  size_t removed = 0;
  for (size_t i = graph.instructions.size(); i-- > 0;) {
    Instruction& x = graph.instructions[i];
    // Code outside the graph may do anything, and an op that draws moves the generator for later draws.
    bool used = x.action == Action::call || x.def->redraw;
    for (ValueId id : x.outputs) used |= wanted[static_cast<size_t>(graph.value(id).buffer)];
    for (ValueId id : rewritten_values(x))
      used |= wanted[static_cast<size_t>(graph.value(id).buffer)] || graph.buffer_of(id).kind != BufferKind::temporary;
    if (!used) {
      removed += x.action != Action::view;
      continue;
    }
    for (ValueId id : x.inputs) want(id);
    kept.push_back(std::move(x));
  }
  graph.instructions.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  if (removed) notes.done.push_back(fmt::format("remove_unused: {} results that nobody reads", removed));
}

}  // namespace deft::graph
