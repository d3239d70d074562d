// D004: modules that record a graph which is never run backward; D006: the same of ops after a forward pass without
// gradients.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "core/engine.h"
#include "core/grad_mode.h"
#include "core/graph_stats.h"
#include "doctor/grad_rules.h"
#include "doctor/linter.h"
#include "doctor/steps.h"

namespace deft::doctor {

namespace {

constexpr size_t kMostPending = 4096;

// An outermost call of a module and the nodes it recorded, by their numbers.
struct Call {
  Site site;
  int64_t number = 0;  // of the calls at this line
  uint64_t first = 0, last = 0;
  int64_t saved_bytes = 0;
};

struct UnusedGraph : Rule {
  void module_begins(const ModuleCall& call) override {
    if (open_module_calls() != 1 || !is_grad_enabled() || in_backward()) return;
    Open& o = open[std::this_thread::get_id()];
    o = {};
    o.call.site = call.site;
    o.saved_before = graph_stats().saved_bytes;
  }
  void op_ran(const OpDef&, std::span<const Tensor* const>, std::span<const Tensor> outputs, bool recorded,
              const Site&) override {
    if (recorded) function_ran(*outputs[0].impl()->grad_fn);
  }
  void function_ran(const Node& node) override {
    if (open.empty()) return;
    auto it = open.find(std::this_thread::get_id());
    if (it == open.end()) return;
    Call& call = it->second.call;
    if (!call.first) call.first = node.seq;
    call.last = node.seq;
    for (int i = 0; i < node.inputs && !it->second.continues; ++i) {
      const Node* from = node.edges()[i].node;
      if (from && !from->has(kNodeIsLeaf) && from->seq < call.first) it->second.continues = find(from->seq) != nullptr;
    }
  }
  void module_ends(const ModuleCall& module) override {
    if (open_module_calls() != 1) return;
    auto it = open.find(std::this_thread::get_id());
    if (it == open.end()) return;
    Open o = std::move(it->second);
    open.erase(it);
    // A call on the results of another is part of the other's graph.
    if (!o.call.first || o.continues) return;
    o.call.saved_bytes = std::max<int64_t>(0, graph_stats().saved_bytes - o.saved_before);
    Place& line = lines[Line{o.call.site}];
    o.call.number = line.calls++;
    if (line.module.empty()) line.module = short_name(module);
    if (pending.size() >= kMostPending) give_up_oldest();
    pending.emplace(o.call.first, std::move(o.call));
  }
  void node_ran(const Node& node) override {
    any_backward = true;
    if (const Call* call = find(node.seq)) pending.erase(call->first);
  }

  void report(std::vector<Finding>& findings) override {
    std::map<Line, Place> seen = lines;
    for (const auto& [first, call] : pending) seen.at(Line{call.site}).count_unused(call);
    for (const auto& [key, line] : seen) {
      if (line.longest < (any_backward ? 2 : 1)) continue;
      const double bytes = static_cast<double>(line.saved_bytes) / static_cast<double>(line.unused);
      Finding f =
          finding("D004", line.site,
                  fmt::format("{} records a graph here that is never run backward: {} of {} call{}, each with {} "
                              "saved for backward.",
                              line.module, line.unused, line.calls, line.calls == 1 ? "" : "s", megabytes(bytes)));
      f.count = line.unused;
      f.figures = {{"mb_per_call", bytes / 1e6}, {"calls", static_cast<double>(line.calls)}};
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Open {
    Call call;
    int64_t saved_before = 0;
    bool continues = false;
  };
  struct Place {
    Site site;
    std::string module;
    int64_t calls = 0, unused = 0, saved_bytes = 0;
    int64_t last_unused = -2, streak = 0, longest = 0;

    void count_unused(const Call& call) {
      site = call.site;
      ++unused;
      saved_bytes += call.saved_bytes;
      streak = call.number == last_unused + 1 ? streak + 1 : 1;
      last_unused = call.number;
      longest = std::max(longest, streak);
    }
  };

  static std::string short_name(const ModuleCall& call) {
    std::string text = call.describe(call.module);
    return text.substr(0, text.find_first_of("(\n"));
  }
  // Where threads record at the same time their ranges overlap; some node of each call is still found.
  const Call* find(uint64_t seq) const {
    auto it = pending.upper_bound(seq);
    if (it == pending.begin()) return nullptr;
    --it;
    return seq <= it->second.last ? &it->second : nullptr;
  }
  void give_up_oldest() {
    const Call& oldest = pending.begin()->second;
    lines.at(Line{oldest.site}).count_unused(oldest);
    pending.erase(pending.begin());
  }

  std::map<std::thread::id, Open> open;
  std::map<uint64_t, Call> pending;  // not run backward yet, by their first nodes
  std::map<Line, Place> lines;
  bool any_backward = false;
};

// After a forward pass without gradients, an op on its results that is recorded since something else in it requires
// gradients: a penalty on the weights, a learned temperature.
struct OutsideNoGrad : Rule {
  void module_begins(const ModuleCall& call) override {
    if (open_module_calls() != 1 || is_grad_enabled() || in_backward()) return;
    evaluated = true;
    thread = std::this_thread::get_id();
    forward_site = call.site;
    results.clear();
  }
  void backward_begins(std::span<const Tensor>, const BackwardOptions&, const Site&) override { evaluated = false; }
  void optimizer_begins(const OptimizerStep&) override { evaluated = false; }
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool recorded,
              const Site& site) override {
    if (!evaluated || !is_grad_enabled() || thread != std::this_thread::get_id()) return;
    if (recorded && open_module_calls() > 0) {  // this is training, with a teacher perhaps
      evaluated = false;
      return;
    }
    if (!std::ranges::any_of(inputs, [&](const Tensor* t) { return t->defined() && is_result(*t->impl()); })) return;
    if (recorded) return join(def, *outputs[0].impl()->grad_fn, site);
    for (const Tensor& out : outputs)
      if (out.defined()) results.insert(out.impl()->storage);
  }
  void node_ran(const Node& node) override {
    if (joined.empty()) return;
    if (auto it = joined.find(node.seq); it != joined.end()) {
      lines.at(it->second).ran = true;
      joined.erase(it);
    }
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [key, line] : lines) {
      if (line.ran || line.count < 2) continue;
      Finding f =
          finding("D006", line.site,
                  fmt::format("{} at this line uses results of the forward pass without gradients at {}, but is "
                              "outside of the block: it records a graph that is never run backward.",
                              line.op, to_string(line.forward)));
      f.count = line.count;
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Place {
    Site site, forward;
    const char* op = "";
    int64_t count = 0;
    bool ran = false;
  };
  bool is_result(const TensorImpl& t) const {
    if (t.has(kMadeWithGradOff) || t.has(kInferenceTensor)) return true;
    return (t.base && t.view_origin == ViewOrigin::no_grad) || results.contains(t.storage);
  }
  void join(const OpDef& def, const Node& node, const Site& site) {
    Place& line = lines.try_emplace(Line{site}).first->second;
    line.site = site;
    line.forward = forward_site;
    line.op = def.info.name;
    ++line.count;
    if (joined.size() < kMostPending) joined.emplace(node.seq, Line{site});
  }

  bool evaluated = false;  // the last forward pass of `thread` was one without gradients
  std::thread::id thread;
  Site forward_site;
  std::set<const Storage*> results;  // of ops with gradients on, made from those of the forward pass
  std::map<Line, Place> lines;
  std::map<uint64_t, Line> joined;  // nodes
};

}  // namespace

std::unique_ptr<Rule> make_unused_graph_rule() { return make_rule<UnusedGraph>(); }
std::unique_ptr<Rule> make_outside_no_grad_rule() { return make_rule<OutsideNoGrad>(); }

}  // namespace deft::doctor
