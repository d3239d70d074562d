// deft compile: a model and its weights become a plan in a file, which deft infer --plan runs without the model.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "exit_code.h"
#include "graph/memory_plan.h"
#include "io/plan_file.h"
#include "nn/compile_module.h"
#include "ops/all_ops.h"
#include "output.h"
#include "runtime/parallel.h"
#include "task_flags.h"
#include "verbs.h"
#include "weights.h"

namespace deft::cli {

namespace {

struct CompileFlags : CommonFlags {
  TaskOptions task;
  std::string weights, out, amp = "off", device = "cpu";
  bool half = false;
};

// Whole batches, and single samples for what is left of the last one.
Compiled compile_for(Task& task, const CompileFlags& f) {
  Compiled fast = compile(task.model());
  Tensor one = task.test_inputs(1);
  if (f.half) one = one.to(DType::bf16);
  Shape sizes = one.sizes();
  for (int64_t batch : {int64_t{1}, f.task.batch}) {
    sizes[0] = batch;
    fast(one.expand(sizes).contiguous());
  }
  return fast;
}

int run(CompileFlags& f, Command command) {
  const Weights weights = read_weights(f.weights);
  take_settings(command, f.task, weights);
  if (f.threads > 0) set_num_threads(f.threads);
  f.task.device = chosen_device(f.device);
  DType amp = amp_dtype(f.amp, f.quiet, f.task.device);
  std::unique_ptr<Task> task = make_task(f.task);
  load_weights(task->model(), f.task.model, weights);
  if (f.half) task->model().to(DType::bf16);
  nn::EvalGuard eval(task->model());
  InferenceModeGuard inference;
  AutocastGuard autocast(amp);
  auto begin = std::chrono::steady_clock::now();
  Compiled fast = compile_for(*task, f);
  std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  io::save_plan(fast, f.out, {f.task.model});
  bench::Report report;
  for (const graph::Graph* g : fast.graphs()) {
    int64_t kernels = std::count_if(g->instructions.begin(), g->instructions.end(),
                                    [](const graph::Instruction& x) { return x.action != graph::Action::view; });
    report.results.push_back(bench::object(
        "case", f.task.model, "batch", g->value(g->inputs[0]).meta.sizes[0], "kernels", kernels, "arena_mb",
        static_cast<double>(graph::plan_memory(*g).bytes) / 1e6, "compile_ms", took.count(), "file", f.out));
  }
  Presentation p;
  p.title = fmt::format("{} in {}", f.task.model, f.out);
  p.columns = {{"batch", "batch"}, {"kernels", "kernels"}, {"arena_mb", "results in between, MB", 2}};
  p.notes = {fmt::format("Compiled in {:.0f} ms. Run it with: deft infer --plan {}", took.count(), f.out)};
  return print_report(report, f, p);
}

}  // namespace

std::function<int()> add_compile(Command command) {
  auto flags = std::make_shared<CompileFlags>();
  add_common_flags(command, *flags);
  add_threads_flag(command, *flags);
  add_task_flags(command, flags->task);
  add_amp_flag(command, flags->amp);
  add_device_flag(command, flags->device, "--device");
  command.add_option("-w,--weights", flags->weights, "Checkpoint of deft train, safetensors or PyTorch file")
      .required()
      .type_name("FILE");
  command.add_option("--out", flags->out, "The plan: everything it needs is in this file").required().type_name("FILE");
  command.add_flag("--half", flags->half, "Weights and activations in bf16");
  return [flags, command] { return run(*flags, command); };
}

}  // namespace deft::cli
