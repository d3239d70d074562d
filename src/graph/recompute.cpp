// Results of cheap ops that are read again only much later, by backward, are computed a second time right before that,
// where the most memory that is alive at once gets less. The same ops on the same values, so the same bits.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "graph/cost.h"
#include "graph/edit.h"
#include "graph/memory_plan.h"
#include "graph/passes.h"
#include "ops/copy.h"
#include "ops/elementwise_chain.h"
#include "ops/elementwise_gradient.h"
#include "ops/fused_rows.h"
#include "ops/norm.h"
#include "runtime/cpu_isa.h"

namespace deft::graph {

namespace {

constexpr size_t kFar = 16;           // instructions without a use
constexpr size_t kMostOps = 3;        // to get one result back
constexpr double kMostTime = 0.01;    // of the time of all instructions
constexpr double kLeastWorth = 1;     // bytes per nanosecond
constexpr double kLeastSaved = 0.02;  // of the arena
// A value unused for long comes from memory: a training step of a small ResNet, one thread, took 1.1 % longer (f32)
// and 4.3 % (bf16) where the figures in cost.h, for operands in caches, say 0.7 % and 2 %.
constexpr double kFromMemory = 2;

// Where tiles multiply (AMX with AMX-FP16) matmuls take a quarter of the time that cost.h says: f32 runs at 300
// GFLOP/s, bf16 at 1,100, while memory is no faster. One percent was 2.5 (a step of ResNet-50, batch 8, f32, one
// thread).
double matmul_speed() { return cpu_has("amx_fp16") ? 4 : 1; }

bool is_batch_norm(const Instruction& x) { return x.def == &op_def<BatchNorm> || x.def == &op_def<FusedBatchNorm>; }

bool is_cheap(const Instruction& x) {
  return x.def->elementwise || is_batch_norm(x) || x.def == &op_def<ElementwiseChain> ||
         x.def == &op_def<ElementwiseGradient> || x.def == &op_def<FusedRows> || x.def == &op_def<Cast> ||
         x.def == &op_def<Clone> || x.def == &op_def<LayerNorm> || x.def == &op_def<RmsNorm>;
}

// A buffer without a reader between two instructions.
struct Gap {
  BufferId buffer = kNone;
  size_t from = 0, to = 0;    // the uses before and after it
  std::vector<size_t> again;  // instructions that make it once more at `to`
  double ns = 0;              // they take
  int64_t bytes = 0;          // that are free in between
  int64_t beside = 0;         // bytes of results on the way
  double worth() const { return static_cast<double>(bytes) / ns; }
};

class Recomputer {
 public:
  Recomputer(Graph& graph, Notes& notes, bool weigh) : g_(graph), notes_(notes), weigh_(weigh) {
    for (const Instruction& x : graph.instructions)
      all_ns_ += nanoseconds(graph, x) / (work_of(graph, x).flops > 0 ? matmul_speed() : 1);
  }

  void run() {
    const Graph before = g_;
    const int64_t was = plan_memory(g_).bytes;
    size_t most = g_.instructions.size();
    for (look(); std::optional<Gap> gap = most-- > 0 ? best() : std::nullopt; look()) apply(*gap);
    const int64_t now = made_.empty() ? was : plan_memory(g_).bytes;
    if (!made_.empty() && static_cast<double>(was - now) < (weigh_ ? kLeastSaved : 0) * static_cast<double>(was)) {
      g_ = before;
      made_.clear();
      notes_.left.push_back(fmt::format("recompute: the arena would have {} bytes instead of {}", now, was));
      return;
    }
    note(was, now);
  }

 private:
  // --- Makers and users of buffers in the current graph.
  struct Places {
    std::vector<size_t> uses, writes;
    bool result = false;
  };
  void look() {
    places_.assign(g_.buffers.size(), {});
    auto add = [](std::vector<size_t>& list, size_t at) {
      if (list.empty() || list.back() != at) list.push_back(at);
    };
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      const Instruction& x = g_.instructions[i];
      if (x.action == Action::view) continue;
      for (ValueId id : x.inputs)
        if (id != kNone) add(places_[index(g_.value(id).buffer)].uses, i);
      for (ValueId id : x.outputs) add(places_[index(g_.value(id).buffer)].uses, i);
      for (ValueId id : written_values(x)) add(places_[index(g_.value(id).buffer)].writes, i);
    }
    for (ValueId id : g_.outputs) places_[index(g_.value(id).buffer)].result = true;
    alive_ = bytes_alive(g_);
  }
  bool written_within(BufferId buffer, size_t from, size_t to) const {
    const std::vector<size_t>& at = places_[index(buffer)].writes;
    return std::any_of(at.begin(), at.end(), [&](size_t i) { return i > from && i < to; });
  }
  // Its memory at `to` still holds the value of `from`.
  bool stands(ValueId id, size_t from, size_t to) const {
    const BufferId buffer = g_.value(id).buffer;
    if (written_within(buffer, from, to)) return false;
    const Buffer& b = g_.buffers[index(buffer)];
    if (b.kind != BufferKind::temporary || b.kept || places_[index(buffer)].result) return true;
    return places_[index(buffer)].uses.back() >= to;
  }

  // --- What can be recomputed.
  // Instructions that recompute the buffer at `to`, in order; otherwise why there are none.
  const char* why_not(BufferId buffer, size_t to, std::vector<size_t>& again) const {
    const Places& p = places_[index(buffer)];
    if (p.writes.size() != 1 || p.writes[0] != p.uses.front()) return "written more than once";
    const Instruction& x = g_.instructions[p.writes[0]];
    if (draws(x)) return "made of random numbers";
    if (x.action != Action::make || !is_cheap(x)) return "made by ops that are dear";
    if (!rewritten_values(x).empty() && !is_batch_norm(x)) return "made by ops that write something else";
    if (again.size() == kMostOps) return "of long chains of ops";
    again.insert(again.begin(), p.writes[0]);
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      if (!reads_again(x, i) || stands(x.inputs[i], p.writes[0], to)) continue;
      const BufferId source = g_.value(x.inputs[i]).buffer;
      if (g_.buffers[index(source)].kind != BufferKind::temporary) return "made from what is written in between";
      if (std::find(again.begin(), again.end(), places_[index(source)].writes[0]) != again.end()) continue;
      if (const char* why = why_not(source, to, again)) return why;
    }
    return nullptr;
  }
  // Running statistics move once.
  static bool reads_again(const Instruction& x, size_t i) {
    return x.inputs[i] != kNone && !(is_batch_norm(x) && !rewritten_values(x).empty() && (i == 3 || i == 4));
  }

  // The gap of a buffer around `at`; nothing where it is in use there or nearby.
  std::optional<Gap> gap_of(BufferId buffer, size_t at) const {
    const Places& p = places_[index(buffer)];
    const Buffer& b = g_.buffers[index(buffer)];
    if (b.kind != BufferKind::temporary || b.kept || p.result || p.uses.empty()) return {};
    auto next = std::upper_bound(p.uses.begin(), p.uses.end(), at);
    if (next == p.uses.end() || next == p.uses.begin() || *(next - 1) == at ||
        *next - *(next - 1) < (weigh_ ? kFar : 2))
      return {};
    return Gap{.buffer = buffer,
               .from = *(next - 1),
               .to = *next,
               .again = {},
               .bytes = static_cast<int64_t>(g_.buffers[index(buffer)].bytes)};
  }
  void complete(Gap& gap) const {
    std::sort(gap.again.begin(), gap.again.end());
    for (size_t i : gap.again) {
      const Instruction& x = g_.instructions[i];
      Work work = work_of(g_, x);
      // The norms read their input for the statistics, too.
      if (!x.def->elementwise && x.outputs.size() > 1) work.bytes *= 1.5;
      gap.ns += kFromMemory * nanoseconds(work, g_.value(x.outputs[0]).meta.dtype);
      for (ValueId id : x.outputs)
        if (g_.value(id).buffer != gap.buffer) gap.beside += static_cast<int64_t>(g_.buffer_of(id).bytes);
    }
  }
  // The peak of live bytes, and at how many instructions it occurs. Each step lowers one of them, so this terminates.
  using Peak = std::pair<int64_t, size_t>;
  Peak peak() const {
    const int64_t most = *std::max_element(alive_.begin(), alive_.end());
    return {most, static_cast<size_t>(std::count(alive_.begin(), alive_.end(), most))};
  }
  Peak peak_with(const Gap& gap) const {
    Peak p{alive_[gap.to] + gap.beside, gap.again.size()};
    for (size_t t = 0; t < alive_.size(); ++t) {
      const int64_t bytes = alive_[t] - (t > gap.from && t < gap.to ? gap.bytes : 0);
      p = bytes > p.first ? Peak{bytes, 1} : Peak{p.first, p.second + (bytes == p.first)};
    }
    return p;
  }
  std::optional<Gap> best() {
    left_.clear();
    const Peak now = peak();
    const auto at = static_cast<size_t>(std::max_element(alive_.begin(), alive_.end()) - alive_.begin());
    std::vector<Gap> found;
    for (size_t i = 0; i < g_.buffers.size(); ++i) {
      std::optional<Gap> gap = gap_of(static_cast<BufferId>(i), at);
      if (!gap || gap->bytes == 0) continue;
      const char* why = why_not(gap->buffer, gap->to, gap->again);
      if (!why) complete(*gap);
      if (!why && weigh_ && (gap->worth() < kLeastWorth || ns_ + gap->ns > kMostTime * all_ns_))
        why = "more work than the bytes are worth";
      if (!why && peak_with(*gap) >= now) why = "no saving: what they are made of needs as much";
      if (!why)
        found.push_back(std::move(*gap));
      else
        left_[why].first += 1, left_[why].second += gap->bytes;
    }
    auto dearer = [](const Gap& a, const Gap& b) { return a.worth() < b.worth(); };
    auto chosen = std::max_element(found.begin(), found.end(), dearer);
    return chosen == found.end() ? std::nullopt : std::optional(std::move(*chosen));
  }

  // --- Doing so.
  // The value in the new memory of its buffer, where that has some.
  ValueId moved(ValueId id) {
    if (id == kNone) return id;
    const Value v = g_.value(id);
    auto to = new_buffer_.find(v.buffer);
    if (to == new_buffer_.end()) return id;
    auto [at, added] = new_value_.try_emplace(id, kNone);
    if (added) at->second = g_.add_value(v.meta, to->second, v.offset);
    return at->second;
  }
  void move_all(std::vector<ValueId>& ids) {
    for (ValueId& id : ids) id = moved(id);
  }
  Instruction copy_of(const Instruction& x) {
    Instruction copy = x;
    copy.again = true;
    for (size_t i = 0; i < x.inputs.size(); ++i) copy.inputs[i] = reads_again(x, i) ? moved(x.inputs[i]) : kNone;
    copy.effects.clear();
    for (ValueId id : x.outputs) {
      const BufferId old = g_.value(id).buffer;
      new_buffer_[old] = g_.add_buffer(BufferKind::temporary, g_.buffers[index(old)].bytes);
    }
    move_all(copy.outputs);
    return copy;
  }
  void apply(const Gap& gap) {
    new_buffer_.clear();
    new_value_.clear();
    std::vector<Instruction> made;
    for (size_t i : gap.again) made.push_back(copy_of(g_.instructions[i]));
    ++made_[g_.instructions[gap.again.back()].def->info.name];
    std::erase_if(new_buffer_, [&](const auto& b) { return b.first != gap.buffer; });
    for (size_t i = 0; i < g_.instructions.size(); ++i) {
      Instruction& x = g_.instructions[i];
      if (i >= gap.to) {
        move_all(x.inputs), move_all(x.outputs), move_all(x.effects);
      } else if (x.action == Action::view && g_.value(x.outputs[0]).buffer == gap.buffer) {
        Instruction view = x;
        move_all(view.inputs), move_all(view.outputs);
        made.push_back(std::move(view));
      }
    }
    g_.instructions.insert(g_.instructions.begin() + static_cast<std::ptrdiff_t>(gap.to),
                           std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    ns_ += gap.ns;
  }

  void note(int64_t was, int64_t now) {
    if (!made_.empty()) {
      std::string which;
      for (const auto& [name, count] : made_)
        which += fmt::format("{}{} of {}", which.empty() ? "" : ", ", count, name);
      notes_.done.push_back(fmt::format("recompute: {}; the arena has {} bytes instead of {}, for {:.2g} % more time",
                                        which, now, was, 100 * ns_ / std::max(all_ns_, 1.0)));
    }
    for (const auto& [why, what] : left_)
      notes_.left.push_back(
          fmt::format("recompute: {} results of {} bytes in all at the peak: {}", what.first, what.second, why));
  }

  Graph& g_;
  Notes& notes_;
  const bool weigh_;
  double all_ns_ = 0, ns_ = 0;
  std::vector<Places> places_;  // by buffer
  std::vector<int64_t> alive_;  // by instruction
  std::map<BufferId, BufferId> new_buffer_;
  std::map<ValueId, ValueId> new_value_;
  std::map<std::string, int> made_;
  std::map<std::string, std::pair<int, int64_t>> left_;
};

bool on_device(const Graph& g) {
  return std::any_of(g.values.begin(), g.values.end(), [](const Value& v) { return !v.meta.device.is_cpu(); });
}

}  // namespace

void recompute(Graph& graph, Notes& notes, bool weigh) {
  // Matmuls of a GPU are so fast that a pass over memory is a larger part of them than the figures in cost.h say.
  if (weigh && on_device(graph)) {
    notes.left.push_back("recompute: not weighed on a GPU");
    return;
  }
  Recomputer(graph, notes, weigh).run();
}

}  // namespace deft::graph
