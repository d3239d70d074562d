// What trials need of a workload: to run it the way a plan says, and to judge what comes out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "doctor/plan.h"

namespace deft::doctor {

// What a run gives on samples that are the same for every plan.
struct Outcome {
  Tensor outputs;        // f32, one row for each sample
  double accuracy = -1;  // 0 to 1 over those with labels; -1: there are none
};

// A workload made ready for one plan: model, loader and compiled function of its own.
class PreparedRun {
 public:
  virtual ~PreparedRun() = default;
  // Runs that many samples, a multiple of the plan's batch, and returns the seconds it took. Throws OutOfTime (trial.h)
  // between batches once the workload's out_of_time() says so; so does check().
  virtual double run(int64_t samples) = 0;
  // Of the model as it was at the start, whatever run() did to it since.
  virtual Outcome check() = 0;
};

struct WorkloadTraits {
  bool trains = false;          // batch, grad mode and eval mode are not ours to choose
  bool images = false;          // layout matters
  bool loads = false;           // samples come through a loader
  bool varying_length = false;  // samples of different length share batches
  int64_t most_batch = 128;     // the largest that makes sense
  // Of a plan from a file: the batches it serves. Modes, precision and layout are in it.
  std::vector<int64_t> plan_batches = {};
};

class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::string name() const = 0;  // "cnn on fashion"
  virtual std::string task() const = 0;  // "infer"
  virtual WorkloadTraits traits() const = 0;
  virtual Plan today() const = 0;      // as its user runs it today
  virtual Plan reference() const = 0;  // whose results are right
  virtual std::unique_ptr<PreparedRun> prepare(const Plan& plan) = 0;
  std::function<bool()> out_of_time = [] { return false; };
};

}  // namespace deft::doctor
