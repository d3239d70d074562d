// At batch 1 a small network's time is that of reading its weights from L1 and L2: packed panels take the fewest
// instructions for it. Written weights stay unpacked: they would be packed again in each run.
#include <fmt/format.h>

#include <cstring>

#include "graph/passes.h"
#include "ops/matmul.h"
#include "ops/packed_linear.h"

namespace deft::graph {

namespace {

bool is_one_row(const Graph& g, const Instruction& x) {
  if (x.action != Action::make || (x.def != &op_def<Linear> && x.def != &op_def<FusedLinear>)) return false;
  const Buffer& b = g.buffer_of(x.inputs[1]);
  return g.value(x.outputs[0]).meta.device.is_cpu() && b.kind == BufferKind::constant && !b.written &&
         FusedLinear::fits_one_row(g.value(x.inputs[0]).meta, g.value(x.inputs[1]).meta);
}

}  // namespace

void pack_rows(Graph& graph, Notes& notes) {
  size_t packed = 0;
  for (Instruction& x : graph.instructions) {
    if (!is_one_row(graph, x)) continue;
    FusedLinear::Params p;
    if (x.def == &op_def<FusedLinear>) std::memcpy(static_cast<void*>(&p), x.params.data(), sizeof p);
    p.one_row = true;
    x.def = &op_def<FusedLinear>;
    x.inputs.resize(4, kNone);
    const auto* bytes = reinterpret_cast<const std::byte*>(&p);
    x.params.assign(bytes, bytes + sizeof p);
    ++packed;
  }
  if (packed) notes.done.push_back(fmt::format("pack_rows: {} matmuls of one row", packed));
}

}  // namespace deft::graph
