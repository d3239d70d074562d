#include <fmt/format.h>

#include <algorithm>

#include "core/grad_mode.h"
#include "graph/passes.h"

namespace deft::graph {

namespace {

class ConstantFolder {
 public:
  ConstantFolder(Graph& graph, std::vector<Dependency>& dependencies) : g_(graph), dependencies_(dependencies) {
    fixed_.assign(graph.buffers.size(), true);
    for (const Instruction& x : graph.instructions)
      for (ValueId id : rewritten_values(x)) is_fixed(id) = false;
    for (ValueId id : graph.outputs) is_fixed(id) = false;  // each run gives the caller a new one
  }

  size_t run() {
    std::vector<Instruction> kept;
    size_t folded = 0;
    for (Instruction& x : g_.instructions) {
      if (x.action == Action::make && can_fold(x)) {
        fold(x);
        ++folded;
      } else {
        kept.push_back(std::move(x));
      }
    }
    g_.instructions = std::move(kept);
    return folded;
  }

 private:
  std::vector<bool>::reference is_fixed(ValueId id) { return fixed_[static_cast<size_t>(g_.value(id).buffer)]; }
  bool can_fold(const Instruction& x) {
    if (!x.def->infer || x.inputs.empty() || x.def->redraw || !rewritten_values(x).empty()) return false;
    for (ValueId id : x.inputs) {
      if (id == kNone) continue;
      const Buffer& b = g_.buffer_of(id);
      if (b.kind != BufferKind::constant || b.written) return false;
    }
    for (ValueId id : x.outputs)
      if (!is_fixed(id)) return false;
    return true;
  }
  void fold(Instruction& x) {
    NoGradGuard no_grad;
    ExecContext as_captured = context();
    as_captured.bits &= ~static_cast<uint32_t>(kAutocast);  // conversions are instructions of their own
    ContextGuard guard(as_captured);
    std::vector<Tensor> in;
    for (ValueId id : x.inputs) {
      in.push_back(id == kNone ? Tensor() : on_memory_of(g_.buffer_of(id).constant, g_.value(id)));
      if (id != kNone) depend(g_.buffer_of(id));
    }
    std::vector<const Tensor*> pointers;
    for (const Tensor& t : in) pointers.push_back(&t);
    Tensor out[kMaxOutputs];
    x.params.resize(std::max<size_t>(1, x.params.size()));
    dispatch(*x.def, pointers.data(), static_cast<int>(pointers.size()), out, x.params.data(), x.site);
    for (size_t i = 0; i < x.outputs.size(); ++i) {
      Buffer& b = g_.buffers[static_cast<size_t>(g_.value(x.outputs[i]).buffer)];
      b = {BufferKind::constant, out[i].impl()->storage->nbytes, out[i], false};
      own_.push_back(out[i].impl()->storage);
    }
  }
  // Results of folding change only with what they were made from.
  void depend(const Buffer& b) {
    Storage* s = b.constant.impl()->storage;
    if (std::find(own_.begin(), own_.end(), s) != own_.end() || b.constant.meta().wrapped_number) return;
    for (const Dependency& d : dependencies_)
      if (d.tensor.impl()->storage == s) return;
    dependencies_.push_back({b.constant, s->stamp()});
  }

  Graph& g_;
  std::vector<Dependency>& dependencies_;
  std::vector<bool> fixed_;  // buffers whose bytes may come from here
  std::vector<Storage*> own_;
};

}  // namespace

void fold_constants(Graph& graph, std::vector<Dependency>& dependencies, Notes& notes) {
  if (size_t folded = ConstantFolder(graph, dependencies).run())
    notes.done.push_back(fmt::format("fold_constants: {} results", folded));
}

}  // namespace deft::graph
