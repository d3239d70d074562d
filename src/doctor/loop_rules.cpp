#include "doctor/loop_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>

#include "amp/autocast.h"
#include "base/check.h"
#include "doctor/steps.h"
#include "kernels/cpu/gemm/gemm_tile.h"
#include "runtime/cpu_isa.h"

namespace deft::doctor {

namespace {

bool is_view(const OpDef& def) { return def.info.fusion == Fusion::view || def.info.cost == Cost::metadata; }

int64_t elements_of(std::span<const Tensor* const> inputs, std::span<const Tensor> outputs) {
  int64_t sum = 0;
  for (const Tensor* t : inputs)
    if (t->defined()) sum += t->numel();
  for (const Tensor& t : outputs)
    if (t.defined()) sum += t.numel();
  return sum;
}

// --- D014 --------------------------------------------------------------------------------------------------------

// An op on so few elements, inputs and results together, costs less than being called.
constexpr int64_t kTinyElements = 1024;
constexpr double kOpsPerStep = 200, kOpsPerLine = 32, kOpsWithoutSteps = 1000;
constexpr uint32_t kLinesApart = 4;       // of one loop
constexpr int64_t kStepsOfTinyOps = 4;    // in a row
constexpr int64_t kRowCalls = 32;         // of a model with one row
constexpr double kRowElements = 1 << 16;  // per op: with more, one row is work enough
constexpr int64_t kRowsOfADataset = 32;

class TinyTensors : public LoopRule {
 public:
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool,
              const Site& site) override {
    if (open_modules() > 0 && !in_backward()) count_in_call(def, outputs);
    if (open_modules() == 0) look_for_row(def, inputs, outputs);
    if (is_view(def) || in_layer()) return;
    const int64_t elements = elements_of(inputs, outputs);
    if (elements > kTinyElements) return;
    TinyLine& line = lines_[{site}];
    line.run.add(steps());
    line.elements += elements;
  }
  void batch_loaded(const void* loader, int64_t rows, double waited, const Site& site) override {
    LoopRule::batch_loaded(loader, rows, waited, site);
    one_row_ = rows == 1;
  }
  void module_begins(const ModuleCall& call) override {
    if (open_modules() == 0) call_ = {};
    LoopRule::module_begins(call);
  }
  void module_ends(const ModuleCall& call) override {
    LoopRule::module_ends(call);
    if (open_modules() > 0) return;
    if (one_row_ && call_.products > 0 && call_.products == call_.products_of_a_row) {
      RowCalls& calls = row_calls_[{call.site}];
      ++calls.calls;
      calls.ops += call_.ops;
      calls.elements += call_.elements;
    }
    one_row_ = false;
  }
  void report(std::vector<Finding>& findings) override {
    report_lines(findings);
    report_rows(findings);
  }

 private:
  struct TinyLine {
    LineRun run;
    int64_t elements = 0;
  };
  struct Call {  // of an outermost module
    int64_t ops = 0, elements = 0, products = 0, products_of_a_row = 0;
  };
  struct RowCalls {
    int64_t calls = 0, ops = 0, elements = 0;
  };
  // Lines next to each other: a loop.
  struct Loop {
    Line busiest;
    double per_step = 0, most = 0;
    int64_t ops = 0, elements = 0, steps = 0;
    uint32_t last_line = 0;
    void add(const Line& line, const TinyLine& tiny, double of_line) {
      per_step += of_line;
      ops += tiny.run.count;
      elements += tiny.elements;
      steps = std::max(steps, tiny.run.steps);
      last_line = line.site.line();
      if (of_line <= most) return;
      most = of_line;
      busiest = line;
    }
  };

  void count_in_call(const OpDef& def, std::span<const Tensor> outputs) {
    if (is_view(def) || outputs.empty() || !outputs[0].defined()) return;
    ++call_.ops;
    call_.elements += outputs[0].numel();
    if (def.info.cost != Cost::compute_bound) return;
    ++call_.products;
    call_.products_of_a_row += outputs[0].dim() <= 1 || outputs[0].size(0) == 1;
  }
  // One row of a tensor with many, of the same one as before: a loop over data in memory.
  void look_for_row(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs) {
    if (!is_view(def) && std::string_view(def.info.name) != "index_select") return;
    if (inputs.empty() || outputs.empty() || inputs[0]->dim() < 2) return;
    const Tensor& x = *inputs[0];
    if (x.size(0) < kRowsOfADataset || outputs[0].numel() * x.size(0) != x.numel()) return;
    const void* source = x.impl()->storage;
    one_row_ = one_row_ || source == rows_of_;
    rows_of_ = source;
  }

  double per_step(const TinyLine& tiny) const {
    if (steps().now() == 0) return static_cast<double>(tiny.run.count);
    return tiny.run.longest >= kStepsOfTinyOps ? tiny.run.per_step() : 0;
  }
  void report_lines(std::vector<Finding>& findings) const {
    Loop loop;
    for (const auto& [line, tiny] : lines_) {
      const double of_line = per_step(tiny);
      if (of_line < kOpsPerLine) continue;
      const bool same = loop.ops > 0 && std::string_view(loop.busiest.site.file_name()) == line.site.file_name() &&
                        line.site.line() - loop.last_line <= kLinesApart;
      if (!same) {
        report_loop(loop, findings);
        loop = {};
      }
      loop.add(line, tiny, of_line);
    }
    report_loop(loop, findings);
  }
  void report_loop(const Loop& loop, std::vector<Finding>& findings) const {
    if (loop.per_step < (steps().now() > 0 ? kOpsPerStep : kOpsWithoutSteps)) return;
    const double mean = static_cast<double>(loop.elements) / static_cast<double>(loop.ops);
    Finding f = finding("D014", loop.busiest.site,
                        fmt::format("{:.0f} ops {} around this line work on {:.0f} elements each on average: calling "
                                    "them takes longer than their work.",
                                    loop.per_step, steps().now() > 0 ? "in each step" : "in a loop", mean));
    f.count = loop.ops;
    f.figures = {{"ops_per_step", loop.per_step},
                 {"mean_elements", mean},
                 {"tiny_elements", static_cast<double>(kTinyElements)}};
    findings.push_back(std::move(f));
  }
  void report_rows(std::vector<Finding>& findings) const {
    for (const auto& [line, calls] : row_calls_) {
      const double mean = static_cast<double>(calls.elements) / static_cast<double>(std::max<int64_t>(calls.ops, 1));
      if (calls.calls < kRowCalls || mean > kRowElements) continue;
      const double ops = static_cast<double>(calls.ops) / static_cast<double>(calls.calls);
      Finding f = finding("D014", line.site,
                          fmt::format("The model was called {} times with one row of a data set, {:.0f} ops for each, "
                                      "which work on {:.0f} elements on average: give it batches of 32 or more rows.",
                                      calls.calls, ops, mean));
      f.count = calls.calls;
      f.figures = {{"rows_per_call", 1}, {"ops_per_call", ops}, {"mean_elements", mean}};
      findings.push_back(std::move(f));
    }
  }

  std::map<Line, TinyLine> lines_;
  std::map<Line, RowCalls> row_calls_;
  Call call_;
  bool one_row_ = false;           // was taken from a data set since the last call of a model
  const void* rows_of_ = nullptr;  // the storage it came from
};

// --- D015 --------------------------------------------------------------------------------------------------------

constexpr double kImageBytes = 64 << 10, kMatrixBytes = 1 << 20;  // per step
constexpr double kLayoutShare = 0.1;                              // of the bytes that all ops read and write

// Neighbours in the result are none in the source. Copies that only take rows apart are not meant.
bool changes_layout(const Tensor& from, const Tensor& to) {
  if (from.numel() != to.numel() || from.dim() != to.dim() || from.dim() < 2) return false;
  for (int d = 0; d < to.dim(); ++d)
    if (to.size(d) > 1 && to.strides()[d] == 1) return from.size(d) == to.size(d) && from.strides()[d] > 1;
  return false;
}

class LayoutConversions : public LoopRule {
 public:
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool,
              const Site& site) override {
    if (is_view(def) || outputs.empty()) return;
    const auto bytes =
        static_cast<double>(elements_of(inputs, outputs)) * static_cast<double>(outputs[0].element_size());
    all_bytes_ += bytes;
    const std::string_view name = def.info.name;
    if (in_layer() || in_backward() || (name != "clone" && name != "copy_" && name != "to")) return;
    const Tensor& from = *inputs[inputs.size() - 1];
    if (!changes_layout(from, outputs[0])) return;
    Conversions& here = lines_[{site}];
    here.run.add(steps());
    here.bytes += bytes;
    here.images = from.dim() >= 4;
  }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [line, here] : lines_) {
      const double per_step = here.bytes / static_cast<double>(here.run.steps) / 2;
      if (here.run.longest < kStepsInARow || per_step < (here.images ? kImageBytes : kMatrixBytes)) continue;
      const double share = here.bytes / all_bytes_;
      if (share < kLayoutShare) continue;
      Finding f =
          finding("D015", line.site,
                  fmt::format("{:.2f} MB are brought into another order in memory here in each of {} steps, {:.0f} % "
                              "of all bytes that ops read and write.",
                              per_step / 1e6, here.run.steps, 100 * share));
      f.count = here.run.count;
      f.figures = {{"mb_per_step", per_step / 1e6}, {"percent_of_bytes", 100 * share}};
      findings.push_back(std::move(f));
    }
  }

 private:
  struct Conversions {
    LineRun run;
    double bytes = 0;  // read and written
    bool images = false;
  };
  std::map<Line, Conversions> lines_;
  double all_bytes_ = 0;
};

// --- D016 --------------------------------------------------------------------------------------------------------

constexpr int64_t kAutocastOps = 16;

class SlowAutocast : public Rule {
 public:
  void op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs, bool,
              const Site& site) override {
    // The type stays that of the guard while autocast itself calls the op.
    const DType dtype = context().autocast_dtype;
    if (def.info.autocast != Autocast::low || (dtype != DType::bf16 && dtype != DType::f16)) return;
    if (inputs.empty() || outputs.empty() || inputs[0]->dtype() != dtype || !inputs[0]->device().is_cpu()) return;
    if (ops_++ == 0) site_ = site;
    dtype_ = dtype;
    slow_ += !has_fast_products(dtype);
  }
  void report(std::vector<Finding>& findings) override {
    if (slow_ < kAutocastOps) return;
    Finding f =
        finding("D016", site_,
                fmt::format("autocast computes in {}, for which this CPU has no products faster than f32 (level "
                            "\"{}\"): {} ops paid for conversions alone.",
                            name_of(dtype_), isa_level_name(), slow_));
    f.count = slow_;
    f.figures = {{"ops", static_cast<double>(slow_)}};
    findings.push_back(std::move(f));
  }

 private:
  int64_t ops_ = 0, slow_ = 0;
  DType dtype_ = DType::f32;
  Site site_;  // of the first
};

// --- D017 --------------------------------------------------------------------------------------------------------

constexpr int64_t kMisses = 8;

class RecompilationStorm : public Rule {
 public:
  void plan_missed(const void* compiled, const std::string& reason, const Site& site) override {
    // A plan made from a template costs milliseconds and runs nothing twice: it is the fix, not the problem.
    if (reason.find("; instantiated for") != std::string::npos) return;
    Function& f = functions_[compiled];
    f.site = site;
    ++f.misses;
    Reason& r = f.reasons[without_numbers(reason)];
    ++r.count;
    r.last = reason;
  }
  void plan_ran(const void* compiled, const Site&) override { ++functions_[compiled].runs; }
  void report(std::vector<Finding>& findings) override {
    for (const auto& [compiled, f] : functions_) {
      const int64_t calls = f.misses + f.runs;
      if (f.misses < kMisses || 3 * f.misses <= calls) continue;
      const auto most = std::ranges::max_element(f.reasons, {}, [](const auto& r) { return r.second.count; });
      const double share = 100 * static_cast<double>(f.misses) / static_cast<double>(calls);
      Finding found =
          finding("D017", f.site,
                  fmt::format("{} of {} calls of the function compiled here found no plan; {} times because: {}.",
                              f.misses, calls, most->second.count, most->second.last));
      found.count = f.misses;
      found.figures = {
          {"misses", static_cast<double>(f.misses)}, {"calls", static_cast<double>(calls)}, {"percent_missed", share}};
      findings.push_back(std::move(found));
    }
  }

 private:
  struct Reason {
    int64_t count = 0;
    std::string last;
  };
  struct Function {
    Site site;
    int64_t misses = 0, runs = 0;
    std::map<std::string, Reason> reasons;
  };
  static std::string without_numbers(std::string text) {
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    return text;
  }
  std::unordered_map<const void*, Function> functions_;
};

// --- D019 --------------------------------------------------------------------------------------------------------

class OversubscribedThreads : public Rule {
 public:
  // A number set for a while only is found as well.
  void op_ran(const OpDef&, std::span<const Tensor* const>, std::span<const Tensor>, bool, const Site&) override {
    const int threads = num_threads();
    if (threads <= most_) return;
    most_ = threads;
    set_at_ = threads_set_at();
  }
  void report(std::vector<Finding>& findings) override {
    if (auto f = oversubscribed(most_, thread_choice(), set_at_)) findings.push_back(std::move(*f));
  }

 private:
  int most_ = 0;
  Site set_at_;
};

}  // namespace

bool has_fast_products(DType dtype) {
  return dtype == DType::bf16 ? cpu::panel_for(dtype) == cpu::Panel::bf16 : cpu::panel_for(dtype) == cpu::Panel::f16;
}

std::optional<Finding> slow_autocast(const AutocastTimes& t, const Site& site) {
  if (!(t.f32_seconds > 0) || !(t.autocast_seconds > t.f32_seconds * (1 + t.noise))) return {};
  const double slower = t.autocast_seconds / t.f32_seconds;
  Finding f = finding("D016", site,
                      fmt::format("With autocast ({}) this takes {:.2f} ms, in f32 {:.2f} ms: {:.2f} times as long.",
                                  name_of(t.dtype), 1e3 * t.autocast_seconds, 1e3 * t.f32_seconds, slower));
  f.figures = {{"f32_ms", 1e3 * t.f32_seconds}, {"autocast_ms", 1e3 * t.autocast_seconds}, {"times_slower", slower}};
  return f;
}

std::optional<Finding> oversubscribed(int threads, const ThreadChoice& machine, const Site& set_at) {
  double room = machine.affinity;
  if (machine.cgroup_quota > 0) room = std::min(room, std::max(1.0, std::ceil(machine.cgroup_quota)));
  if (room < 1 || threads <= room) return {};
  const bool by_env = set_at.line() == 0;
  std::string limits = fmt::format("it may run on {} CPUs", machine.affinity);
  if (machine.cgroup_quota > 0) limits += fmt::format(" with a quota of {:.1f}", machine.cgroup_quota);
  Finding f =
      finding("D019", set_at,
              fmt::format("{} asks for {} threads, but {}: they take turns, and each waits for those that do not run.",
                          by_env ? "DEFT_NUM_THREADS" : "set_num_threads()", threads, limits));
  f.figures = {{"threads", static_cast<double>(threads)}, {"cpus", room}};
  return f;
}

std::vector<std::unique_ptr<Rule>> make_loop_rules() {
  std::vector<std::unique_ptr<Rule>> rules;
  rules.push_back(make_rule<TinyTensors>());
  rules.push_back(make_rule<LayoutConversions>());
  rules.push_back(make_rule<SlowAutocast>());
  rules.push_back(make_rule<RecompilationStorm>());
  rules.push_back(make_rule<OversubscribedThreads>());
  return rules;
}

}  // namespace deft::doctor
