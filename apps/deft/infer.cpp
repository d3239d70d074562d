// deft infer: the answers of a model, one line per sample.
#include <fmt/format.h>

#include "amp/autocast.h"
#include "base/check.h"
#include "core/grad_mode.h"
#include "data/image_set.h"
#include "exit_code.h"
#include "io/npy.h"
#include "ops/all_ops.h"
#include "output.h"
#include "runtime/parallel.h"
#include "task_flags.h"
#include "verbs.h"
#include "weights.h"

namespace deft::cli {

namespace {

struct Flags : CommonFlags {
  TaskOptions task;
  std::string weights, input, amp = "off", device = "cpu";
  int64_t top = 1;
  bool half = false;
};

// [n, channels, height, width] as the model takes it: floats as they are, bytes as pictures.
Tensor read_input(const Flags& f, const Task& task) {
  if (f.input.empty()) return task.test_inputs(f.task.test_size ? f.task.test_size : 16);
  Tensor x = io::load_npy(f.input);
  if (x.dtype() == DType::u8) return task.normalize(x);
  DEFT_CHECK(is_floating(x.dtype()), DTypeError, "{} holds {}; infer takes floats, or u8 for pictures", f.input,
             name_of(x.dtype()));
  return x.to(f.task.device).to(DType::f32);
}

int run(Flags& f) {
  if (f.threads > 0) set_num_threads(f.threads);
  f.task.device = chosen_device(f.device);
  DType amp = amp_dtype(f.amp, f.quiet, f.task.device);
  std::unique_ptr<Task> task = make_task(f.task);
  load_weights(task->model(), f.task.model, f.weights);
  if (f.half) task->model().to(DType::bf16);
  nn::EvalGuard eval(task->model());
  InferenceModeGuard inference;
  AutocastGuard autocast(amp);
  Tensor x = read_input(f, *task);
  bench::Report report;
  for (int64_t at = 0; at < x.size(0); at += f.task.batch) {
    Tensor part = x.narrow(0, at, std::min(f.task.batch, x.size(0) - at));
    Tensor logits = task->model()(f.half ? part.to(DType::bf16) : part).to(DType::f32).to(kCPU);
    auto [values, classes] = topk(softmax(logits, -1), std::min(f.top, logits.size(-1)));
    for (int64_t i = 0; i < part.size(0); ++i)
      for (int64_t k = 0; k < classes.size(1); ++k)
        report.results.push_back({{"case", at + i},
                                  {"rank", k + 1},
                                  {"class", classes[i][k].item<int64_t>()},
                                  {"probability", values[i][k].item()}});
  }
  Presentation p;
  p.title = fmt::format("{}: {} samples", f.task.model, x.size(0));
  p.columns = {{"case", "sample"}, {"rank", "rank"}, {"class", "class"}, {"probability", "probability", 4}};
  return print_report(report, f, p);
}

}  // namespace

std::function<int()> add_infer(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  add_common_flags(app, *flags);
  add_threads_flag(app, *flags);
  add_task_flags(app, flags->task);
  add_amp_flag(app, flags->amp);
  add_device_flag(app, flags->device, "--device");
  app.add_option("-w,--weights", flags->weights, "Checkpoint of deft train, safetensors or PyTorch file")
      ->required()
      ->type_name("FILE");
  app.add_option("-i,--input", flags->input, "npy file [n, channels, height, width]; default: the first test pictures")
      ->type_name("FILE");
  app.add_option("--top", flags->top, "Classes per sample; default 1")->check(whole_number(1, 1000))->type_name("N");
  app.add_flag("--half", flags->half, "Weights and activations in bf16");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
