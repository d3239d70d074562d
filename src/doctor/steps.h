// The steps of a program's loops, from what comes again and again: a loader's batches, an optimizer's steps, backward
// passes, calls of a model. For rules about what is done in every step.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "doctor/rule.h"

namespace deft::doctor {

// A line of the program, to sort by.
struct Line {
  Site site;
  friend bool operator<(const Line& a, const Line& b) {
    const char *x = a.site.file_name(), *y = b.site.file_name();
    const int files = x == y ? 0 : std::strcmp(x, y);
    return files ? files < 0 : a.site.line() < b.site.line();
  }
};

// A step ends when the surest of these signs comes again: two loaders read in turn, or two optimizers, make one step
// together. A loop whose sign stays away for long is over, and the next surest takes its place.
class Steps {
 public:
  enum Kind : uint8_t { kBatch, kOptimizer, kBackward, kForward, kNone };  // the surest first

  void happened(Kind kind, const void* what, uint32_t line = 0);
  int64_t now() const { return step_; }
  Kind kind() const { return kind_; }  // by which steps are counted at the moment

 private:
  void end_step(Kind kind);

  std::array<std::set<std::pair<const void*, uint32_t>>, kNone> seen_;  // since one of them came again
  Kind kind_ = kNone;
  int64_t step_ = 0;
  int64_t by_kind_ = 0;                // steps since kind_ is what it is
  int64_t weaker_ = 0, patience_ = 0;  // weaker signs since the last step, and how many are usual
};

// How often something happened at a line, and in how many steps one after the other.
struct LineRun {
  int64_t count = 0;
  int64_t steps = 0;    // it happened in
  int64_t longest = 0;  // run of steps without one that left it out
  void add(const Steps& steps);
  double per_step() const { return steps > 0 ? static_cast<double>(count) / static_cast<double>(steps) : 0; }

 private:
  int64_t run_ = 0, last_ = 0;
};

// What is done in as many steps in a row is done in every step.
inline constexpr int64_t kStepsInARow = 8;

// A rule that knows the steps, and whether one of Deft's layers is at work.
class LoopRule : public Rule {
 public:
  void batch_loaded(const void* loader, int64_t rows, double seconds_waited, const Site& site) override;
  void optimizer_ends(const OptimizerStep& step) override;
  void backward_begins(std::span<const Tensor> roots, const BackwardOptions& options, const Site& site) override;
  void backward_ends() override;
  void module_begins(const ModuleCall& call) override;
  void module_ends(const ModuleCall& call) override;

 protected:
  const Steps& steps() const { return steps_; }
  bool in_layer() const { return !modules_.empty() && modules_.back(); }
  bool in_backward() const { return backwards_ > 0; }
  size_t open_modules() const { return modules_.size(); }

 private:
  Steps steps_;
  int backwards_ = 0;
  std::vector<bool> modules_;  // those that are at work, the innermost last: whether it is one of Deft's layers
};

}  // namespace deft::doctor
