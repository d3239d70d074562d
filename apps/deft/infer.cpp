// deft infer: the answers of a model, one line per sample.
#include <fmt/format.h>

#include "amp/autocast.h"
#include "base/check.h"
#include "core/grad_mode.h"
#include "data/image_set.h"
#include "exit_code.h"
#include "io/npy.h"
#include "io/plan_file.h"
#include "ops/all_ops.h"
#include "output.h"
#include "plan_flags.h"
#include "runtime/parallel.h"
#include "task_flags.h"
#include "verbs.h"
#include "weights.h"

namespace deft::cli {

namespace {

struct Flags : CommonFlags {
  TaskOptions task;
  std::string weights, plan, plan_file, input, amp = "off", device = "cpu";
  int64_t top = 1;
  bool half = false;
};

// [n, channels, height, width] as the model takes it: floats as they are, bytes as pictures.
Tensor read_input(const Flags& f, const std::function<Task&()>& task) {
  if (f.input.empty()) return task().test_inputs(f.task.test_size ? f.task.test_size : 16);
  Tensor x = io::load_npy(f.input);
  if (x.dtype() == DType::u8) return task().normalize(x);
  DEFT_CHECK(is_floating(x.dtype()), DTypeError, "{} holds {}; infer takes floats, or u8 for pictures", f.input,
             name_of(x.dtype()));
  return x.to(f.task.device).to(DType::f32);
}

int report_on(const Flags& f, const std::string& name, const Tensor& x, int64_t batch, int64_t rest,
              const std::function<Tensor(const Tensor&)>& model) {
  bench::Report report;
  for (int64_t at = 0, size; at < x.size(0); at += size) {
    size = x.size(0) - at >= batch ? batch : std::min(rest, x.size(0) - at);
    Tensor part = x.narrow(0, at, size);
    Tensor logits = model(part).to(DType::f32).to(kCPU);
    auto [values, classes] = topk(softmax(logits, -1), std::min(f.top, logits.size(-1)));
    for (int64_t i = 0; i < part.size(0); ++i)
      for (int64_t k = 0; k < classes.size(1); ++k)
        report.results.push_back({{"case", at + i},
                                  {"rank", k + 1},
                                  {"class", classes[i][k].item<int64_t>()},
                                  {"probability", values[i][k].item()}});
  }
  Presentation p;
  p.title = fmt::format("{}: {} samples", name, x.size(0));
  p.columns = {{"case", "sample"}, {"rank", "rank"}, {"class", "class"}, {"probability", "probability", 4}};
  return print_report(report, f, p);
}

// What is left of the last batch runs sample by sample: a plan serves the sizes it was made for.
int run_plan(const Flags& f) {
  std::unique_ptr<Task> task;  // knows the pictures; its model is not called
  io::PlanInfo info;
  Compiled plan = io::load_plan(f.plan_file, {}, &info);
  InferenceModeGuard inference;
  Meta largest;
  for (const graph::Graph* g : plan.graphs()) {
    DEFT_CHECK(g->inputs.size() == 1 && g->outputs.size() == 1, ValueError,
               "{} takes {} inputs and gives {} results; infer runs plans of one picture model", f.plan_file,
               g->inputs.size(), g->outputs.size());
    const Meta& m = g->value(g->inputs[0]).meta;
    if (m.rank() > 0 && (largest.rank() == 0 || m.sizes[0] > largest.sizes[0])) largest = m;
  }
  DEFT_CHECK(largest.rank() > 0, ValueError, "{} takes no batches", f.plan_file);
  Tensor x = read_input(f, [&]() -> Task& {
    task = make_task(f.task);
    return *task;
  });
  return report_on(f, info.name, x, largest.sizes[0], 1,
                   [&](const Tensor& part) { return plan(part.to(largest.dtype)); });
}

int run_model(Flags& f, const std::optional<Plan>& plan) {
  DType amp = amp_dtype(f.amp, f.quiet, f.task.device);
  std::unique_ptr<Task> task = make_task(f.task);
  load_weights(task->model(), f.task.model, f.weights);
  if (plan) use_plan(*task, *plan);
  if (f.half && !plan) task->model().to(DType::bf16);
  nn::EvalGuard eval(task->model());
  InferenceModeGuard inference;
  AutocastGuard autocast(amp);
  Tensor x = read_input(f, [&]() -> Task& { return *task; });
  return report_on(f, f.task.model, x, f.task.batch, f.task.batch, [&](const Tensor& part) {
    if (plan) return task->forward(part);
    return task->model()(f.half ? part.to(DType::bf16) : part);
  });
}

int run(Flags& f, Command command) {
  DEFT_CHECK(f.weights.empty() != f.plan_file.empty(), ValueError, "infer: give --weights, or --plan-file with a plan");
  std::optional<Plan> plan = plan_for(command, f.plan, PlanUse::infer, f, f.task, f.amp);
  if (f.threads > 0) set_num_threads(f.threads);
  f.task.device = chosen_device(f.device);
  return f.plan_file.empty() ? run_model(f, plan) : run_plan(f);
}

}  // namespace

std::function<int()> add_infer(Command command) {
  auto flags = std::make_shared<Flags>();
  add_common_flags(command, *flags);
  add_threads_flag(command, *flags);
  add_task_flags(command, flags->task);
  add_amp_flag(command, flags->amp);
  add_device_flag(command, flags->device, "--device");
  command.add_option("-w,--weights", flags->weights, "Checkpoint of deft train, safetensors or PyTorch file")
      .type_name("FILE");
  add_plan_flag(command, flags->plan);
  command.add_option("--plan-file", flags->plan_file, "Plan of deft compile, which holds the model and its weights")
      .excludes(command.flag("--plan"))
      .type_name("FILE");
  command
      .add_option("-i,--input", flags->input, "npy file [n, channels, height, width]; default: the first test pictures")
      .type_name("FILE");
  command.add_option("--top", flags->top, "Classes per sample; default 1").check(whole_number(1, 1000)).type_name("N");
  command.add_flag("--half", flags->half, "Weights and activations in bf16");
  return [flags, command] { return run(*flags, command); };
}

}  // namespace deft::cli
