// Consecutive elementwise ops become one fused chain, one pass over memory. Always worth it: a pass and a kernel less.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "graph/drop_copies.h"
#include "graph/passes.h"
#include "graph/separate_writes.h"
#include "graph/uses.h"
#include "ops/elementwise_chain.h"
#include "ops/elementwise_gradient.h"
#include "ops/op_table.h"

namespace deft::graph {

namespace {

using Chain = ElementwiseChain;
static_assert(ElementwiseGradient::kParamBytes <= Chain::kParamBytes);

bool same_order(const Meta& a, const Meta& b) {
  return a.sizes == b.sizes && ((a.contiguous && b.contiguous) || (a.strides == b.strides && a.is_dense()));
}

// The period in elements with which the values of `in` repeat in the memory order of `out`: 0 never, 1 for a single
// value; -1 for any other broadcast than one value per place in the innermost dimension.
int64_t period_of(const Meta& in, const Meta& out) {
  if (in.device != out.device) return in.numel == 1 ? 1 : -1;  // a number next to tensors of a GPU
  if (same_order(in, out)) return 0;
  if (in.numel == 1) return 1;
  if (in.sizes == out.sizes) return out.contiguous && out.device.is_cpu() && Chain::rows_of(in).length > 0 ? 0 : -1;
  int inner = -1;
  for (int d = 0; d < out.rank(); ++d)
    if (out.sizes[d] > 1 && out.strides[d] == 1) inner = d;
  if (inner < 0) return -1;
  int shift = out.rank() - in.rank();
  if (inner < shift || in.sizes[inner - shift] != out.sizes[inner] || in.strides[inner - shift] != 1) return -1;
  return in.numel == out.sizes[inner] ? in.numel : -1;
}

// An instruction as a chain: of one step, or one that is a chain already.
struct Program {
  std::vector<ValueId> inputs;
  Chain::Params params;
};

class ChainFuser {
 public:
  ChainFuser(Graph& graph, Notes& notes) : g_(graph), uses_(graph), notes_(notes) {}

  void run() {
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      while (fuse_a_producer(i)) {
      }
    }
    remove_taken(g_);
    note_devices();
    if (fused_) notes_.done.push_back(fmt::format("fuse_elementwise: {} passes over memory saved", fused_));
  }

 private:
  void note_devices() {
    for (const Instruction& x : g_.instructions) {
      if (!one_by_one(x) || Chain::fuses_on(g_.value(x.outputs[0]).meta.device)) continue;
      notes_.left.push_back("fuse_elementwise: ops on a GPU stay single; NVRTC 12 or newer was not found");
      return;
    }
  }
  static bool one_by_one(const Instruction& x) {
    return x.def && (x.def->elementwise || x.def == &op_def<ElementwiseGradient>);
  }
  bool is_elementwise(const Instruction& x) const {
    if (!x.def || x.action == Action::view) return false;
    if (x.def == &op_def<Chain>) return true;
    if (!one_by_one(x) || !Chain::fuses_on(g_.value(x.outputs[0]).meta.device)) return false;
    if (x.def == &op_def<ElementwiseGradient>) return true;
    return x.def->params_bytes <= Chain::kParamBytes && x.inputs.size() <= Chain::kOperands && op_index(*x.def) >= 0 &&
           std::none_of(x.inputs.begin(), x.inputs.end(), [](ValueId id) { return id == kNone; });
  }

  std::optional<Program> program_of(const Instruction& x) const {
    Program p;
    p.inputs = x.inputs;
    if (x.def == &op_def<Chain>) {
      std::memcpy(&p.params, x.params.data(), sizeof p.params);
      return p;
    }
    const Meta& out = g_.value(x.outputs[0]).meta;
    Chain::Step& s = p.params.step[0];
    p.params.steps = 1;
    p.params.inputs = 0;
    p.inputs.clear();
    p.params.like = -1;
    s.stored = out.dtype;
    s.inputs = static_cast<uint8_t>(x.inputs.size());
    if (x.def == &op_def<ElementwiseGradient>) {
      ElementwiseGradient::Params gradient;
      std::memcpy(&gradient, x.params.data(), sizeof gradient);
      s.op = ~gradient.op;
      std::memcpy(s.params, gradient.params.data(), sizeof gradient.params);
    } else {
      s.op = op_index(*x.def);
      if (!x.params.empty()) std::memcpy(s.params, x.params.data(), x.params.size());
    }
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      int64_t period = period_of(g_.value(x.inputs[i]).meta, out);
      if (period < 0) return std::nullopt;
      s.in[i] = static_cast<uint8_t>(add_input(p, x.inputs[i], period));
    }
    if (p.params.like < 0) return std::nullopt;
    prefer_dense_like(p);
    return p;
  }
  // The result has the layout of `like`; where `like` has gaps between rows it is contiguous.
  void prefer_dense_like(Program& p) const {
    for (int i = p.params.like; i < p.params.inputs; ++i)
      if (p.params.period[i] == 0 && g_.value(p.inputs[static_cast<size_t>(i)]).meta.is_dense()) {
        p.params.like = i;
        return;
      }
  }
  int add_input(Program& p, ValueId id, int64_t period) const {
    for (size_t i = 0; i < p.inputs.size(); ++i)
      if (p.inputs[i] == id || same_number(p.inputs[i], id)) return static_cast<int>(i);
    int at = p.params.inputs++;
    p.inputs.push_back(id);
    if (at < Chain::kInputs) p.params.period[at] = period;
    if (period == 0 && p.params.like < 0) p.params.like = at;
    return at;
  }

  // Numbers in the program's text are constants without other owners.
  bool same_number(ValueId a, ValueId b) const {
    const Value &x = g_.value(a), &y = g_.value(b);
    if (!x.meta.wrapped_number || !y.meta.wrapped_number || x.meta.dtype != y.meta.dtype) return false;
    const Buffer &from = g_.buffer_of(a), &other = g_.buffer_of(b);
    if (from.kind != BufferKind::constant || other.kind != BufferKind::constant || from.written || other.written)
      return false;
    if (!from.constant.device().is_cpu() || !other.constant.device().is_cpu()) return false;
    return std::memcmp(from.constant.data_ptr(), other.constant.data_ptr(), size_of(x.meta.dtype)) == 0;
  }

  bool fuse_a_producer(size_t i) {
    const Instruction& consumer = g_.instructions[i];
    if (!is_elementwise(consumer)) return false;
    for (ValueId id : consumer.inputs) {
      int from = uses_.maker(id, i);
      if (from < 0 || !is_elementwise(g_.instructions[static_cast<size_t>(from)])) continue;
      if (try_fuse(static_cast<size_t>(from), i, id)) return true;
    }
    return false;
  }

  bool try_fuse(size_t from, size_t to, ValueId made) {
    Instruction &producer = g_.instructions[from], &consumer = g_.instructions[to];
    bool rewritten = consumer.action == Action::write && consumer.outputs[0] == made;
    if (producer.action == Action::write && !rewritten) return false;
    const Meta &between = g_.value(made).meta, &last = g_.value(consumer.outputs[0]).meta;
    if (!(between.sizes == last.sizes) || between.device != last.device) return false;
    if (!same_order(between, last) && last.numel != 1) return false;
    if (!uses_.only_between(made, from, to) || !uses_.inputs_stand(from, to)) return false;
    std::optional<Program> p = program_of(producer), c = program_of(consumer);
    if (!p || !c) return false;
    std::optional<Program> both = joined(*p, *c, made);
    if (!both) {
      notes_.left.push_back(fmt::format("fuse_elementwise: {} into {}: the chain would be too long",
                                        producer.def->info.name, consumer.def->info.name));
      return false;
    }
    Action action = rewritten && producer.action == Action::write ? Action::write
                    : rewritten                                   ? Action::make
                                                                  : consumer.action;
    replace(from, to, *both, action);
    return true;
  }

  // The producer's steps, then the consumer's, which read the producer's last instead of `made`.
  std::optional<Program> joined(const Program& p, const Program& c, ValueId made) const {
    Program both = p;
    if (p.params.steps + c.params.steps > Chain::kSteps) return std::nullopt;
    std::vector<uint8_t> input(c.inputs.size());
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      input[i] = c.inputs[i] == made ? static_cast<uint8_t>(Chain::kInputs + p.params.steps - 1)
                                     : static_cast<uint8_t>(add_input(both, c.inputs[i], c.params.period[i]));
      if (both.params.inputs > Chain::kInputs) return std::nullopt;
    }
    for (int s = 0; s < c.params.steps; ++s) {
      Chain::Step step = c.params.step[s];
      for (int i = 0; i < step.inputs; ++i)
        step.in[i] =
            step.in[i] < Chain::kInputs ? input[step.in[i]] : static_cast<uint8_t>(step.in[i] + p.params.steps);
      both.params.step[both.params.steps++] = step;
    }
    return both;
  }

  void replace(size_t from, size_t to, const Program& both, Action action) {
    Instruction& x = g_.instructions[to];
    Instruction fused{&op_def<Chain>, action, both.inputs, x.outputs, {}, x.site};
    if (action == Action::write) put_first(fused, both, x.outputs[0]);
    const auto* bytes = reinterpret_cast<const std::byte*>(&both.params);
    if (fused.params.empty()) fused.params.assign(bytes, bytes + sizeof both.params);
    g_.instructions[from].def = nullptr;
    uses_.moved(from, to);
    g_.instructions[to] = std::move(fused);
    ++fused_;
  }
  // A write names its target as the first input.
  void put_first(Instruction& x, const Program& both, ValueId target) const {
    auto at = std::find(x.inputs.begin(), x.inputs.end(), target);
    auto other = static_cast<uint8_t>(at - x.inputs.begin());
    Chain::Params params = both.params;
    std::swap(x.inputs[0], x.inputs[other]);
    std::swap(params.period[0], params.period[other]);
    auto swapped = [&](int i) { return i == 0 ? other : i == other ? 0 : i; };
    params.like = swapped(params.like);
    for (int s = 0; s < params.steps; ++s)
      for (int i = 0; i < params.step[s].inputs; ++i)
        if (params.step[s].in[i] < Chain::kInputs)
          params.step[s].in[i] = static_cast<uint8_t>(swapped(params.step[s].in[i]));
    const auto* bytes = reinterpret_cast<const std::byte*>(&params);
    x.params.assign(bytes, bytes + sizeof params);
  }

  Graph& g_;
  Uses uses_;
  Notes& notes_;
  size_t fused_ = 0;
};

}  // namespace

void fuse_elementwise(Graph& graph, Notes& notes) {
  if (size_t dropped = drop_copies(graph))
    notes.done.push_back(fmt::format("fuse_elementwise: {} copies left out", dropped));
  separate_writes(graph);
  ChainFuser(graph, notes).run();
}

}  // namespace deft::graph
