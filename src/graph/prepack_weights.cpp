// Matmuls and convolutions find their weights packed at the first run. Plans for several sizes share one packed form,
// and a written weight is packed again without a new plan: the derived cache holds them, by version.
#include <fmt/format.h>

#include <map>
#include <set>

#include "graph/edit.h"
#include "graph/passes.h"
#include "ops/prepack.h"

namespace deft::graph {

void prepack_weights(Graph& graph, Notes& notes) {
  size_t count = 0;
  int64_t bytes = 0;
  std::map<std::string, size_t> left;
  std::set<ValueId> seen;
  for (const Instruction& x : graph.instructions) {
    if (x.action != Action::make || !has_weight(*x.def)) continue;
    const ValueId w = x.inputs[1];
    if (graph.buffer_of(w).kind != BufferKind::constant || graph.buffer_of(w).written) {
      ++left["it is not constant"];
      continue;
    }
    std::vector<const Meta*> metas;
    static const Meta undefined = Meta::undefined();
    for (ValueId id : x.inputs) metas.push_back(id == kNone ? &undefined : &graph.value(id).meta);
    const Tensor weight = on_memory_of(graph.buffer_of(w).constant, graph.value(w));
    Prepacked p = prepack(*x.def, metas, weight, graph.value(x.outputs[0]).meta, x.params.data());
    if (p.left) {
      ++left[p.left];
    } else if (seen.insert(w).second) {
      ++count;
      bytes += p.bytes;
    }
  }
  if (count) notes.done.push_back(fmt::format("prepack_weights: {} weights, {} bytes", count, bytes));
  for (const auto& [why, n] : left) notes.left.push_back(fmt::format("prepack_weights: {} weights: {}", n, why));
}

}  // namespace deft::graph
