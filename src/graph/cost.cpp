#include "graph/cost.h"

#include <algorithm>

#include "ops/product_flops.h"

namespace deft::graph {

namespace {

double bytes_of(const Meta& m) { return static_cast<double>(m.numel) * static_cast<double>(size_of(m.dtype)); }

double flops_of(const Graph& g, const Instruction& x) {
  const Meta* metas[kProductInputs] = {};
  for (size_t i = 0; i < std::min<size_t>(x.inputs.size(), kProductInputs); ++i)
    if (x.inputs[i] != kNone) metas[i] = &g.value(x.inputs[i]).meta;
  return product_flops(*x.def, metas, g.value(x.outputs[0]).meta, x.params.data());
}

}  // namespace

Work work_of(const Graph& graph, const Instruction& x) {
  Work w;
  if (x.action == Action::view) return w;
  for (ValueId id : x.inputs)
    if (id != kNone) w.bytes += bytes_of(graph.value(id).meta);
  for (ValueId id : x.outputs) w.bytes += bytes_of(graph.value(id).meta);
  if (!x.outputs.empty()) w.flops = flops_of(graph, x);
  return w;
}

double flops_per_ns(DType dtype) { return size_of(dtype) == 8 ? 75.0 / 2 : dtype == DType::bf16 ? 275 : 75; }
double pack_ns(int64_t elements, DType dtype) {
  return static_cast<double>(elements) * (dtype == DType::bf16 ? 0.17 : 0.28);
}

double nanoseconds(const Work& work, DType dtype) {
  return kCallNs + std::max(work.bytes / kBytesPerNs, work.flops / flops_per_ns(dtype));
}
double nanoseconds(const Graph& graph, const Instruction& x) {
  if (x.action == Action::view || x.outputs.empty()) return 0;
  // By the type of the inputs: a 16-bit matmul may store its sums in f32.
  const ValueId first = !x.inputs.empty() && x.inputs[0] != kNone ? x.inputs[0] : x.outputs[0];
  return nanoseconds(work_of(graph, x), graph.value(first).meta.dtype);
}

}  // namespace deft::graph
