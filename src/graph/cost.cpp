#include "graph/cost.h"

#include <algorithm>

#include "ops/attention.h"
#include "ops/conv.h"
#include "ops/matmul.h"
#include "ops/packed_linear.h"

namespace deft::graph {

namespace {

double bytes_of(const Meta& m) { return static_cast<double>(m.numel) * static_cast<double>(size_of(m.dtype)); }

// Multiply-adds behind one element of the result.
double depth_of(const Graph& g, const Instruction& x) {
  auto size = [&](size_t input, int d) { return static_cast<double>(g.value(x.inputs[input]).meta.sizes[d]); };
  if (x.def == &op_def<Matmul>) return static_cast<double>(g.value(x.inputs[0]).meta.sizes.back());
  if (x.def == &op_def<Linear> || x.def == &op_def<FusedLinear>) return size(1, 1);
  if (x.def == &op_def<Convolution> || x.def == &op_def<FusedConvolution>) {
    const Meta& w = g.value(x.inputs[1]).meta;
    return w.sizes[0] ? static_cast<double>(w.numel / w.sizes[0]) : 0;
  }
  if (x.def == &op_def<ScaledDotProductAttention>) {
    const Meta &k = g.value(x.inputs[1]).meta, &v = g.value(x.inputs[2]).meta;
    double keys = static_cast<double>(k.sizes[k.rank() - 2]), features = static_cast<double>(k.sizes.back());
    return keys * (1 + features / std::max<double>(1, static_cast<double>(v.sizes.back())));
  }
  return 0;
}

}  // namespace

Work work_of(const Graph& graph, const Instruction& x) {
  Work w;
  if (x.action == Action::view) return w;
  for (ValueId id : x.inputs)
    if (id != kNone) w.bytes += bytes_of(graph.value(id).meta);
  for (ValueId id : x.outputs) w.bytes += bytes_of(graph.value(id).meta);
  if (x.def->info.cost == Cost::compute_bound && !x.outputs.empty())
    w.flops = 2 * depth_of(graph, x) * static_cast<double>(graph.value(x.outputs[0]).meta.numel);
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
  return nanoseconds(work_of(graph, x), graph.value(x.outputs[0]).meta.dtype);
}

}  // namespace deft::graph
