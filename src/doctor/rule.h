// A rule is an observer (core/observer.h) that reports its findings at the end. One object per session, with its own
// state; the linter calls it from one thread at a time.
#pragma once

#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/observer.h"
#include "doctor/finding.h"

namespace deft::doctor {

// What a rule is about, for `deft explain`: one entry for each id in doctor/rules.cpp.
struct RuleInfo {
  const char* id;
  const char* name;  // "graph-kept-across-steps"
  Severity severity;
  const char* title;    // one line
  const char* story;    // what goes wrong and why, a paragraph
  const char* fix;      // what to do
  const char* example;  // C++, the mistake and the fix
};

// The events of Observer, a bit each.
enum Event : uint32_t {
  kKernelRan = 1 << 0,
  kOpRan = 1 << 1,
  kBackwardBegins = 1 << 2,
  kNodeRan = 1 << 3,
  kBackwardEnds = 1 << 4,
  kRequiresGradSet = 1 << 5,
  kRefused = 1 << 6,
  kHostRead = 1 << 7,
  kCopied = 1 << 8,
  kModuleBegins = 1 << 9,
  kModuleEnds = 1 << 10,
  kOptimizerBegins = 1 << 11,
  kOptimizerEnds = 1 << 12,
  kGradsCleared = 1 << 13,
  kBatchLoaded = 1 << 14,
  kPadded = 1 << 15,
  kPlanMissed = 1 << 16,
  kPlanRan = 1 << 17,
  kHostWaited = 1 << 18,
  kFunctionRan = 1 << 19,
};
inline constexpr int kEventCount = 20;

class Rule : public Observer {
 public:
  // Adds what was found since the start. May be called again later.
  virtual void report(std::vector<Finding>& findings) = 0;
  uint32_t events = (1u << kEventCount) - 1;  // those it is notified of
};

// The events that R overrides: a pointer to a member function names the class that defines it.
template <class R>
constexpr uint32_t events_of() {
  uint32_t events = 0;
#define DEFT_EVENT(bit, name) \
  if (!std::is_same_v<decltype(&R::name), decltype(&Observer::name)>) events |= bit;
  DEFT_EVENT(kKernelRan, kernel_ran)
  DEFT_EVENT(kOpRan, op_ran)
  DEFT_EVENT(kBackwardBegins, backward_begins)
  DEFT_EVENT(kNodeRan, node_ran)
  DEFT_EVENT(kBackwardEnds, backward_ends)
  DEFT_EVENT(kRequiresGradSet, requires_grad_set)
  DEFT_EVENT(kRefused, refused)
  DEFT_EVENT(kHostRead, host_read)
  DEFT_EVENT(kCopied, copied)
  DEFT_EVENT(kModuleBegins, module_begins)
  DEFT_EVENT(kModuleEnds, module_ends)
  DEFT_EVENT(kOptimizerBegins, optimizer_begins)
  DEFT_EVENT(kOptimizerEnds, optimizer_ends)
  DEFT_EVENT(kGradsCleared, grads_cleared)
  DEFT_EVENT(kBatchLoaded, batch_loaded)
  DEFT_EVENT(kPadded, padded)
  DEFT_EVENT(kPlanMissed, plan_missed)
  DEFT_EVENT(kPlanRan, plan_ran)
  DEFT_EVENT(kHostWaited, host_waited)
  DEFT_EVENT(kFunctionRan, function_ran)
#undef DEFT_EVENT
  return events;
}
// A rule that is notified only of the events it overrides; these must be public in R.
template <class R>
std::unique_ptr<Rule> make_rule() {
  auto rule = std::make_unique<R>();
  rule->events = events_of<R>();
  return rule;
}

// A finding of rule `id` with its severity and fix.
Finding finding(std::string_view id, const Site& site, std::string message);

// All rules, fresh. Each family is in a file of its own: grad_rules.cpp, module_rules.cpp, loop_rules.cpp,
// device_rules.cpp, data_rules.cpp. D023 to D026 are found in PyTorch scripts only (python/deft/doctor).
std::vector<std::unique_ptr<Rule>> make_grad_rules();    // D001 D002 D003 D004 D006 D007 D021 D022
std::vector<std::unique_ptr<Rule>> make_module_rules();  // D005 D008 D009 D010
std::vector<std::unique_ptr<Rule>> make_loop_rules();    // D014 D015 D016 D017 D019
std::vector<std::unique_ptr<Rule>> make_device_rules();  // D011 D012 D013
std::vector<std::unique_ptr<Rule>> make_data_rules();    // D018 D020

}  // namespace deft::doctor
