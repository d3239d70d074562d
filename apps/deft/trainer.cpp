#include "trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "amp/autocast.h"
#include "base/check.h"
#include "bench/report.h"
#include "clock.h"
#include "core/grad_mode.h"
#include "data/data_error.h"
#include "ops/all_ops.h"
#include "optim/adam.h"
#include "optim/clip_grad.h"
#include "optim/sgd.h"
#include "plan_flags.h"
#include "stop_signal.h"

namespace deft::cli {

namespace {

std::string duration(double seconds) {
  int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

// Biases and norms are not decayed: shrinking them has no use.
bool is_decayed(const Tensor& parameter) { return parameter.dim() >= 2; }

}  // namespace

Trainer::Trainer(const TrainOptions& options, LogFn log, ProgressFn progress)
    : options_(options),
      log_(std::move(log)),
      progress_(std::move(progress)),
      task_(make_task(options.task)),
      scaler_({.enabled = options.amp == DType::f16}),
      generator_({options.task.seed, 1}) {
  DEFT_CHECK(options.accumulate >= 1 && options.accumulate <= task_->batches_per_epoch(), ValueError,
             "--accumulate {} must lie between 1 and the {} batches of an epoch", options.accumulate,
             task_->batches_per_epoch());
  if (options.plan) use_plan(*task_, *options.plan);  // before the optimizer gets the parameters
  freeze_modules();
  if (options.plan && options.plan->compile && task_->has_batches() && !scaler_.is_enabled()) compile_step();
  make_optimizer();
  make_schedule();
  if (!options.folder.empty()) open_folder();
}
Trainer::~Trainer() = default;

void check_folder(const TrainOptions& o) {
  const char* needs = o.resume ? "--resume" : o.overwrite ? "--overwrite" : nullptr;
  DEFT_CHECK(!needs || !o.folder.empty(), ValueError, "{} needs --out, the folder of the checkpoints", needs);
  if (needs || !std::filesystem::is_directory(o.folder)) return;
  const std::vector<std::string> files = io::CheckpointFolder(o.folder).files();
  DEFT_CHECK(files.empty(), ValueError,
             "--out {} holds checkpoints of an earlier run, the newest is {}; go on with that run by --resume, replace "
             "it by --overwrite, or choose another folder",
             o.folder, files.front());
}

void Trainer::open_folder() {
  folder_ = std::make_unique<io::CheckpointFolder>(options_.folder);
  identity_ = task_->identity();
  if (options_.resume) go_on();
  if (options_.overwrite) folder_->clear();
}

void Trainer::freeze_modules() {
  if (options_.freeze.empty()) return;
  bool any = false;
  for (auto& [name, module] : task_->model().named_modules()) {
    if (name.empty() || !name.starts_with(options_.freeze)) continue;
    module->freeze();
    any = true;
  }
  DEFT_CHECK(any, ValueError, "--freeze {}: the model has no module of that name; its modules:\n{}", options_.freeze,
             task_->model().to_string());
}

void Trainer::make_optimizer() {
  std::vector<Tensor> decayed, others;
  for (const Tensor& p : task_->model().parameters()) (is_decayed(p) ? decayed : others).push_back(p);
  bool sgd = options_.optimizer == "sgd";
  double lr = options_.lr > 0 ? options_.lr : sgd ? 0.1 : 3e-3;
  if (sgd) {
    optim::SGDOptions o{.lr = lr, .momentum = 0.9, .weight_decay = options_.weight_decay, .nesterov = true};
    optim::SGDOptions plain = o;
    plain.weight_decay = 0;
    optimizer_ =
        std::make_unique<optim::SGD>(std::vector<optim::ParamGroup<optim::SGDOptions>>{{decayed, o}, {others, plain}});
  } else {
    optim::AdamWOptions o{.lr = lr, .weight_decay = options_.weight_decay}, plain = o;
    plain.weight_decay = 0;
    optimizer_ = std::make_unique<optim::AdamW>(
        std::vector<optim::ParamGroup<optim::AdamWOptions>>{{decayed, o}, {others, plain}});
  }
}

void Trainer::make_schedule() {
  int64_t steps = options_.epochs * (task_->batches_per_epoch() / options_.accumulate);
  if (options_.schedule == "one-cycle") {
    optim::OneCycleOptions o;
    o.max_lr = optimizer_->lr();
    o.total_steps = steps + 1;  // the constructor takes the first
    schedule_ = std::make_unique<optim::OneCycleLR>(*optimizer_, o);
  } else if (options_.schedule == "cosine") {
    schedule_ = std::make_unique<optim::CosineAnnealingLR>(*optimizer_, steps);
  } else {
    schedule_ = std::make_unique<optim::ConstantLR>(*optimizer_, 1.0, 1);
  }
}

// Everything that decides what the numbers mean; a checkpoint of another run is refused.
std::string Trainer::config() const {
  const TrainOptions& o = options_;
  std::string plan;
  if (o.plan && o.plan->layout == MemoryFormat::channels_last) plan += " layout=channels_last";
  if (fast_) plan += fmt::format(" compile={}", fmt::join(o.plan->off_passes, ","));
  return fmt::format(
      "model={} data={} batch={} length={} train={} test={} seed={} epochs={} optimizer={} lr={} decay={} "
      "schedule={} amp={} accumulate={} clip={} freeze={}{}{}{}",
      o.task.model, o.task.data, o.task.batch, o.task.length, o.task.train_size, o.task.test_size, o.task.seed,
      o.epochs, o.optimizer, o.lr, o.weight_decay, o.schedule, name_of(o.amp), o.accumulate, o.clip, o.freeze, plan,
      identity_.empty() ? "" : " ", identity_);
}

State Trainer::state() const {
  State all;
  all.add("model", {task_->model().state_dict(), {}});
  all.add("optimizer", optimizer_->state());
  all.add("schedule", schedule_->state());
  all.add("scaler", scaler_.state());
  all.add("task", task_->state());
  State run;
  run.values["epoch"] = epoch_;
  run.values["batch"] = batch_;
  run.values["step"] = step_;
  run.values["rng_seed"] = static_cast<int64_t>(generator_.state().seed);
  run.values["rng_offset"] = static_cast<int64_t>(generator_.state().offset);
  if (std::vector<std::string> names = task_->class_names(); !names.empty()) run.values["classes"] = std::move(names);
  all.add("run", run);
  return all;
}

void Trainer::go_on() {
  auto found = folder_->newest(config());
  if (!found) return;
  for (const std::string& why : found->skipped) log_(bench::object("event", "skipped_checkpoint", "why", why).dump());
  const State& all = found->checkpoint.state;
  task_->model().load_state_dict(all.part("model").tensors);
  optimizer_->load_state(all.part("optimizer"));
  schedule_->load_state(all.part("schedule"));
  scaler_.load_state(all.part("scaler"));
  task_->load_state(all.part("task"));
  State run = all.part("run");
  epoch_ = run.get<int64_t>("epoch");
  batch_ = run.get<int64_t>("batch");
  step_ = run.get<int64_t>("step");
  generator_.set_state(
      {static_cast<uint64_t>(run.get<int64_t>("rng_seed")), static_cast<uint64_t>(run.get<int64_t>("rng_offset"))});
  log_(bench::object("event", "resumed", "from", found->path, "epoch", epoch_, "batch", batch_, "step", step_).dump());
}

TrainResult Trainer::run() {
  start_ = now();
  try {
    run_epochs();
  } catch (const TrainingError& error) {
    save_last_good();
    if (!folder_) throw;
    const std::vector<std::string> files = folder_->files();
    throw TrainingError(fmt::format("{}; {}", error.what(),
                                    files.empty() ? std::string("there was no good state to save")
                                                  : fmt::format("the last good state is in {}", files.front())));
  } catch (const data::DataError&) {
    save_last_good();
    throw;
  }
  finish_save();
  result_.steps = step_;
  result_.epochs = epoch_;
  result_.seconds = now() - start_;
  result_.samples_per_second = static_cast<double>(samples_) / std::max(1e-9, result_.seconds);
  result_.left_out = task_->left_out();
  return result_;
}

void Trainer::run_epochs() {
  while (epoch_ < options_.epochs && !result_.stopped && !result_.reached) {
    train_epoch();
    if (result_.stopped) break;
    evaluate();
    ++epoch_;
    batch_ = 0;
    result_.reached = options_.target > 0 && result_.score.accuracy >= options_.target;
    save();
  }
}

void Trainer::train_epoch() {
  task_->model().train();
  int64_t steps = task_->batches_per_epoch() / options_.accumulate;
  while (batch_ < steps * options_.accumulate) {
    step_or_restore();
    ++step_;
    if (folder_ && !folder_->saving()) finish_save();  // a full disk is noticed now, not at the next save
    result_.stopped = stop_signal() != 0;
    if (result_.stopped || (options_.save_every > 0 && step_ % options_.save_every == 0)) save();
    if (result_.stopped) return;
    show_step();
  }
}

// Forward and backward as one plan. What comes after reads the loss on the host first.
void Trainer::compile_step() {
  CompileOptions options;
  options.state = [this] { return task_->model().fingerprint(); };
  auto run = [this](const Tensor& inputs, const Tensor& targets) {
    Tensor loss = [&] {
      AutocastGuard autocast(options_.amp);
      return task_->loss({inputs, targets});
    }();
    (loss / static_cast<double>(options_.accumulate)).backward();
    return loss.detach();
  };
  fast_ = compile(run, options_.plan->compile_options(options));
}

// Adds the gradients of a batch to the parameters'. The loss.
double Trainer::forward_and_backward(int64_t index) {
  TaskBatch batch;
  if (options_.plan && task_->has_batches()) {
    batch = task_->batch(epoch_, index);
    batch.inputs = options_.plan->prepare(batch.inputs);
  }
  if (fast_) {
    double value = (*fast_)(batch.inputs, batch.targets).item();
    check_loss(value, index);
    return value;
  }
  Tensor loss = [&] {
    AutocastGuard autocast(options_.amp);
    return batch.inputs.defined() ? task_->loss(batch) : task_->loss(epoch_, index);
  }();
  double value = loss.item();
  check_loss(value, index);
  scaler_.scale(loss / static_cast<double>(options_.accumulate)).backward();
  return value;
}

// A step that fails leaves nothing behind: neither random numbers taken, nor statistics of a batch that is no good.
void Trainer::step_or_restore() {
  if (!folder_) return step();
  const auto random = generator_.state();
  const State memory = task_->state();
  NamedTensors buffers = task_->model().named_buffers();
  std::vector<Tensor> values;
  for (const NamedTensor& b : buffers) values.push_back(b.tensor.clone());
  try {
    step();
  } catch (...) {
    NoGradGuard no_grad;
    generator_.set_state(random);
    task_->load_state(memory);
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].tensor.copy_(values[i]);
    throw;
  }
}

void Trainer::step() {
  ExecContext with_generator = context();
  with_generator.rng = &generator_;
  ContextGuard guard(with_generator);
  optimizer_->zero_grad();
  double sum = 0;
  for (int64_t i = 0; i < options_.accumulate; ++i) sum += forward_and_backward(batch_ + i);
  loss_ = sum / static_cast<double>(options_.accumulate);
  double grad_scale = 1;
  if (scaler_.is_enabled()) {
    if (options_.clip > 0) {
      scaler_.unscale_(*optimizer_);
      optim::clip_grad_norm_(task_->model().parameters(), options_.clip);
    }
    optim::ScaledStep done = scaler_.step(*optimizer_);
    scaler_.update();
    if (!done.stepped) {
      ++result_.skipped;
      log_(bench::object("event", "skipped", "step", step_, "why", done.to_string()).dump());
    }
  } else {
    double norm = optim::grad_norm(task_->model().parameters());
    if (!std::isfinite(norm)) check_gradients();
    if (options_.clip > 0) grad_scale = optim::clip_factor(norm, options_.clip);
    optimizer_->step({.grad_scale = grad_scale});
  }
  schedule_->step();
  batch_ += options_.accumulate;
  samples_ += options_.accumulate * options_.task.batch;
}

// The step is computed again with checks after every op, so that the first bad one is named.
void Trainer::check_loss(double loss, int64_t index) {
  if (std::isfinite(loss)) return;
  std::string why = not_finite();
  why = why.empty() ? "no single op made it: the inputs are not finite" : fmt::format("{} is not finite", why);
  try {
    AnomalyGuard anomaly;
    NoGradGuard no_grad;
    AutocastGuard autocast(options_.amp);
    task_->loss(epoch_, index);
  } catch (const GradError& e) {
    why = e.what();
  }
  DEFT_FAIL(cli::TrainingError, "the loss of epoch {}, batch {} is {}: {}; lower --lr, or clip with --clip 1", epoch_,
            index, loss, why);
}

void Trainer::check_gradients() {
  for (const NamedTensor& p : task_->model().named_parameters()) {
    Tensor g = p.tensor.grad();
    if (g.defined() && !std::isfinite(g.abs().amax().item()))
      DEFT_FAIL(
          cli::TrainingError,
          "the gradient of {} is not finite in step {}; nothing was changed by this step; lower --lr, or clip with "
          "--clip 1",
          p.name, step_);
  }
}

void Trainer::evaluate() {
  AutocastGuard autocast(options_.amp);
  result_.score = task_->evaluate([&](double part) { progress_(fmt::format("evaluating, {:.0f} %", 100 * part)); });
  const Score& s = result_.score;
  log_(bench::object("event", "epoch", "epoch", epoch_ + 1, "step", step_, "train_loss", loss_, "test_loss", s.loss,
                     "accuracy", s.accuracy, "lr", optimizer_->lr(), "left_out", task_->left_out().count, "seconds",
                     now() - start_, "samples_per_second", static_cast<double>(samples_) / (now() - start_))
           .dump());
  if (std::isfinite(s.loss)) return;
  const std::string bad = not_finite();
  DEFT_FAIL(cli::TrainingError, "the test loss of epoch {} is {}: {}; lower --lr, or clip with --clip 1", epoch_ + 1,
            s.loss, bad.empty() ? std::string("the answers are not finite") : fmt::format("{} is not finite", bad));
}

// The first parameter or buffer that is not, "" if all are.
std::string Trainer::not_finite() const {
  NoGradGuard no_grad;
  for (const NamedTensor& t : task_->model().state_dict())
    if (is_floating(t.tensor.dtype()) && t.tensor.numel() > 0 && !std::isfinite(t.tensor.abs().amax().item()))
      return t.name;
  return "";
}

// Never a state that is past saving: it would take the place of a good one.
void Trainer::save() {
  if (!folder_) return;
  const std::string bad = not_finite();
  DEFT_CHECK(bad.empty(), cli::TrainingError, "{} is not finite after step {}; lower --lr, or clip with --clip 1", bad,
             step_);
  finish_save();
  folder_->save_async(state(), {step_, config()});
  saving_ = step_;
}

// When a step failed: what the ones before it did is not lost.
void Trainer::save_last_good() {
  if (!folder_) return;
  finish_save();
  if (!not_finite().empty()) return;
  save();
  finish_save();
}

// Waits for the checkpoint that is being written; logged as saved only when it is.
void Trainer::finish_save() {
  if (saving_ < 0) return;
  int64_t step = std::exchange(saving_, -1);
  result_.checkpoint = folder_->wait();
  log_(bench::object("event", "saved", "step", step, "path", result_.checkpoint).dump());
}

void Trainer::show_step() {
  double time = now(), elapsed = time - start_;
  if (time - shown_ < 0.2) return;
  shown_ = time;
  int64_t batches = task_->batches_per_epoch(), total = options_.epochs * batches, done = epoch_ * batches + batch_;
  double rate = static_cast<double>(samples_) / std::max(1e-9, elapsed);
  double left = static_cast<double>((total - done) * options_.task.batch) / std::max(1e-9, rate);
  progress_(fmt::format("epoch {}/{}, batch {}/{}, loss {:.4f}, {:.1f} % last test, {:.0f} samples/s, {} left",
                        epoch_ + 1, options_.epochs, batch_, batches, loss_, 100 * result_.score.accuracy, rate,
                        duration(left)));
  log_(bench::object("event", "step", "step", step_, "epoch", epoch_ + 1, "loss", loss_, "samples_per_second", rate)
           .dump());
}

}  // namespace deft::cli
