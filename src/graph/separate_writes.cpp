#include "graph/separate_writes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "core/op.h"
#include "graph/regions.h"

namespace deft::graph {

namespace {

// What a part leaves of the value it is a slice of: `length` from `start` on in dimension `dim`; -1: all of it.
struct Slice {
  int dim = -1;
  int64_t start = 0, length = 0;
};
std::optional<Slice> slice_of(const Value& whole, const Value& part) {
  const Meta &w = whole.meta, &p = part.meta;
  if (w.dtype != p.dtype || w.rank() != p.rank()) return {};
  Slice s;
  for (int d = 0; d < w.rank(); ++d) {
    if (w.sizes[d] > 1 && w.strides[d] != p.strides[d]) return {};
    if (w.sizes[d] == p.sizes[d]) continue;
    if (s.dim >= 0 || p.sizes[d] > w.sizes[d] || w.strides[d] <= 0) return {};
    s = {d, 0, p.sizes[d]};
  }
  const int64_t bytes = part.offset - whole.offset;
  if (s.dim < 0) return bytes == 0 ? std::optional(s) : std::nullopt;
  const int64_t step = w.strides[s.dim] * element_bytes(whole);
  s.start = bytes / step;
  if (bytes < 0 || bytes % step != 0 || s.start + s.length > w.sizes[s.dim]) return {};
  return s;
}

class Separator {
 public:
  explicit Separator(Graph& graph)
      : g_(graph), touched_(graph.buffers.size()), is_result_(graph.buffers.size(), false) {
    std::vector<std::set<ValueId>> values(graph.buffers.size());
    for (size_t i = 0; i < graph.instructions.size(); ++i) {
      const Instruction& x = graph.instructions[i];
      if (x.action == Action::view) continue;
      each_value(x, [&](ValueId id) {
        auto& places = touched_[index(graph.value(id).buffer)];
        if (places.empty() || places.back() != i) places.push_back(i);
        values[index(graph.value(id).buffer)].insert(id);
      });
    }
    for (ValueId id : graph.outputs) is_result_[index(graph.value(id).buffer)] = true;
    for (const auto& all : values) has_parts_.push_back(all.size() > 1);
  }

  // The last write first: then a later write to the same place no longer blocks an earlier one.
  void run() {
    for (Instruction& x : g_.instructions) now_.push_back({std::move(x)});
    for (size_t i = now_.size(); i-- > 0;)
      if (may_move(now_[i][0])) separate(i);
    g_.instructions.clear();
    for (std::vector<Instruction>& list : now_)
      std::move(list.begin(), list.end(), std::back_inserter(g_.instructions));
  }

 private:
  struct Part {
    ValueId value;
    Slice slice;
  };

  template <class F>
  static void each_value(const Instruction& x, const F& f) {
    for (ValueId id : x.inputs)
      if (id != kNone) f(id);
    for (ValueId id : x.outputs) f(id);
  }

  bool may_move(const Instruction& x) const {
    if (x.action != Action::write || !x.def->elementwise || x.def->redraw) return false;
    const Value& v = g_.value(x.outputs[0]);
    const size_t buffer = index(v.buffer);
    if (buffer >= has_parts_.size() || !has_parts_[buffer] || is_result_[buffer]) return false;
    if (g_.buffers[buffer].kind != BufferKind::temporary || !v.meta.device.is_cpu() || v.meta.numel == 0) return false;
    if (std::count(x.inputs.begin(), x.inputs.end(), kNone) > 0) return false;
    return inferred(x).dtype == v.meta.dtype;
  }
  Meta inferred(const Instruction& x) const {
    std::vector<const Meta*> in;
    for (ValueId id : x.inputs) in.push_back(&g_.value(id).meta);
    std::vector<std::byte> params = x.params;
    params.resize(std::max<size_t>(1, params.size()));
    Meta out;
    x.def->infer(in.data(), static_cast<int>(in.size()), params.data(), &out);
    return out;
  }

  // The parts of what instruction `at` writes that later ones touch; none where one of these is no elementwise op, or
  // touches the parts of others.
  std::vector<Part> parts_after(size_t at) const {
    const Value& whole = g_.value(now_[at][0].outputs[0]);
    std::vector<Part> parts;
    bool good = true;
    for (size_t i : touched_[index(whole.buffer)]) {
      if (i <= at) continue;
      for (const Instruction& x : now_[i]) each_value(x, [&](ValueId id) { good = good && fits(x, id, whole, parts); });
      if (!good) return {};
    }
    return parts;
  }
  bool fits(const Instruction& x, ValueId id, const Value& whole, std::vector<Part>& parts) const {
    const Value& v = g_.value(id);
    if (v.buffer != whole.buffer || are_apart(v, whole)) return true;
    if (!x.def->elementwise || !(g_.value(x.outputs[0]).meta.sizes == v.meta.sizes)) return false;
    for (const Part& p : parts) {
      if (same_place(g_.value(p.value), v)) return true;
      if (!are_apart(g_.value(p.value), v)) return false;
    }
    std::optional<Slice> slice = slice_of(whole, v);
    if (slice) parts.push_back({id, *slice});
    return slice.has_value();
  }

  void separate(size_t at) {
    const std::vector<Part> parts = parts_after(at);
    if (parts.empty()) return;
    const Instruction x = now_[at][0];
    const Shape whole = g_.value(x.outputs[0]).meta.sizes;
    std::vector<Instruction> made;
    for (const Part& p : parts) {
      const Value old = g_.value(p.value);
      Instruction part = x;
      part.action = Action::make;
      for (ValueId& id : part.inputs) id = same_place(g_.value(id), old) ? id : sliced(id, whole, p.slice);
      const Meta m = Meta::dense(old.meta.sizes, old.meta.dtype, old.meta.device);
      const ValueId own = g_.add_value(m, g_.add_buffer(BufferKind::temporary, index_bytes(m)));
      part.outputs = {own};
      made.push_back(std::move(part));
      for (size_t i : touched_[index(old.buffer)])
        for (Instruction& later : now_[i])
          if (i > at) rename(later, old, own);
    }
    now_[at] = std::move(made);
  }
  static size_t index_bytes(const Meta& m) { return static_cast<size_t>(m.numel) * size_of(m.dtype); }

  // That part of an operand which goes with the slice of a result of sizes `whole`.
  ValueId sliced(ValueId id, const Shape& whole, const Slice& s) {
    Value v = g_.value(id);
    const int dim = s.dim - (whole.size() - v.meta.rank());
    if (s.dim < 0 || dim < 0 || v.meta.sizes[dim] == 1) return id;
    v.offset += s.start * v.meta.strides[dim] * element_bytes(v);
    v.meta.numel = v.meta.numel / v.meta.sizes[dim] * s.length;
    v.meta.sizes[dim] = s.length;
    v.meta.set_strides(Shape(v.meta.strides));
    return g_.add_value(v.meta, v.buffer, v.offset);
  }
  void rename(Instruction& x, const Value& old, ValueId to) const {
    for (auto* list : {&x.inputs, &x.outputs})
      for (ValueId& id : *list)
        if (id != kNone && g_.value(id).buffer == old.buffer && same_place(g_.value(id), old)) id = to;
  }

  Graph& g_;
  std::vector<std::vector<size_t>> touched_;  // where each buffer is read or written
  std::vector<bool> is_result_, has_parts_;
  std::vector<std::vector<Instruction>> now_;  // what each instruction is by now
};

}  // namespace

void separate_writes(Graph& graph) { Separator(graph).run(); }

}  // namespace deft::graph
