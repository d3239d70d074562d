// deft eval
#include <fmt/format.h>

#include <chrono>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "output.h"
#include "plan_flags.h"
#include "runtime/parallel.h"
#include "task_flags.h"
#include "verbs.h"
#include "weights.h"

namespace deft::cli {

namespace {

struct EvalFlags : CommonFlags {
  TaskOptions task;
  std::string weights, plan_file, amp = "off", device = "cpu";
};

// The type of matmuls and weights together, as the model runs.
DType precision_of(DType amp, const std::optional<Plan>& plan) {
  return plan && plan->dtype != DType::f32 ? plan->dtype : amp;
}

int run(EvalFlags& f, Command command) {
  const Weights weights = read_weights(f.weights);
  take_settings(command, f.task, weights);
  std::optional<Plan> plan = plan_for(command, f.plan_file, PlanUse::eval, f, f.task, f.amp);
  if (f.threads > 0) set_num_threads(f.threads);
  f.task.device = chosen_device(f.device);
  DType amp = amp_dtype(f.amp, f.quiet, f.task.device);
  std::unique_ptr<Task> task = make_task(f.task);
  load_weights(task->model(), f.task.model, weights);
  if (plan) use_plan(*task, *plan);
  bench::Report report;
  auto start = std::chrono::steady_clock::now();
  Score score;
  {
    Progress progress("eval", f.quiet);
    AutocastGuard autocast(amp);
    InferenceModeGuard inference(plan && plan->grad_mode == PlanGradMode::inference);
    score = task->evaluate([&](double part) { progress.show(fmt::format("{:.0f} %", 100 * part)); });
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.results.push_back(bench::object(
      "case", f.task.model, "data", f.task.data, "amp", std::string(name_of(precision_of(amp, plan))), "samples",
      score.samples, "left_out_samples", task->left_out().count, "test_loss", score.loss, "accuracy_percent",
      100 * score.accuracy, "seconds", seconds, "samples_per_second", static_cast<double>(score.samples) / seconds));
  Presentation p;
  p.title = fmt::format("{} on the test set of {}", f.task.model, f.task.data);
  p.columns = {{"case", "model"},
               {"amp", "type"},
               {"samples", "samples"},
               {"test_loss", "test loss", 4},
               {"accuracy_percent", "test accuracy %", 2},
               {"seconds", "s", 1},
               {"samples_per_second", "samples/s", 0}};
  tell_left_out("eval", task->left_out());
  return print_report(report, f, p);
}

}  // namespace

std::function<int()> add_eval(Command command) {
  auto flags = std::make_shared<EvalFlags>();
  add_common_flags(command, *flags);
  add_threads_flag(command, *flags);
  add_task_flags(command, flags->task);
  add_amp_flag(command, flags->amp);
  add_device_flag(command, flags->device, "--device");
  add_plan_flag(command, flags->plan_file);
  add_on_error_flag(command, flags->task);
  command.add_option("-w,--weights", flags->weights, "Checkpoint of deft train, safetensors or PyTorch file")
      .required()
      .type_name("FILE");
  return [flags, command] { return run(*flags, command); };
}

}  // namespace deft::cli
