// The training loop: steps, epochs, evaluation, checkpoints, stopping and going on.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "core/state.h"
#include "doctor/plan.h"
#include "io/checkpoint.h"
#include "optim/grad_scaler.h"
#include "optim/lr_scheduler.h"
#include "runtime/random.h"
#include "task.h"

namespace deft::cli {

// A loss or a gradient that is not finite: the message names the first op or parameter that is bad.
struct TrainingError : Error {
  using Error::Error;
};

struct TrainOptions {
  TaskOptions task;
  int64_t epochs = 5;
  std::string optimizer = "adamw";  // or sgd
  double lr = 0;                    // 0: the optimizer's own, 0.003 for adamw, 0.1 for sgd
  double weight_decay = 0.01;
  std::string schedule = "one-cycle";  // or constant, cosine
  DType amp = DType::f32;              // bf16 or f16: autocast type
  int64_t accumulate = 1;              // batches per step
  double clip = 0;                     // largest norm of all gradients; 0: no clipping
  std::string freeze;                  // modules whose name begins with it do not train
  double target = 0;                   // ends when the test accuracy reaches it
  std::string folder;                  // of checkpoints; "": none are written
  int64_t save_every = 0;              // steps; 0: at the end of epochs
  bool resume = false, overwrite = false;
  std::optional<Plan> plan;  // layout and compile of the steps
};

// ValueError where --out names a folder that is used already, and neither resume nor overwrite says what to do.
void check_folder(const TrainOptions& options);

// What happened, as a line of the log: {"event": "step" | "epoch" | "skipped" | ..., ...}.
using LogFn = std::function<void(const std::string& json)>;
using ProgressFn = std::function<void(const std::string& text)>;

struct TrainResult {
  Score score;  // of the last evaluation
  int64_t steps = 0, epochs = 0, skipped = 0;
  double seconds = 0, samples_per_second = 0;
  bool reached = false, stopped = false;
  std::string checkpoint;  // the last one written
  LeftOut left_out;
};

class Trainer {
 public:
  Trainer(const TrainOptions& options, LogFn log, ProgressFn progress);
  ~Trainer();
  // Until the epochs are over, the target is reached or a signal asks to stop. TrainingError if a loss, a gradient or a
  // weight is not finite (f16 skips the step instead, as its scaler must). The state before such a step, or before one
  // whose data cannot be read, is saved.
  TrainResult run();
  nn::Module& model() { return task_->model(); }

 private:
  void freeze_modules();
  void make_optimizer();
  void make_schedule();
  void open_folder();
  void go_on();
  void run_epochs();
  void train_epoch();
  void step();
  void step_or_restore();
  void compile_step();
  double forward_and_backward(int64_t index);
  void check_loss(double loss, int64_t index);
  void check_gradients();
  void evaluate();
  std::string not_finite() const;
  void save();
  void save_last_good();
  void finish_save();
  State state() const;
  std::string config() const;
  void show_step();

  TrainOptions options_;
  LogFn log_;
  ProgressFn progress_;
  std::unique_ptr<Task> task_;
  std::optional<Compiled> fast_;  // loss and gradients of a batch
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::LRScheduler> schedule_;
  optim::GradScaler scaler_;
  std::unique_ptr<io::CheckpointFolder> folder_;
  Generator generator_;   // dropout
  std::string identity_;  // of the task, where checkpoints are written
  int64_t saving_ = -1;   // the step that is being written, if any

  int64_t epoch_ = 0, batch_ = 0;  // the next batch
  int64_t step_ = 0;
  double loss_ = 0;   // of the last step
  double shown_ = 0;  // when the progress was shown last
  double start_ = 0;  // of this run, in seconds
  int64_t samples_ = 0;
  TrainResult result_;
};

}  // namespace deft::cli
