#include "doctor/linter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <type_traits>

#include "doctor/source_path.h"
#include "doctor/steps.h"
#include "runtime/context.h"
#include "runtime/per_thread.h"

namespace deft::doctor {

namespace {

// Open calls belong to the linter that saw them begin. Of each the user's line that led to it, of the outer ones.
struct OpenCalls {
  static constexpr int kMostLines = 64;
  const Linter* linter = nullptr;
  int count = 0;
  uintptr_t noted = 0;  // the last line that was looked at
  Site lines[kMostLines] = {};

  Site caller() const { return count == 0 ? Site() : lines[std::min(count, kMostLines) - 1]; }
  void begin(const Site& line) {
    if (count < kMostLines) lines[count] = line;
    ++count;
  }
};
OpenCalls& open_calls() { return PerThread<OpenCalls>::get(); }

// A site is a pointer to what the compiler wrote down of it.
static_assert(sizeof(Site) == sizeof(uintptr_t));
uintptr_t id_of(const Site& site) { return std::bit_cast<uintptr_t>(site); }

// What rules do is not watched.
class Unwatched {
 public:
  Unwatched() : bits_(context().bits) { context().bits &= ~kProfile; }
  ~Unwatched() { context().bits = bits_; }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  uint32_t bits_;
};

}  // namespace

int open_module_calls() { return open_calls().count; }

std::vector<Finding> merged(std::vector<Finding> findings) {
  std::map<std::tuple<int, std::string, uint32_t, std::string>, Finding> by_place;
  for (Finding& f : findings) {
    auto [it, fresh] = by_place.try_emplace({-static_cast<int>(f.severity), f.file, f.line, f.id}, f);
    if (!fresh) it->second.count += f.count;
  }
  std::vector<Finding> out;
  for (auto& [place, f] : by_place) out.push_back(std::move(f));
  return out;
}

Linter::Linter(LinterOptions options) : options_(std::move(options)) {
  for (auto make : {make_grad_rules, make_module_rules, make_loop_rules, make_device_rules, make_data_rules})
    for (auto& rule : make()) rules_.push_back(std::move(rule));
  for (auto& rule : rules_)
    for (int e = 0; e < kEventCount; ++e)
      if (rule->events >> e & 1) wanting_[static_cast<size_t>(e)].push_back(rule.get());
}
Linter::~Linter() {
  if (open_calls().linter == this) open_calls() = {};
}

std::vector<Finding> Linter::findings() {
  std::vector<Finding> found;
  {
    std::lock_guard lock(mutex_);
    Unwatched quiet;
    for (auto& rule : rules_) rule->report(found);
    for (Finding& f : found) blame_the_caller(f);
  }
  std::erase_if(found, [&](const Finding& f) { return std::ranges::count(options_.off, f.id) > 0; });
  return merged(std::move(found));
}

bool Linter::is_own(const char* file) const { return options_.own_lines ? is_library_file(file) : is_deft_file(file); }

// Built-in models and data sets have lines of their own, which a user cannot change: the line that led there stands for
// them. Backward passes come to the lines of forward passes, so what is known of these is kept.
void Linter::note(const Site& site) {
  const uintptr_t id = id_of(site);
  if (open_calls().linter != this) open_calls() = {this};
  if (open_calls().noted == id) return;
  open_calls().noted = id;
  std::lock_guard lock(mutex_);
  auto [it, fresh] = places_.try_emplace(id);
  if (fresh) it->second = {site, Site(), is_own(site.file_name())};
  if (it->second.library && it->second.caller.line() == 0) it->second.caller = open_calls().caller();
}
void Linter::blame_the_caller(Finding& f) const {
  if (!is_own(f.file.c_str())) return;
  Site caller;
  for (const auto& [id, place] : places_) {
    const bool there = place.caller.line() && place.site.line() == f.line && f.file == place.site.file_name();
    if (there && (!caller.line() || Line{place.caller} < Line{caller})) caller = place.caller;
  }
  f.message += fmt::format(" It happens inside Deft, at {}:{}.", f.file.substr(f.file.rfind('/') + 1), f.line);
  f.file = caller.line() ? caller.file_name() : "";
  f.line = caller.line();
}

// Some events come from destructors, so nothing may escape; what a rule can run out of is memory.
template <class Call>
void Linter::tell(Event event, const Call& call) {
  const std::vector<Rule*>& rules = wanting_[static_cast<size_t>(std::countr_zero(static_cast<uint32_t>(event)))];
  if (rules.empty()) return;
  std::lock_guard lock(mutex_);
  Unwatched quiet;
  for (Rule* rule : rules) {
    try {
      call(*rule);
    } catch (const std::exception&) {
    }
  }
}

void Linter::kernel_ran(const KernelCall& call, const Site& site) {
  tell(kKernelRan, [&](Rule& r) { r.kernel_ran(call, site); });
}
void Linter::op_ran(const OpDef& def, std::span<const Tensor* const> inputs, std::span<const Tensor> outputs,
                    bool recorded, const Site& site) {
  note(site);
  tell(kOpRan, [&](Rule& r) { r.op_ran(def, inputs, outputs, recorded, site); });
}
void Linter::backward_begins(std::span<const Tensor> roots, const BackwardOptions& options, const Site& site) {
  tell(kBackwardBegins, [&](Rule& r) { r.backward_begins(roots, options, site); });
}
void Linter::node_ran(const Node& node) {
  tell(kNodeRan, [&](Rule& r) { r.node_ran(node); });
}
void Linter::backward_ends() {
  tell(kBackwardEnds, [&](Rule& r) { r.backward_ends(); });
}
void Linter::requires_grad_set(const Tensor& tensor, bool on, const Site& site) {
  note(site);
  tell(kRequiresGradSet, [&](Rule& r) { r.requires_grad_set(tensor, on, site); });
}
void Linter::refused(const char* op, const std::string& message, const Site& site) {
  note(site);
  tell(kRefused, [&](Rule& r) { r.refused(op, message, site); });
}
void Linter::host_read(const Tensor& tensor, double value, const Site& site) {
  note(site);
  tell(kHostRead, [&](Rule& r) { r.host_read(tensor, value, site); });
}
void Linter::copied(const DeviceCopy& copy) {
  note(copy.site);
  tell(kCopied, [&](Rule& r) { r.copied(copy); });
}
void Linter::module_begins(const ModuleCall& call) {
  if (open_calls().linter != this) open_calls() = {this};
  open_calls().begin(is_own(call.site.file_name()) ? open_calls().caller() : call.site);
  note(call.site);
  tell(kModuleBegins, [&](Rule& r) { r.module_begins(call); });
}
void Linter::module_ends(const ModuleCall& call) {
  tell(kModuleEnds, [&](Rule& r) { r.module_ends(call); });
  if (open_calls().linter == this && open_calls().count > 0) --open_calls().count;
}
void Linter::optimizer_begins(const OptimizerStep& step) {
  tell(kOptimizerBegins, [&](Rule& r) { r.optimizer_begins(step); });
}
void Linter::optimizer_ends(const OptimizerStep& step) {
  tell(kOptimizerEnds, [&](Rule& r) { r.optimizer_ends(step); });
}
void Linter::grads_cleared(const void* optimizer, bool to_none, const Site& site) {
  tell(kGradsCleared, [&](Rule& r) { r.grads_cleared(optimizer, to_none, site); });
}
void Linter::batch_loaded(const void* loader, int64_t rows, double seconds_waited, const Site& site) {
  tell(kBatchLoaded, [&](Rule& r) { r.batch_loaded(loader, rows, seconds_waited, site); });
}
void Linter::padded(std::span<const int64_t> lengths, int64_t places, const Site& site) {
  note(site);
  tell(kPadded, [&](Rule& r) { r.padded(lengths, places, site); });
}
void Linter::plan_missed(const void* compiled, const std::string& reason, const Site& site) {
  note(site);
  tell(kPlanMissed, [&](Rule& r) { r.plan_missed(compiled, reason, site); });
}
void Linter::plan_ran(const void* compiled, const Site& site) {
  note(site);
  tell(kPlanRan, [&](Rule& r) { r.plan_ran(compiled, site); });
}
void Linter::host_waited(const char* what, const Site& site) {
  note(site);
  tell(kHostWaited, [&](Rule& r) { r.host_waited(what, site); });
}
void Linter::function_ran(const Node& node) {
  tell(kFunctionRan, [&](Rule& r) { r.function_ran(node); });
}

}  // namespace deft::doctor
