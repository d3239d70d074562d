// A plan of `deft compile` as a task: samples of the shape it takes, and the answers it gives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "task.h"

namespace deft::cli {

struct PlanTask {
  std::string file, model;  // the name that the plan gives its model
  std::shared_ptr<Task> task;
  std::vector<int64_t> batches;  // that it serves, ascending
  bool any_batch = false;        // it serves all others as well
  std::string data;              // "glyphs", or "random numbers, f32 [3, 32, 32]"
  bool labelled = false;         // the samples have targets
  // The model itself on the same samples, with first weights; null, and the reason: there is nothing to compare with.
  std::shared_ptr<Task> eager;
  std::string no_eager;
  Device device = kCPU;  // that the plan was made for
};
// `options.data` is the data set, or "" for the first one at hand whose samples and classes fit, else random numbers.
// ValueError where the plan takes or gives more than one tensor, or a data set that was asked for does not fit it.
PlanTask open_plan_task(const std::string& file, TaskOptions options);

}  // namespace deft::cli
