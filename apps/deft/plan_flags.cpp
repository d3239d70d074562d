#include "plan_flags.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "base/note.h"
#include "io/file_format.h"
#include "io/input_file.h"
#include "nn/compile_module.h"

namespace deft::cli {

namespace {

std::string amp_word(DType type) { return type == DType::f32 ? "off" : std::string(name_of(type)); }

// Collects what a plan sets and what it may not set.
class PlanMerge {
 public:
  explicit PlanMerge(Command command) : command_(command) {}

  // The plan's value becomes the flag's, or the flag's the plan's where it was given.
  template <class T>
  void merge(const std::string& flag, T& given, const T& planned) {
    if (!command_.given(flag))
      given = planned;
    else if (given != planned)
      kept_.push_back(fmt::format("{} {} (plan: {})", flag, given, planned));
  }
  void leave_out(const std::string& what) { left_out_.push_back(what); }

  void tell(const std::string& file) const {
    if (!kept_.empty()) print_note("{}: flags win over the plan: {}\n", file, fmt::join(kept_, ", "));
    if (!left_out_.empty()) print_note("{}: not used here: {}\n", file, fmt::join(left_out_, "; "));
  }

 private:
  Command command_;
  std::vector<std::string> kept_, left_out_;
};

// What a plan of another task may say and training cannot do.
void fit_to_training(Plan& plan, const std::string& file, PlanMerge& merge) {
  if (!plan.task().empty() && plan.task() != "train")
    throw ValueError(fmt::format(
        "{} was measured for {}, and its batches and modes do not apply to training; deft doctor --task train "
        "measures a plan for it",
        file, plan.workload));
  if (plan.grad_mode != PlanGradMode::grad || plan.eval)
    merge.leave_out(fmt::format("grad mode {}: training needs gradients", name_of(plan.grad_mode)));
  if (plan.dtype != DType::f32)
    merge.leave_out(
        fmt::format("weights in {}: training keeps them in f32; autocast is for that", name_of(plan.dtype)));
  if (plan.compile && plan.autocast == DType::f16)
    merge.leave_out("compile: the scale of f16 gradients changes between steps");
  plan.compile = plan.compile && plan.autocast != DType::f16;
  plan.grad_mode = PlanGradMode::grad;
  plan.eval = false;
  plan.dtype = DType::f32;
}

void warn(const Plan& plan, PlanUse use, const std::string& file, const TaskOptions& task) {
  if (use != PlanUse::train && plan.task() == "train")
    print_note("{}: the plan was measured for training; deft doctor --task {} measures one for this\n", file,
               use == PlanUse::eval ? "eval" : "infer");
  if (std::string text = plan.foreign(); !text.empty()) print_note("{}: {}\n", file, text);
  if (std::string text = plan.other_workload(task.model, task.data); !text.empty()) print_note("{}: {}\n", file, text);
}

}  // namespace

void add_plan_flag(Command command, std::string& file, bool compiled) {
  const std::string of_doctor =
      "Plan of deft doctor: batch, workers, threads, precision, layout and compile; flags win";
  command
      .add_option(compiled ? "--plan,--plan-file" : "--plan", file,
                  compiled ? of_doctor + ". Or of deft compile: the model and its weights" : of_doctor)
      .type_name("FILE");
}

bool is_compiled_plan(const std::string& path) {
  if (path.empty()) return false;
  io::InputFile file(path, "plan");
  return io::detect_format(file) == io::FileFormat::safetensors;
}

std::optional<Plan> plan_for(Command command, const std::string& file, PlanUse use, CommonFlags& flags,
                             TaskOptions& task, std::string& amp) {
  if (file.empty()) return std::nullopt;
  DEFT_CHECK(
      !is_compiled_plan(file), ValueError,
      "{} is a plan of deft compile, which holds a model: run it with deft infer --plan {}, look at it with deft "
      "profile -m {}",
      file, file, file);
  Plan plan = Plan::load(file);
  PlanMerge merge(command);
  if (plan.threads > 0) merge.merge("--threads", flags.threads, plan.threads);
  merge.merge("--batch", task.batch, plan.batch);
  if (use == PlanUse::infer) {
    task.workers = 0;  // the images are read at once
  } else {
    merge.merge("--workers", task.workers, plan.workers);
    if (plan.prefetch > 0) task.prefetch = plan.prefetch;
  }
  merge.merge("--amp", amp, amp_word(plan.autocast));
  if (command.has_flag("--half") && command.given("--half")) plan.dtype = DType::bf16;
  plan.autocast = amp == "f16" ? DType::f16 : amp == "off" ? DType::f32 : DType::bf16;
  if (use == PlanUse::train) fit_to_training(plan, file, merge);
  if (plan.compile && task.model == "transformer-xl") {
    plan.compile = false;
    merge.leave_out("compile: Transformer-XL carries a memory from batch to batch");
  }
  if (!plan.buckets.empty()) merge.leave_out("buckets: rows of text have one length here");
  if (!flags.quiet) {
    warn(plan, use, file, task);
    merge.tell(file);
  }
  return plan;
}

void use_plan(Task& task, const Plan& plan) {
  plan.prepare(task.model());
  if (!task.has_batches()) return;
  std::shared_ptr<Compiled> fast;
  if (plan.compile) {
    CompileOptions options;
    options.state = [&task] { return task.model().fingerprint(); };
    fast = std::make_shared<Compiled>(
        compile([&task](const Tensor& x) { return task.outputs(x); }, plan.compile_options(options)));
  }
  task.forward = [&task, plan, fast](const Tensor& inputs) {
    Tensor x = plan.prepare(inputs);
    return fast ? (*fast)(x) : task.outputs(x);
  };
}

}  // namespace deft::cli
