#include "doctor/steps.h"

#include <algorithm>

namespace deft::doctor {

namespace {
constexpr int64_t kPatience = 16, kMostPatience = 1024;
}

void Steps::happened(Kind kind, const void* what, uint32_t line) {
  const bool again = !seen_[kind].emplace(what, line).second;
  if (again) seen_[kind] = {{what, line}};
  if (kind < kind_) {
    patience_ = std::clamp(4 * std::max(by_kind_, weaker_), patience_, std::max(patience_, kMostPatience));
    return end_step(kind);
  }
  if (!again) return;
  if (kind == kind_) {
    patience_ = std::max(patience_, 4 * weaker_);
    return end_step(kind);
  }
  if (++weaker_ > std::max(kPatience, patience_)) end_step(kind);
}

void Steps::end_step(Kind kind) {
  by_kind_ = kind == kind_ ? by_kind_ + 1 : 1;
  kind_ = kind;
  weaker_ = 0;
  ++step_;
}

void LineRun::add(const Steps& now) {
  const int64_t passed = now.now() - last_;
  if (count == 0 || passed > 0) {
    ++steps;
    run_ = count > 0 && passed == 1 ? run_ + 1 : 1;
    longest = std::max(longest, run_);
  }
  ++count;
  last_ = now.now();
}

void LoopRule::batch_loaded(const void* loader, int64_t, double, const Site&) {
  steps_.happened(Steps::kBatch, loader);
}
void LoopRule::optimizer_ends(const OptimizerStep& step) { steps_.happened(Steps::kOptimizer, step.optimizer); }
void LoopRule::backward_begins(std::span<const Tensor>, const BackwardOptions&, const Site& site) {
  if (backwards_++ == 0) steps_.happened(Steps::kBackward, site.file_name(), site.line());
}
void LoopRule::backward_ends() { backwards_ = std::max(backwards_ - 1, 0); }
void LoopRule::module_begins(const ModuleCall& call) {
  if (modules_.empty()) steps_.happened(Steps::kForward, call.site.file_name(), call.site.line());
  modules_.push_back(call.layer);
}
void LoopRule::module_ends(const ModuleCall&) {
  if (!modules_.empty()) modules_.pop_back();
}

}  // namespace deft::doctor
