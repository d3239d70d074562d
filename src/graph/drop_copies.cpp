#include "graph/drop_copies.h"

#include <algorithm>

#include "graph/regions.h"
#include "graph/uses.h"
#include "ops/copy.h"

namespace deft::graph {

namespace {

class Dropper {
 public:
  explicit Dropper(Graph& graph) : g_(graph), touched_(graph.buffers.size()), is_result_(graph.buffers.size(), false) {
    for (size_t i = 0; i < graph.instructions.size(); ++i) {
      const Instruction& x = graph.instructions[i];
      if (x.action == Action::view) continue;
      for (const auto* list : {&x.inputs, &x.outputs})
        for (ValueId id : *list)
          if (id != kNone) add(touched_[index(graph.value(id).buffer)], i);
    }
    for (ValueId id : graph.outputs) is_result_[index(graph.value(id).buffer)] = true;
  }

  size_t run() {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      const Instruction& x = g_.instructions[i];
      if (x.def != &op_def<Clone> || x.action != Action::make || !g_.value(x.outputs[0]).meta.device.is_cpu()) continue;
      if (!make_in_place_of(i) && !read_instead_of(i)) continue;
      g_.instructions[i].def = nullptr;
      ++dropped_;
    }
    if (dropped_) remove_taken(g_);
    return dropped_;
  }

 private:
  static void add(std::vector<size_t>& list, size_t place) {
    if (list.empty() || list.back() != place) list.push_back(place);
  }
  const std::vector<size_t>& touched(ValueId id) const { return touched_[index(g_.value(id).buffer)]; }
  // Removed copies touch nothing.
  bool is_there(size_t i) const { return g_.instructions[i].def != nullptr; }

  // The copy is the only reader of its source: the op of the source computes the copy directly.
  bool make_in_place_of(size_t at) {
    const ValueId source = g_.instructions[at].inputs[0], copy = g_.instructions[at].outputs[0];
    const Meta &s = g_.value(source).meta, &c = g_.value(copy).meta;
    if (g_.buffer_of(source).kind != BufferKind::temporary || is_result_[index(g_.value(source).buffer)]) return false;
    if (!(s.strides == c.strides) || !c.is_dense() || g_.buffer_of(source).bytes != g_.buffer_of(copy).bytes)
      return false;
    const std::vector<size_t>& places = touched(source);
    if (places.size() != 2 || places[1] != at || !is_there(places[0])) return false;
    Instruction& maker = g_.instructions[places[0]];
    if (maker.action != Action::make || !maker.effects.empty() || maker.outputs.size() != 1 ||
        maker.outputs[0] != source)
      return false;
    maker.outputs[0] = copy;
    remove_views(source);
    std::vector<size_t>& later = touched_[index(g_.value(copy).buffer)];
    later.insert(later.begin(), places[0]);
    return true;
  }

  // The copy is never written, nor the source before the last read of the copy. The copy of a number is no number, and
  // takes part in promotion.
  bool read_instead_of(size_t at) {
    const ValueId source = g_.instructions[at].inputs[0], copy = g_.instructions[at].outputs[0];
    if (is_result_[index(g_.value(copy).buffer)] || g_.value(source).meta.wrapped_number) return false;
    size_t last = at;
    for (size_t i : touched(copy)) {
      if (i == at || !is_there(i)) continue;
      if (!reads_any_layout(g_.instructions[i], copy)) return false;
      last = std::max(last, i);
    }
    for (size_t i : touched(source))
      if (i > at && i <= last && is_there(i) && writes_part_of(g_.instructions[i], source)) return false;
    for (size_t i : touched(copy)) {
      if (i == at || !is_there(i)) continue;
      std::replace(g_.instructions[i].inputs.begin(), g_.instructions[i].inputs.end(), copy, source);
      add_sorted(touched_[index(g_.value(source).buffer)], i);
    }
    remove_views(copy);
    return true;
  }
  // Its memory is no longer written, so views of it, which have no readers, are removed.
  void remove_views(ValueId of) {
    for (Instruction& x : g_.instructions)
      if (x.def && x.action == Action::view && g_.value(x.inputs[0]).buffer == g_.value(of).buffer) x.def = nullptr;
  }
  static void add_sorted(std::vector<size_t>& list, size_t place) {
    auto at = std::lower_bound(list.begin(), list.end(), place);
    if (at == list.end() || *at != place) list.insert(at, place);
  }
  bool reads_any_layout(const Instruction& x, ValueId copy) const {
    const BufferId buffer = g_.value(copy).buffer;
    if (!x.def->elementwise || !(g_.value(x.outputs[0]).meta.sizes == g_.value(copy).meta.sizes)) return false;
    auto other = [&](ValueId id) { return id != kNone && id != copy && g_.value(id).buffer == buffer; };
    return std::none_of(x.inputs.begin(), x.inputs.end(), other) && g_.value(x.outputs[0]).buffer != buffer;
  }
  bool writes_part_of(const Instruction& x, ValueId source) const {
    auto written = written_values(x);
    return std::any_of(written.begin(), written.end(), [&](ValueId id) {
      return g_.value(id).buffer == g_.value(source).buffer && !are_apart(g_.value(id), g_.value(source));
    });
  }

  Graph& g_;
  std::vector<std::vector<size_t>> touched_;  // where each buffer is read or written
  std::vector<bool> is_result_;
  size_t dropped_ = 0;
};

}  // namespace

size_t drop_copies(Graph& graph) { return Dropper(graph).run(); }

}  // namespace deft::graph
