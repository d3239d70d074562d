// Weights that a training step under autocast reads in bf16: the optimizer of the step rounds them while it updates
// them (core/rounded_copy.h), and the next step finds them so. BERT-base saves a pass over 85 million weights a step.
#include <fmt/format.h>

#include <map>
#include <string>

#include "graph/passes.h"
#include "ops/copy.h"

namespace deft::graph {

namespace {

// On CPUs: below, asking whether a copy still holds takes as long as a new one. Devices wait for a launch.
constexpr int64_t kLeastElements = 4096;

class Keeper {
 public:
  Keeper(Graph& graph, Notes& notes, bool weigh)
      : g_(graph), notes_(notes), weigh_(weigh), reads_(graph.buffers.size()), writes_(graph.buffers.size()) {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      const Instruction& x = g_.instructions[i];
      if (x.action == Action::view) continue;
      for (ValueId id : x.inputs)
        if (id != kNone) reads_[buffer(id)].push_back(i);
      for (ValueId id : written_values(x)) writes_[buffer(id)].push_back(i);
    }
    for (ValueId id : g_.outputs) reads_[buffer(id)].push_back(g_.instructions.size());
  }

  void run() {
    size_t count = 0;
    int64_t elements = 0;
    std::map<std::string, size_t> left;
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      if (!is_cast_of_trained(g_.instructions[i])) continue;
      if (const char* why = why_none(i)) {
        ++left[why];
        continue;
      }
      g_.buffers[buffer(g_.instructions[i].outputs[0])].kept = true;
      elements += meta(g_.instructions[i].outputs[0]).numel;
      ++count;
    }
    if (count)
      notes_.done.push_back(fmt::format("keep_casts: {} weights, {} bytes, are rounded by the optimizer", count,
                                        elements * static_cast<int64_t>(sizeof(BFloat16))));
    for (const auto& [why, n] : left) notes_.left.push_back(fmt::format("keep_casts: {} weights: {}", n, why));
  }

 private:
  size_t buffer(ValueId id) const { return static_cast<size_t>(g_.value(id).buffer); }
  const Meta& meta(ValueId id) const { return g_.value(id).meta; }

  // To bf16, of a constant that code outside the graph writes.
  bool is_cast_of_trained(const Instruction& x) const {
    if (x.def != &op_def<Cast> || x.action != Action::make) return false;
    const Buffer& from = g_.buffer_of(x.inputs[0]);
    if (from.kind != BufferKind::constant || !from.written) return false;
    return meta(x.inputs[0]).dtype == DType::f32 && meta(x.outputs[0]).dtype == DType::bf16;
  }
  // Casts of several weights may share a buffer (merge_siblings): all of them are kept, or none.
  const char* why_none(size_t at) const {
    for (size_t i : writes_[buffer(g_.instructions[at].outputs[0])]) {
      if (!is_cast_of_trained(g_.instructions[i])) return "the cast is written";
      if (const char* why = why_not(i)) return why;
    }
    return nullptr;
  }
  const char* why_not(size_t at) const {
    const Instruction& x = g_.instructions[at];
    const Meta &from = meta(x.inputs[0]), &to = meta(x.outputs[0]);
    if (weigh_ && to.device.is_cpu() && to.numel < kLeastElements) return "too small to pay";
    if (!from.is_dense() || from.strides != to.strides) return "the cast lies in another order";
    const size_t weight = buffer(x.inputs[0]), copy = buffer(x.outputs[0]);
    for (size_t i : writes_[weight])
      if (g_.instructions[i].action != Action::call) return "an op of the graph writes them";
    if (reads_[copy].empty() || reads_[copy].back() == g_.instructions.size()) return "the cast is a result";
    for (size_t i : writes_[weight]) {
      if (i > at && i <= reads_[copy].back()) return "the cast is read after the step";
      if (i < at && !to.device.is_cpu()) return "the step comes before the cast";  // which runs before all recordings
    }
    return nullptr;
  }

  Graph& g_;
  Notes& notes_;
  bool weigh_;
  std::vector<std::vector<size_t>> reads_, writes_;  // by buffer: instructions, in order
};

}  // namespace

void keep_casts(Graph& graph, Notes& notes, bool weigh) { Keeper(graph, notes, weigh).run(); }

}  // namespace deft::graph
