// Casts that undo each other go where nothing is lost between them: to a wider type and back, as autocast makes them
// around ops that the user had converted for. Same bits. Casts of constants are fold_constants' work.
#include <fmt/format.h>

#include <algorithm>

#include "graph/edit.h"
#include "graph/passes.h"
#include "ops/copy.h"

namespace deft::graph {

namespace {

// Every value of `from` is one of `to`.
bool is_exact(DType from, DType to) {
  if (from == to) return true;
  if (!is_floating(from) || !is_floating(to)) return false;
  return to == DType::f64 || (to == DType::f32 && size_of(from) == 2);
}

class Assigner {
 public:
  Assigner(Graph& graph, Notes& notes) : g_(graph), notes_(notes), source_(graph.values.size(), kNone) {
    fixed_.assign(graph.buffers.size(), true);
    alone_.assign(graph.buffers.size(), 0);
    std::vector<bool> used(graph.values.size(), false);
    for (const Instruction& x : graph.instructions) {
      if (x.action == Action::write || x.action == Action::call)
        for (ValueId id : written_values(x)) fixed_[buffer(id)] = false;
      for (ValueId id : x.inputs)
        if (id != kNone) used[static_cast<size_t>(id)] = true;
      for (ValueId id : x.outputs) used[static_cast<size_t>(id)] = true;
      if (x.action == Action::call)
        for (ValueId id : x.inputs)
          if (id != kNone) alone_[buffer(id)] = 2;
    }
    for (size_t i = 0; i < used.size(); ++i) alone_[buffer(static_cast<ValueId>(i))] += used[i];
    for (ValueId id : graph.outputs) alone_[buffer(id)] = 2;
  }

  void run() {
    std::vector<ValueId> same(g_.values.size());
    for (size_t i = 0; i < same.size(); ++i) same[i] = static_cast<ValueId>(i);
    std::vector<Instruction> kept;
    for (Instruction& x : g_.instructions) {
      for (ValueId& id : x.inputs)
        if (id != kNone) id = same[static_cast<size_t>(id)];
      if (x.def != &op_def<Cast> || x.action != Action::make || !visit(x, same)) kept.push_back(std::move(x));
    }
    g_.instructions = std::move(kept);
    if (gone_ + shorter_)
      notes_.done.push_back(fmt::format("assign_precision: {} casts gone, {} from the first type", gone_, shorter_));
    if (rounds_)
      notes_.left.push_back(
          fmt::format("assign_precision: {} casts back to a wider type: they round between", rounds_));
  }

 private:
  size_t buffer(ValueId id) const { return static_cast<size_t>(g_.value(id).buffer); }

  // True where the cast is not needed: its readers read its source.
  bool visit(Instruction& x, std::vector<ValueId>& same) {
    const ValueId in = x.inputs[0], out = x.outputs[0];
    if (const ValueId first = source_[static_cast<size_t>(in)]; first != kNone) {
      const Meta &a = g_.value(first).meta, &b = g_.value(in).meta, &c = g_.value(out).meta;
      if (!is_exact(a.dtype, b.dtype)) {
        rounds_ += is_exact(b.dtype, c.dtype);
      } else if (a.dtype == c.dtype && a.strides == c.strides && alone_[buffer(out)] == 1 && fixed_[buffer(out)]) {
        same[static_cast<size_t>(out)] = first;
        return ++gone_, true;
      } else {
        x.inputs[0] = first;
        ++shorter_;
      }
    }
    if (fixed_[buffer(x.inputs[0])] && fixed_[buffer(out)] && !g_.buffer_of(x.inputs[0]).written)
      source_[static_cast<size_t>(out)] = x.inputs[0];
    return false;
  }

  Graph& g_;
  Notes& notes_;
  std::vector<ValueId> source_;  // what a cast's result was made from, where neither is ever written
  std::vector<bool> fixed_;      // buffers that are never written after their first value
  std::vector<int> alone_;       // values in use on each buffer; results count as more
  size_t gone_ = 0, shorter_ = 0, rounds_ = 0;
};

}  // namespace

void assign_precision(Graph& graph, Notes& notes) {
  Assigner(graph, notes).run();
  Notes quiet;  // first casts without readers
  remove_unused(graph, quiet);
}

}  // namespace deft::graph
