// A built-in model on its data as `deft doctor` runs it: as the commands do by default, and the way plans say.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "doctor/trial.h"
#include "doctor/workload.h"
#include "plan_task.h"
#include "task.h"

namespace deft::cli {

// A task whose model has learned something, so that its accuracy means something.
struct TrainedTask {
  TaskOptions options;
  std::shared_ptr<Task> task;
  NamedTensors state;    // of the model
  int64_t labelled = 0;  // samples of the test set that results are compared on
  std::string learned;   // "64 steps of 128 samples", "weights.safetensors"
  double seconds = 0;    // of a sample, forward
  double budget = 60;    // of all that is done with it
  bool naive = false;    // --demo naive: the loop that people write first, instead of what the commands do
  // Of a plan of deft compile: the batches it serves, ascending. Modes, precision and layout are in it.
  std::vector<int64_t> batches;
  std::string plan_file;
};
// With weights from a file, or else after a short training. `budget`: seconds of all that is done with it, which
// decides how short, and how many samples are compared.
std::shared_ptr<const TrainedTask> trained_task(const TaskOptions& options, const std::string& weights, double budget,
                                                const std::function<void(const std::string&)>& progress);

// A plan of deft compile on data that fits it. `compared` is the model itself, called op by op on the same data with
// weights from a file or its first ones; null where the plan's file does not lead to it.
struct PlanCase {
  PlanTask plan;
  std::shared_ptr<const TrainedTask> trained, compared;
};
PlanCase plan_case(const std::string& file, const TaskOptions& options, const std::string& weights, double budget);
// Both in the plan's largest batches, in turns.
doctor::TrialResult against_eager(const PlanCase& c, double seconds);

// The batch that the command takes, and the one that is measured where a whole one takes too much of the budget.
int64_t usual_batch(const TrainedTask& trained, const std::string& kind);
int64_t measured_batch(const TrainedTask& trained, const std::string& kind);
// kind: infer, eval or train.
std::unique_ptr<doctor::Workload> make_workload(std::shared_ptr<const TrainedTask> trained, const std::string& kind);

// Twenty batches of validation that add up the loss as a tensor: the leak that everyone writes once.
void leaking_loop();

}  // namespace deft::cli
