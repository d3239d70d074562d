#include "graph/edit.h"

#include "ops/attention.h"

#include <algorithm>

#include "core/tensor_impl.h"

namespace deft::graph {

bool draws(const Instruction& x) {
  if (!x.def->redraw) return false;
  if (x.def == &op_def<ScaledDotProductAttention>) return params_of<ScaledDotProductAttention::Params>(x).drop_p > 0;
  if (x.def == &op_def<ScaledDotProductAttentionBackward>)
    return params_of<ScaledDotProductAttentionBackward::Params>(x).drop_p > 0;
  return true;
}

bool is_constant(const Graph& graph, ValueId id) {
  return id == kNone || (graph.buffer_of(id).kind == BufferKind::constant && !graph.buffer_of(id).written);
}

Tensor read_constant(const Graph& graph, ValueId id, std::vector<Dependency>& dependencies) {
  const Tensor& t = graph.buffer_of(id).constant;
  Storage* s = t.impl()->storage;
  const bool own = t.impl()->unique() && s->refs.load(std::memory_order_acquire) == 1;
  const bool known = std::any_of(dependencies.begin(), dependencies.end(),
                                 [&](const Dependency& d) { return d.tensor.impl()->storage == s; });
  if (!own && !known) dependencies.push_back({t, s->stamp()});
  return on_memory_of(t, graph.value(id));
}

ValueId add_constant(Graph& graph, const Tensor& t) {
  return graph.add_value(t.meta(), graph.add_buffer(BufferKind::constant, t.impl()->storage->nbytes, t));
}

void drop_unused_constants(Graph& graph) {
  std::vector<bool> used(graph.buffers.size(), false);
  auto use = [&](ValueId id) {
    if (id != kNone) used[static_cast<size_t>(graph.value(id).buffer)] = true;
  };
  for (const Instruction& x : graph.instructions) {
    std::for_each(x.inputs.begin(), x.inputs.end(), use);
    std::for_each(x.outputs.begin(), x.outputs.end(), use);
  }
  std::for_each(graph.outputs.begin(), graph.outputs.end(), use);
  for (size_t i = 0; i < used.size(); ++i) {
    Buffer& b = graph.buffers[i];
    if (!used[i] && b.kind == BufferKind::constant) b = {BufferKind::temporary, b.bytes, {}, false};
  }
}

}  // namespace deft::graph
