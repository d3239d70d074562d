// Convolutions read and write NHWC images: their values get a twin in that layout, and ops that keep the layout
// of their inputs do so by their own rules. Conversions stand where images come in and where something needs the
// old layout: views, results, writes through other values. Rounds differently.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/cost.h"
#include "graph/edit.h"
#include "graph/passes.h"
#include "ops/conv.h"
#include "ops/copy.h"

namespace deft::graph {

namespace {

// Converting 3.2 MB takes 0.45 ms. ResNet-50's convolutions of one image take 1.01 to 1.19 times as long in NCHW as in
// NHWC in f32, and up to 1.7 times as long in bf16, 1.14 times in all.
constexpr double kConvertBytesPerNs = 14;
double gain_of(DType dtype) { return dtype == DType::f32 ? 0.06 : size_of(dtype) == 2 ? 0.14 : 0; }

class Layout {
 public:
  explicit Layout(const Graph& graph)
      : g_(graph), places_(graph.buffers.size(), 0), outside_(graph.buffers.size(), false) {
    std::vector<bool> used(g_.values.size(), false);
    for (const Instruction& x : g_.instructions) {
      for (ValueId id : x.inputs)
        if (id != kNone) used[static_cast<size_t>(id)] = true;
      for (ValueId id : x.outputs) used[static_cast<size_t>(id)] = true;
      if (x.action == Action::call)
        for (ValueId id : x.inputs)
          if (id != kNone) outside_[static_cast<size_t>(g_.value(id).buffer)] = true;
    }
    for (size_t i = 0; i < used.size(); ++i) places_[static_cast<size_t>(g_.values[i].buffer)] += used[i];
    for (ValueId id : g_.outputs) outside_[static_cast<size_t>(g_.value(id).buffer)] = true;
  }

  void run() {
    std::vector<Instruction> old = std::move(g_.instructions);
    g_.instructions.clear();
    for (Instruction& x : old) {
      if (x.action == Action::make && x.def->infer) {
        make(std::move(x));
      } else {
        if (x.action == Action::write && is_simple(x.outputs[0]) && twins_.contains(x.outputs[0])) {
          x.inputs[0] = x.outputs[0] = twins_.at(x.outputs[0]);
        }
        for (ValueId id : written_values(x)) forget(g_.value(id).buffer);
        if (x.action == Action::write)
          for (ValueId& id : x.inputs) id = twin_or_same(id);
        g_.instructions.push_back(std::move(x));
      }
    }
  }

  Graph& graph() { return g_; }
  size_t convolutions = 0, in = 0, out = 0, inside = 0;
  double gain = 0, cost = 0;

 private:
  // Only instructions that name this value reach its buffer.
  bool is_simple(ValueId id) const {
    const auto b = static_cast<size_t>(g_.value(id).buffer);
    return b >= places_.size() || (places_[b] == 1 && !outside_[b] && g_.buffers[b].kind == BufferKind::temporary);
  }
  ValueId twin_or_same(ValueId id) const {
    auto at = twins_.find(id);
    return at == twins_.end() ? id : at->second;
  }
  void forget(BufferId written) {
    std::erase_if(twins_, [&](const auto& t) { return g_.value(t.first).buffer == written; });
  }
  static bool is_last(const Meta& m) { return !m.contiguous && m.rank() >= 3 && m.is_channels_last(); }

  ValueId add(const Meta& m) {
    return g_.add_value(m, g_.add_buffer(BufferKind::temporary, static_cast<size_t>(m.numel) * size_of(m.dtype)));
  }
  void convert(ValueId from, ValueId to, MemoryFormat format, const Site& site) {
    Instruction x{&op_def<Clone>, Action::make, {from}, {to}, {}, site};
    set_params(x, Clone::Params{format});
    g_.instructions.push_back(std::move(x));
    cost += convert_ns(g_.value(to).meta);
  }
  static double convert_ns(const Meta& m) {
    return kCallNs + 2 * static_cast<double>(m.numel) * static_cast<double>(size_of(m.dtype)) / kConvertBytesPerNs;
  }

  // Whether a convolution reads an NCHW image.
  bool reads_nchw(const Instruction& x) const {
    const Meta& m = g_.value(x.inputs[0]).meta;
    const auto p = params_of<ConvGeometry>(x);
    return !twins_.contains(x.inputs[0]) && !p.channels_last && p.groups == 1 && m.device.is_cpu() &&
           gain_of(m.dtype) > 0 && m.contiguous && m.numel > 0;
  }
  // An image of one channel is in both layouts: then a parameter tells the convolution.
  bool write_last(Instruction& x) {
    if (!reads_nchw(x) || g_.value(x.inputs[0]).meta.sizes[1] != 1) return false;
    auto p = params_of<ConvGeometry>(x);
    p.channels_last = true;
    set_params(x, p);
    return true;
  }
  void bring_in(const Instruction& x) {
    const ValueId id = x.inputs[0];
    const Meta& m = g_.value(id).meta;
    if (!reads_nchw(x) || m.sizes[1] == 1) return;
    Meta last = m;
    last.set_strides(channels_last_strides(m.sizes));
    if (last.contiguous) return;  // one pixel: NCHW and NHWC are the same
    const ValueId twin = add(last);
    convert(id, twin, MemoryFormat::channels_last, x.site);
    ++in;
    twins_[id] = twin;
  }

  void make(Instruction x) {
    if (x.def == &op_def<Convolution>) bring_in(x);
    const bool transposed = x.def == &op_def<Convolution> && write_last(x);
    std::vector<ValueId> inputs = x.inputs;
    for (ValueId& id : inputs) id = twin_or_same(id);
    if (inputs == x.inputs && !transposed) {
      g_.instructions.push_back(std::move(x));
      return;
    }
    std::vector<const Meta*> metas;
    static const Meta undefined = Meta::undefined();
    for (ValueId id : inputs) metas.push_back(id == kNone ? &undefined : &g_.value(id).meta);
    Meta made[kMaxOutputs];
    std::vector<std::byte> params = x.params;
    params.resize(std::max<size_t>(1, params.size()));
    x.def->infer(metas.data(), static_cast<int>(metas.size()), params.data(), made);
    params.resize(x.params.size());
    if (x.def == &op_def<Convolution>) count(x, made[0]);
    if (!is_last(made[0])) cost += convert_ns(*metas[0]), ++inside;  // it may copy what it reads
    x.inputs = std::move(inputs);
    x.params = std::move(params);
    const std::vector<ValueId> wanted = x.outputs;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Meta& old = g_.value(wanted[i]).meta;
      const bool same = old.strides == made[i].strides || (old.contiguous && made[i].contiguous);
      if (!same) x.outputs[i] = add(made[i]);
    }
    note_effects(x);
    const std::vector<ValueId> found = x.outputs;
    const Site site = x.site;
    g_.instructions.push_back(std::move(x));
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (found[i] == wanted[i]) continue;
      twins_[wanted[i]] = found[i];
      if (is_simple(wanted[i])) continue;
      convert(found[i], wanted[i], MemoryFormat::contiguous, site);
      ++out;
    }
  }
  void count(const Instruction& x, const Meta& y) {
    if (!is_last(y)) return;
    ++convolutions;
    gain += gain_of(y.dtype) * nanoseconds(g_, x);
  }

  Graph g_;
  std::vector<int> places_;           // values in use on each buffer
  std::vector<bool> outside_;         // buffers of results, and those that code outside reads
  std::map<ValueId, ValueId> twins_;  // with channels innermost
};

}  // namespace

void assign_layout(Graph& graph, Notes& notes, bool weigh) {
  auto wants = [](const Instruction& x) {
    return x.def == &op_def<Convolution> && !params_of<ConvGeometry>(x).channels_last;
  };
  if (std::none_of(graph.instructions.begin(), graph.instructions.end(), wants)) return;
  Layout layout(graph);
  layout.run();
  if (layout.convolutions == 0) return;
  std::string what = fmt::format(
      "assign_layout: {} convolutions with channels innermost, {} conversions in, {} out, "
      "{} inside other ops: {:.0f} us saved for {:.0f}",
      layout.convolutions, layout.in, layout.out, layout.inside, layout.gain / 1e3, layout.cost / 1e3);
  if (weigh && layout.gain <= layout.cost) {
    notes.left.push_back(std::move(what));
    return;
  }
  graph = std::move(layout.graph());
  notes.done.push_back(std::move(what));
}

}  // namespace deft::graph
