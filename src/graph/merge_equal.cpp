#include <fmt/format.h>

#include <cstring>
#include <map>
#include <tuple>

#include "graph/passes.h"

namespace deft::graph {

namespace {

// The inputs of an instruction, with the number of earlier writes to each buffer.
using Key = std::tuple<const OpDef*, std::vector<std::pair<ValueId, int>>, std::vector<std::byte>>;

// Written again later, so that two results may not share memory.
std::vector<bool> ever_written(const Graph& graph) {
  std::vector<bool> written(graph.buffers.size(), false);
  for (const Instruction& x : graph.instructions)
    for (ValueId id : rewritten_values(x)) written[static_cast<size_t>(graph.value(id).buffer)] = true;
  return written;
}

class EqualMerger {
 public:
  explicit EqualMerger(Graph& graph) : g_(graph), written_(ever_written(graph)), writes_(graph.buffers.size(), 0) {
    for (size_t i = 0; i < graph.values.size(); ++i) same_.push_back(static_cast<ValueId>(i));
    result_.assign(graph.buffers.size(), false);
    for (ValueId id : graph.outputs) is_result(id) = true;
  }

  size_t run() {
    std::vector<Instruction> kept;
    for (Instruction& x : g_.instructions) {
      for (ValueId& id : x.inputs)
        if (id != kNone) id = same_[static_cast<size_t>(id)];
      if (x.action == Action::write) x.outputs[0] = x.inputs[0];
      if (x.action == Action::make && is_pure(x) && replace(x)) {
        ++merged_;
        continue;
      }
      for (ValueId id : rewritten_values(x)) ++writes_[static_cast<size_t>(g_.value(id).buffer)];
      if (x.action == Action::view) move(g_.values[static_cast<size_t>(x.outputs[0])]);
      kept.push_back(std::move(x));
    }
    g_.instructions = std::move(kept);
    for (ValueId& id : g_.outputs) id = same_[static_cast<size_t>(id)];
    for (Value& v : g_.values) move(v);  // other forms that no view op made: detach()
    return merged_;
  }

 private:
  bool is_pure(const Instruction& x) const {
    for (ValueId id : x.outputs)
      if (written_[static_cast<size_t>(g_.value(id).buffer)]) return false;
    return x.def->infer && !x.def->redraw && !x.again && rewritten_values(x).empty();
  }
  bool replace(const Instruction& x) {
    std::vector<std::pair<ValueId, int>> reads;
    for (ValueId id : x.inputs)
      reads.emplace_back(id, id == kNone ? 0 : writes_[static_cast<size_t>(g_.value(id).buffer)]);
    auto [at, added] = seen_.try_emplace(Key{x.def, std::move(reads), x.params}, x.outputs);
    if (added || shares_results(x.outputs, at->second)) return false;
    for (size_t i = 0; i < x.outputs.size(); ++i) {
      if (is_result(x.outputs[i])) is_result(at->second[i]) = true;
      same_[static_cast<size_t>(x.outputs[i])] = at->second[i];
      moved_[g_.value(x.outputs[i]).buffer] = g_.value(at->second[i]).buffer;
    }
    return true;
  }
  // Two results of the program are two tensors, each of which the caller may write.
  bool shares_results(const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (is_result(a[i]) && is_result(b[i])) return true;
    return false;
  }
  std::vector<bool>::reference is_result(ValueId id) { return result_[static_cast<size_t>(g_.value(id).buffer)]; }
  // A view of a merged result becomes a view of the other result's memory.
  void move(Value& v) {
    if (auto to = moved_.find(v.buffer); to != moved_.end()) v.buffer = to->second;
  }

  Graph& g_;
  std::vector<bool> written_;
  std::vector<int> writes_;
  std::vector<bool> result_;  // buffers that the caller gets
  std::vector<ValueId> same_;
  std::map<Key, std::vector<ValueId>> seen_;
  std::map<BufferId, BufferId> moved_;
  size_t merged_ = 0;
};

}  // namespace

void merge_equal(Graph& graph, Notes& notes) {
  if (size_t merged = EqualMerger(graph).run()) notes.done.push_back(fmt::format("merge_equal: {} results", merged));
}

}  // namespace deft::graph
