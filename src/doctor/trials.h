// Every technique on the user's own workload, in the order the field has learned to try them: input pipeline, grad mode
// and eval, precision, layout, compile, batch size and threads, bucketing, quantization. Each is measured against the
// best so far, with its memory and its error, and kept if it helps beyond noise and costs no accuracy. What was kept is
// measured once more, all together, against the workload as it was.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "doctor/trial.h"
#include "doctor/workload.h"

namespace deft::doctor {

struct TrialsResult;

double steady_seconds();
double seconds_waited_for_cores();  // all threads together; 0 where the system does not tell

struct TrialsOptions {
  double seconds = 45;      // for everything, warm-up and the last trial of all together included
  double max_drop = 0.005;  // of accuracy, 0 to 1
  uint64_t seed = 1;
  std::function<void(const std::string&)> progress = [](const std::string&) {};
  std::function<bool()> stopped = [] { return false; };  // by the user
  // After each trial, what is known until then; its plan is the workload's as it is today.
  std::function<void(const TrialsResult&)> so_far = [](const TrialsResult&) {};
  std::function<double()> clock = steady_seconds;
  // How long threads of this process have waited for a core: other programs had it.
  std::function<double()> waited = seconds_waited_for_cores;
};

// NaN where nothing was measured.
struct TrialRow {
  std::string technique, stage;
  double before_ms, after_ms;  // per sample
  double speedup, speedup_low, speedup_high;
  int pairs = 0;
  double peak_mb_before, peak_mb_after;
  // Of the outputs against those of the workload's reference: the norm of the difference over their norm.
  double output_error;
  double accuracy_before, accuracy_after;
  bool kept = false;
  std::string reason;
};

struct TrialsResult {
  std::vector<TrialRow> rows;
  struct Step {
    std::string name;
    double samples_per_s, speedup;  // speedup over the workload as it was
  };
  std::vector<Step> waterfall;  // as it was, each step that was kept, all together
  // What was kept, if all of it together was proved to help; else the workload's as it is today.
  Plan plan;
  std::string why;  // the plan is what it is
  // Of the plan over the workload as it was, in a run of its own; pairs = 0: there was no time for one.
  TrialResult verified;
  double accuracy_before, accuracy_after;  // of the workload as it was, and of the plan
  bool interrupted = false;
};

// A plan against a workload as it is: also one that the plan was not made for.
TrialResult verify_plan(Workload& workload, const Plan& plan, const TrialsOptions& options = {});

TrialsResult run_trials(Workload& workload, const TrialsOptions& options = {});

}  // namespace deft::doctor
