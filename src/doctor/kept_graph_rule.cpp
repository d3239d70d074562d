// D003: a graph that grows from step to step, as by `total += loss`.
//
// Note [Chains of steps]
// A node holds the nodes it came from, so what matters is which nodes lead to those of earlier steps. Nodes are
// numbered in the order they are made: one with a number below that of the step's start is of an earlier step. An op
// that reads one `crosses` into it, and the count of such crossings on the way down, its depth, is the number of steps
// that are kept alive. Detached sums have no edge and no depth; a part that was computed once before the loop has depth
// 1 forever. Steps are the optimizer's, or backward calls where there is none.
//
// Evaluation has neither. There a round is a batch of a loader, or the time until a module is called again, and only a
// line that crosses into its own nodes counts (a sum, a moving average), as long as none of these runs backward:
// gradient accumulation and recurrence within a step are chains, too.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/graph_stats.h"
#include "doctor/grad_rules.h"
#include "doctor/linter.h"
#include "doctor/steps.h"

namespace deft::doctor {

namespace {

constexpr int kKeptSteps = 3;         // from this depth on it is no accident
constexpr int64_t kRisingSteps = 8;   // the same where nothing crosses
constexpr size_t kMostNodes = 65536;  // remembered with their depths
constexpr size_t kMostGrowths = 512;

double upper_median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What is alive, and how it grew from one step to the next.
class Growth {
 public:
  void sample(const GraphStats& now, bool goes_on) {
    if (goes_on && seen_ && saved_.size() < kMostGrowths) {
      saved_.push_back(static_cast<double>(now.saved_bytes - last_.saved_bytes));
      nodes_.push_back(static_cast<double>(now.live_nodes - last_.live_nodes));
    }
    last_ = now;
    seen_ = true;
  }
  void clear() { *this = {}; }
  double nodes() const { return upper_median(nodes_); }
  double bytes(double node_bytes) const { return std::max(0.0, upper_median(saved_)) + nodes() * node_bytes; }
  const GraphStats& last() const { return last_; }

 private:
  std::vector<double> saved_, nodes_;
  GraphStats last_;
  bool seen_ = false;
};

// One line that crosses, by steps or by rounds.
struct Chain {
  int depth = 0, deepest = 0;
  int64_t at = -1, crossings = 0;  // the last step it was seen in
  Growth growth;

  void cross(int to, int64_t step) {
    deepest = std::max(deepest, to);
    if (at == step) return;
    growth.sample(graph_stats(), to > depth);
    depth = to;
    at = step;
    ++crossings;
  }
};

bool same_line(const Site& a, const Site& b) { return !(Line{a} < Line{b}) && !(Line{b} < Line{a}); }

struct Place {
  Site site;
  const char* op = "";
  Chain steps, rounds;
  bool ran = false;  // some of its nodes ran backward
};

struct KeptGraph : Rule {
  void op_ran(const OpDef&, std::span<const Tensor* const>, std::span<const Tensor> outputs, bool recorded,
              const Site&) override {
    if (recorded) function_ran(*outputs[0].impl()->grad_fn);
  }
  void function_ran(const Node& node) override {
    newest = std::max(newest, node.seq);
    node_bytes += node.block_bytes;
    ++nodes_made;
    Depth depth;
    for (int i = 0; i < node.inputs; ++i) {
      const Node* from = node.edges()[i].node;
      if (!from || from->has(kNodeIsLeaf)) continue;
      if (from->seq >= step_start && from->seq >= round_start && depths.empty()) continue;
      depth = depth.deeper(depth_through(*from, node));
    }
    if (depth.steps || depth.rounds) remember(node.seq, depth);
  }
  void node_ran(const Node& node) override {
    if (depths.empty()) return;
    auto it = depths.find(node.seq);
    if (it == depths.end() || !it->second.rounds) return;
    if (auto line = lines.find(Line{node.site}); line != lines.end()) line->second.ran = true;
  }

  void backward_begins(std::span<const Tensor> roots, const BackwardOptions&, const Site&) override {
    for (const Tensor& root : roots)
      if (root.defined() && root.impl()->grad_fn) loss_site = root.impl()->grad_fn->site;
  }
  void backward_ends() override {
    if (!has_optimizer) next_step();
  }
  void optimizer_ends(const OptimizerStep&) override {
    if (!has_optimizer) {  // backward calls before the first step were no steps of their own
      lines.clear();
      depths.clear();
      growth.clear();
      rising = 0;
      has_optimizer = true;
    }
    next_step();
  }
  void batch_loaded(const void*, int64_t, double, const Site&) override {
    has_loader = true;
    next_round();
  }
  void module_begins(const ModuleCall& call) override {
    if (has_loader || open_module_calls() != 1 || called.insert(call.module).second) return;
    next_round();
    called = {call.module};
  }

  void report(std::vector<Finding>& findings) override {
    bool named = false;
    for (const auto& [key, line] : lines) {
      const bool by_step = is_kept(line.steps);
      if (!by_step && (line.ran || !is_kept(line.rounds))) continue;
      findings.push_back(found(line, by_step ? line.steps : line.rounds, by_step ? "step" : "call"));
      named = true;
    }
    if (!named && longest_rise >= kRisingSteps && growth.nodes() > 0) findings.push_back(found_without_line());
  }

 private:
  struct Depth {
    int steps = 0, rounds = 0;
    Depth deeper(const Depth& o) const { return {std::max(steps, o.steps), std::max(rounds, o.rounds)}; }
  };

  Depth depth_through(const Node& from, const Node& to) {
    auto it = depths.find(from.seq);
    Depth depth = it == depths.end() ? Depth{} : it->second;
    const bool crosses = from.seq < step_start;
    const bool repeats = from.seq < round_start && same_line(from.site, to.site);
    if (!crosses && !repeats) return depth;
    Place& line = lines[Line{to.site}];
    line.site = to.site;
    line.op = to.type->name;
    if (crosses) line.steps.cross(++depth.steps, step);
    if (repeats) line.rounds.cross(++depth.rounds, round);
    return depth;
  }
  void remember(uint64_t seq, const Depth& depth) {
    if (depths.size() >= kMostNodes) std::erase_if(depths, [&](const auto& d) { return d.first < step_start; });
    if (depths.size() >= kMostNodes) depths.clear();
    depths[seq] = depth;
  }

  void next_step() {
    ++step;
    step_start = newest + 1;
    std::erase_if(depths, [&](const auto& d) { return d.second.steps == 0; });
    next_round();
    // Nodes can be kept without an op that reads them: a list of losses.
    advance_step();
    const GraphStats now = graph_stats();
    const bool rises = now.live_nodes > growth.last().live_nodes && now.oldest_node_age >= rising;
    growth.sample(now, rises);
    rising = rises ? rising + 1 : 0;
    longest_rise = std::max(longest_rise, rising);
  }
  void next_round() {
    ++round;
    round_start = newest + 1;
  }

  double mean_node() const { return nodes_made ? node_bytes / static_cast<double>(nodes_made) : 0; }
  bool is_kept(const Chain& c) const { return c.deepest >= kKeptSteps && c.growth.bytes(mean_node()) > 0; }
  Finding found(const Place& line, const Chain& chain, const char* unit) const {
    const double bytes = chain.growth.bytes(mean_node());
    Finding f =
        finding("D003", line.site,
                fmt::format("{} at this line keeps the graph of every {}: those of {} earlier ones hang on its result, "
                            "and each adds {}.",
                            line.op, unit, chain.deepest, megabytes(bytes)));
    f.count = chain.crossings;
    f.figures = {{"mb_per_step", bytes / 1e6},
                 {"steps_kept", static_cast<double>(chain.deepest)},
                 {"nodes_per_step", chain.growth.nodes()}};
    return f;
  }
  Finding found_without_line() const {
    const double bytes = growth.bytes(mean_node());
    Finding f = finding("D003", loss_site,
                        fmt::format("what is computed at this line, or a tensor of the graph before it, is kept from "
                                    "step to step: {} more of the graph are alive after each.",
                                    megabytes(bytes)));
    f.count = longest_rise;
    f.figures = {{"mb_per_step", bytes / 1e6}, {"nodes_per_step", growth.nodes()}};
    return f;
  }

  uint64_t newest = 0, step_start = 0, round_start = 0;  // numbers of nodes
  int64_t step = 0, round = 0;
  bool has_optimizer = false, has_loader = false;
  std::set<const void*> called;  // outermost modules of this round
  std::unordered_map<uint64_t, Depth> depths;
  std::map<Line, Place> lines;
  double node_bytes = 0;
  int64_t nodes_made = 0;
  Growth growth;  // from step to step
  int64_t rising = 0, longest_rise = 0;
  Site loss_site;
};

}  // namespace

std::unique_ptr<Rule> make_kept_graph_rule() { return make_rule<KeptGraph>(); }

}  // namespace deft::doctor
