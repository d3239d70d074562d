#include "doctor_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "amp/autocast.h"
#include "base/check.h"
#include "clock.h"
#include "data/loader.h"
#include "models/cnn.h"
#include "nn/compile_module.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "optim/adam.h"
#include "runtime/parallel.h"
#include "runtime/stream.h"
#include "stop_signal.h"
#include "weights.h"

namespace deft::cli {

namespace {

constexpr int64_t kLearnSteps = 64, kLearnBatch = 128;
// Of the budget at most: learning and a step of it, the samples that results are compared on, a batch that is measured.
constexpr double kLearnShare = 0.15, kLearnStepShare = 0.01, kLabelledShare = 0.01, kBatchShare = 0.005;
constexpr double kTrainCost = 3;  // of a step, in forward passes
constexpr double kQuick = 0.01;   // a sample that takes less is timed in a batch
constexpr int64_t kMostLabelled = 1024, kTimedSamples = 32, kMostBatch = 128;
constexpr int64_t kTextRows = 16;  // that `deft eval` takes at a time
constexpr int64_t kTrainBatch = 32, kCheckSteps = 4;
constexpr int64_t kPlanLabelled = 256;  // samples that plans are compared on, in whole batches
constexpr int kWarmUps = 4;
constexpr double kUnitSeconds = 0.003;  // of a run in turns, at least

// A window of the samples in each epoch, the next one each time: a unit of work for a trial.
class WindowSampler : public data::Sampler {
 public:
  WindowSampler(int64_t samples, int64_t window) : samples_(samples), window_(window) {}
  int64_t size() const override { return window_; }
  std::vector<int64_t> indices(uint64_t, int64_t epoch) const override {
    std::vector<int64_t> rows(static_cast<size_t>(window_));
    for (int64_t i = 0; i < window_; ++i) rows[static_cast<size_t>(i)] = (epoch * window_ + i) % samples_;
    return rows;
  }
  std::string describe() const override { return fmt::format("windows of {} of {}", window_, samples_); }

 private:
  int64_t samples_, window_;
};

struct Right {
  int64_t right = 0, of = 0;
  void add(const Tensor& outputs, const Tensor& targets) {
    if (!targets.defined()) return;
    Tensor wanted = targets.reshape({-1});
    Tensor found = outputs.reshape({wanted.numel(), -1}).argmax(-1);
    right += (found == wanted).to(DType::i64).sum().item<int64_t>();
    of += (wanted >= 0).to(DType::i64).sum().item<int64_t>();
  }
  double accuracy() const { return of == 0 ? -1 : static_cast<double>(right) / static_cast<double>(of); }
};

Tensor loss_of(const Tensor& outputs, const Tensor& targets) {
  DEFT_CHECK(targets.defined(), UnsupportedError, "the doctor knows this model's answers only; use --task infer");
  Tensor wanted = targets.reshape({-1});
  return cross_entropy(outputs.reshape({wanted.numel(), -1}), wanted);
}

// Model, loader and compiled model of one plan.
class TaskRun : public doctor::PreparedRun {
 public:
  using OutOfTime = std::function<bool()>;
  TaskRun(std::shared_ptr<const TrainedTask> trained, const Plan& plan, bool train, const OutOfTime& out_of_time)
      : trained_(std::move(trained)),
        plan_(plan),
        out_of_time_(out_of_time),
        model_(trained_->task->new_model()),
        samples_(trained_->task->samples(train)) {
    model_->load_state_dict(trained_->state);
    plan_.prepare(*model_);
  }

  double run(int64_t samples) override {
    if (samples != window_) open(samples);
    PlanScope scope(plan_);
    double start = now();
    try {
      loop();
    } catch (const doctor::OutOfTime&) {
      window_ = 0;  // in the middle of an epoch: begin anew
      throw;
    }
    return now() - start;
  }

 protected:
  virtual void loop() = 0;

  // Between batches.
  void check_time() const {
    if (out_of_time_()) throw doctor::OutOfTime();
  }
  TaskBatch taken(const data::Batch& batch) const { return trained_->task->taken(batch, plan_.dtype, plan_.layout); }
  data::DataLoader labelled() const {
    auto first = std::make_shared<WindowSampler>(trained_->task->samples(false)->size(), trained_->labelled);
    data::LoaderOptions o = plan_.loader_options({.sampler = first, .device = trained_->options.device});
    return data::DataLoader(trained_->task->samples(false), o);
  }

  std::shared_ptr<const TrainedTask> trained_;
  Plan plan_;
  const OutOfTime& out_of_time_;  // of the workload
  std::unique_ptr<nn::Module> model_;
  std::shared_ptr<const data::Dataset> samples_;
  std::optional<data::DataLoader> loader_;

 private:
  // Nothing is loaded ahead of the next unit while another run is measured.
  void open(int64_t samples) {
    data::LoaderOptions o = plan_.loader_options({.across_epochs = false, .device = trained_->options.device});
    o.sampler = std::make_shared<WindowSampler>(samples_->size(), samples);
    loader_.emplace(samples_, o);
    window_ = samples;
  }
  int64_t window_ = 0;
};

class TestRun : public TaskRun {
 public:
  TestRun(std::shared_ptr<const TrainedTask> trained, const Plan& plan, bool validate, const OutOfTime& out_of_time)
      : TaskRun(std::move(trained), plan, false, out_of_time), validate_(validate) {
    if (plan_.compile) compiled_.emplace(compile(*model_, plan_.compile_options()));
  }

  doctor::Outcome check() override {
    if (!plan_.eval && used_)  // statistics of norms have moved
      return TestRun(trained_, plan_, validate_, out_of_time_).check();
    used_ = true;
    PlanScope scope(plan_);
    RngScope rng({1, 0});
    Right right;
    std::vector<Tensor> outputs;
    data::DataLoader loader = labelled();
    for (const data::Batch& batch : loader) {
      check_time();
      TaskBatch b = taken(batch);
      outputs.push_back(forward(b.inputs).detach().to(DType::f32));
      right.add(outputs.back(), b.targets);
    }
    return {cat(outputs, 0), right.accuracy()};
  }

 private:
  Tensor forward(const Tensor& x) { return compiled_ ? (*compiled_)(x) : (*model_)(x); }

  void loop() override {
    used_ = true;
    validate_ ? validate() : infer();
  }

  // The two loops below are as people write them: all that makes them slow, or fast, is the plan around them.
  void infer() {
    classes_.clear();
    for (const data::Batch& batch : *loader_) {
      check_time();
      TaskBatch b = taken(batch);
      Tensor outputs = forward(b.inputs);
      for (int64_t best : outputs.argmax(-1).to_vector<int64_t>()) classes_.push_back(best);
    }
  }
  void validate() {
    double loss = 0;
    Right right;
    for (const data::Batch& batch : *loader_) {
      check_time();
      TaskBatch b = taken(batch);
      Tensor outputs = forward(b.inputs).to(DType::f32);
      loss += loss_of(outputs, b.targets).item();
      right.add(outputs, b.targets);
    }
    DEFT_CHECK(std::isfinite(loss), ValueError, "the validation loss is {}", loss);
  }

  bool validate_, used_ = false;
  std::optional<Compiled> compiled_;
  std::vector<int64_t> classes_;
};

class TrainRun : public TaskRun {
 public:
  TrainRun(std::shared_ptr<const TrainedTask> trained, const Plan& plan, const OutOfTime& out_of_time)
      : TaskRun(std::move(trained), plan, true, out_of_time), optimizer_(model_->parameters(), {.lr = 1e-4}) {
    if (!plan_.compile) return;
    auto whole_step = [this](const std::vector<Tensor>& xy) { return std::vector<Tensor>{step(xy.at(0), xy.at(1))}; };
    CompileOptions o = plan_.compile_options();
    o.state = [this] { return model_->fingerprint(); };
    compiled_.emplace(compile(Compiled::Function(whole_step), o));
  }

  // What the model says after a few steps from the same start.
  doctor::Outcome check() override {
    TrainRun fresh(trained_, plan_, out_of_time_);
    RngScope rng({1, 0});
    fresh.run(kCheckSteps * plan_.batch);
    nn::EvalGuard eval(*fresh.model_);
    NoGradGuard no_grad;
    Right right;
    std::vector<Tensor> outputs;
    data::DataLoader loader = labelled();
    for (const data::Batch& batch : loader) {
      check_time();
      TaskBatch b = taken(batch);
      outputs.push_back((*fresh.model_)(b.inputs).to(DType::f32));
      right.add(outputs.back(), b.targets);
    }
    return {cat(outputs, 0), right.accuracy()};
  }

 private:
  void loop() override {
    double sum = 0;
    for (const data::Batch& batch : *loader_) {
      check_time();
      TaskBatch b = taken(batch);
      Tensor loss = compiled_ ? compiled_->run({b.inputs, b.targets})[0] : step(b.inputs, b.targets);
      sum += loss.item();
    }
    DEFT_CHECK(std::isfinite(sum), ValueError, "the training loss is {}", sum);
  }
  Tensor step(const Tensor& inputs, const Tensor& targets) {
    optimizer_.zero_grad();
    Tensor loss = loss_of((*model_)(inputs), targets);
    loss.backward();
    optimizer_.step();
    return loss.detach();
  }
  optim::AdamW optimizer_;
  std::optional<Compiled> compiled_;
};

class TaskWorkload : public doctor::Workload {
 public:
  TaskWorkload(std::shared_ptr<const TrainedTask> trained, std::string kind)
      : trained_(std::move(trained)), kind_(std::move(kind)) {}
  std::string name() const override {
    const std::string of = trained_->plan_file.empty() ? "" : fmt::format("{}, a plan of ", trained_->plan_file);
    return fmt::format("{}{} on {}", of, trained_->options.model, trained_->options.data);
  }
  std::string task() const override { return kind_; }
  doctor::WorkloadTraits traits() const override {
    doctor::WorkloadTraits t;
    t.trains = kind_ == "train";
    t.images = trained_->options.data != "text";
    t.loads = true;
    // Where batches are cut to fit the budget their size is not to choose.
    const bool cut = !trained_->naive && today().batch < usual_batch(*trained_, kind_);
    t.most_batch = cut ? 0 : std::min(t.images ? kMostBatch : kTextRows, trained_->labelled);
    t.plan_batches = trained_->batches;
    return t;
  }
  Plan today() const override {
    if (trained_->naive) return naive();
    Plan p;
    p.batch = measured_batch(*trained_, kind_);
    if (trained_->options.data != "text" && trained_->batches.empty()) p.layout = MemoryFormat::channels_last;
    if (kind_ != "infer" && trained_->options.data == "images") p.workers = num_threads();  // what is on disk
    if (kind_ == "train") return p;
    p.eval = true;
    p.grad_mode = kind_ == "infer" ? PlanGradMode::inference : PlanGradMode::no_grad;
    return p;
  }
  Plan reference() const override {
    Plan p = today();
    if (kind_ == "train" || !trained_->naive) return p;
    p.eval = true;
    p.grad_mode = PlanGradMode::no_grad;
    p.batch = std::min<int64_t>(32, trained_->labelled);
    return p;
  }
  std::unique_ptr<doctor::PreparedRun> prepare(const Plan& plan) override {
    if (kind_ == "train") return std::make_unique<TrainRun>(trained_, plan, out_of_time);
    return std::make_unique<TestRun>(trained_, plan, kind_ == "eval", out_of_time);
  }

 private:
  // What people write first: nothing switched off, one sample at a time, nothing loaded ahead.
  Plan naive() const {
    Plan p;
    if (kind_ == "train") p.batch = kTrainBatch;
    return p;
  }
  std::shared_ptr<const TrainedTask> trained_;
  std::string kind_;
};

// A short training: enough for an accuracy that a worse precision would lower.
std::string learn(Task& task, Device device, int64_t batch, double seconds,
                  const std::function<void(const std::string&)>& progress) {
  auto samples = task.samples(true);
  data::LoaderOptions o{.batch_size = std::min(batch, samples->size()), .shuffle = true, .drop_last = true};
  o.workers = 0;
  o.device = device;
  data::DataLoader loader(samples, o);
  optim::AdamW optimizer(task.model().parameters(), {.lr = 3e-3});
  AutocastGuard autocast(choose_autocast(device).dtype);
  RngScope rng({1, 1});
  task.model().train();
  double end = now() + seconds;
  int64_t step = 0;
  while (step < kLearnSteps && now() < end && !stop_signal()) {
    for (const data::Batch& taken : loader) {
      if (step >= kLearnSteps || now() >= end || stop_signal()) break;
      TaskBatch b = task.taken(taken, DType::f32, MemoryFormat::channels_last);
      if (!b.targets.defined()) return "nothing: the model has first weights";
      progress(fmt::format("the model learns a little: step {} of {}", ++step, kLearnSteps));
      optimizer.zero_grad();
      loss_of(task.model()(b.inputs), b.targets).backward();
      optimizer.step();
    }
  }
  return fmt::format("{} steps of {} samples", step, o.batch_size);
}

// Of a forward pass, the second one, so that nothing is made for the first time.
double seconds_of(Task& task, Device device, int64_t samples) {
  data::DataLoader loader(task.samples(false), {.batch_size = samples, .workers = 0, .device = device});
  data::Batch batch;
  loader.next(batch);
  nn::EvalGuard eval(task.model());
  NoGradGuard no_grad;
  Tensor inputs = task.taken(batch, DType::f32, MemoryFormat::contiguous).inputs;
  task.model()(inputs);
  synchronize(device);
  double start = now();
  task.model()(inputs);
  synchronize(device);
  return now() - start;
}

double seconds_per_sample(Task& task, Device device) {
  const double alone = seconds_of(task, device, 1);
  const int64_t few = std::min(kTimedSamples, task.samples(false)->size());
  return alone > kQuick ? alone : seconds_of(task, device, few) / static_cast<double>(few);
}

// The largest power of two up to `most` whose samples fit into the time; 1 where none does.
int64_t samples_within(double seconds, double per_sample, int64_t most) {
  int64_t n = 1;
  while (2 * n <= most && 2 * static_cast<double>(n) * per_sample <= seconds) n *= 2;
  return n;
}

}  // namespace

std::shared_ptr<const TrainedTask> trained_task(const TaskOptions& options, const std::string& weights, double budget,
                                                const std::function<void(const std::string&)>& progress) {
  auto trained = std::make_shared<TrainedTask>();
  progress("reading the data");
  trained->options = options;
  trained->task = make_task(options);
  Task& task = *trained->task;
  if (!weights.empty()) load_weights(task.model(), options.model, weights);
  trained->budget = budget;
  trained->seconds = seconds_per_sample(task, options.device);
  trained->learned = weights;
  if (weights.empty()) {
    const int64_t batch = samples_within(kLearnStepShare * budget, kTrainCost * trained->seconds, kLearnBatch);
    trained->learned = learn(task, options.device, std::max<int64_t>(2, batch), kLearnShare * budget, progress);
  }
  trained->labelled =
      samples_within(kLabelledShare * budget, trained->seconds, std::min(kMostLabelled, task.samples(false)->size()));
  trained->state = task.model().state_dict();
  return trained;
}

PlanCase plan_case(const std::string& file, const TaskOptions& options, const std::string& weights, double budget) {
  PlanCase c{open_plan_task(file, options), nullptr, nullptr};
  auto trained = std::make_shared<TrainedTask>();
  trained->options = options;
  trained->options.model = c.plan.model.empty() ? "an unnamed model" : c.plan.model;
  trained->plan_file = file;
  trained->budget = budget;
  trained->options.data = c.plan.data;
  trained->options.device = c.plan.device;
  trained->task = c.plan.task;
  trained->batches = c.plan.batches;
  const int64_t largest = c.plan.batches.back();
  trained->labelled = largest * std::max<int64_t>(1, kPlanLabelled / largest);
  trained->learned = fmt::format("compiled into {}", file);
  c.trained = trained;
  if (!c.plan.eager) return c;
  auto compared = std::make_shared<TrainedTask>(*trained);
  compared->task = c.plan.eager;
  compared->batches.clear();
  compared->plan_file.clear();
  if (!weights.empty()) load_weights(compared->task->model(), compared->options.model, weights);
  compared->state = compared->task->model().state_dict();
  compared->learned = weights.empty() ? "first weights" : weights;
  c.compared = compared;
  return c;
}

doctor::TrialResult against_eager(const PlanCase& c, double seconds) {
  Plan form = TaskWorkload(c.trained, "infer").today();
  form.batch = c.plan.batches.back();
  const double end = now() + seconds;
  const std::function<bool()> over = [end] { return now() > end || stop_signal(); };
  Plan op_by_op = form;
  if (c.compared->options.data != "text") op_by_op.layout = MemoryFormat::channels_last;
  TestRun eager(c.compared, op_by_op, false, over), plan(c.trained, form, false, over);
  double once = 0;
  try {
    for (TestRun* run : {&plan, &eager})
      for (int i = 0; i < kWarmUps; ++i) once = run->run(form.batch);
  } catch (const doctor::OutOfTime&) {
    return {};
  }
  const int64_t unit = form.batch * std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kUnitSeconds / once)));
  doctor::TrialOptions o;
  o.out_of_time = over;
  auto per_sample = [&](TestRun& run) { return run.run(unit) / static_cast<double>(unit); };
  return doctor::run_trial([&] { return per_sample(eager); }, [&] { return per_sample(plan); }, o);
}

int64_t usual_batch(const TrainedTask& trained, const std::string& kind) {
  if (!trained.batches.empty()) return trained.batches.back();
  const bool rows = trained.options.data == "text" && kind != "train";
  return rows ? std::min(trained.options.batch, kTextRows) : trained.options.batch;
}

int64_t measured_batch(const TrainedTask& trained, const std::string& kind) {
  const int64_t usual = usual_batch(trained, kind);
  if (!trained.batches.empty()) return usual;
  const double sample = trained.seconds * (kind == "train" ? kTrainCost : 1);
  if (static_cast<double>(usual) * sample <= kBatchShare * trained.budget) return usual;
  return std::min(usual, samples_within(kBatchShare * trained.budget, sample, usual));
}

std::unique_ptr<doctor::Workload> make_workload(std::shared_ptr<const TrainedTask> trained, const std::string& kind) {
  return std::make_unique<TaskWorkload>(std::move(trained), kind);
}

void leaking_loop() {
  models::Cnn model;
  model.eval();
  Tensor images = rand({16, 1, 28, 28}), labels = zeros({16}, DType::i64);
  Tensor total = zeros({});
  for (int batch = 0; batch < 20; ++batch) {
    Tensor loss = cross_entropy(model(images), labels);
    total = total + loss;  // keeps the graph of every batch; loss.item() would keep a number
  }
}

}  // namespace deft::cli
