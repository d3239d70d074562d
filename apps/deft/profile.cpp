// deft profile: where the time and the memory of a built-in workload go.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "amp/autocast.h"
#include "base/check.h"
#include "bench/interrupt.h"
#include "core/grad_mode.h"
#include "doctor/profile_json.h"
#include "doctor/report_html.h"
#include "exit_code.h"
#include "late_end.h"
#include "model_file.h"
#include "ops/all_ops.h"
#include "optim/adam.h"
#include "output.h"
#include "plan_flags.h"
#include "plan_task.h"
#include "profile/bottleneck.h"
#include "profile/collector.h"
#include "profile/watched.h"
#include "runtime/parallel.h"
#include "task_flags.h"
#include "verbs.h"
#include "weights.h"
#include "write_file.h"

namespace deft::cli {

namespace {

using bench::Json;

struct ProfileFlags : CommonFlags {
  TaskOptions task;
  std::string what = "train", weights, plan_file, trace, html, amp = "off", device = "cpu", sort = "ms";
  int64_t steps = 20, top = 15;
  std::shared_ptr<Task> compiled;  // of a plan of deft compile, given as --model
};

// One of `train`, `eval` and `infer`, a batch at a time.
class Steps {
 public:
  Steps(ProfileFlags& f, const std::optional<Plan>& plan)
      : flags_(f), plan_(plan), task_(f.compiled ? f.compiled : make_task(f.task)) {
    if (!f.weights.empty()) load_weights(task_->model(), f.task.model, f.weights);
    if (plan) use_plan(*task_, *plan);
    task_->model().train(f.what == "train");
    if (f.what == "train") optimizer_.emplace(task_->model().parameters(), optim::AdamWOptions{.lr = 3e-3});
    if (f.what == "infer") inputs_ = task_->test_inputs(f.task.batch);
  }
  // `count` steps, or fewer once interrupted; how many there were.
  int64_t run(int64_t count, DType amp, const std::function<void(int64_t)>& progress) {
    AutocastGuard autocast(amp);
    if (flags_.what == "eval") return evaluate(progress);
    for (int64_t i = 0; i < count; ++i, ++next_) {
      if (bench::interrupted()) return i;
      progress(i);
      flags_.what == "train" ? train() : infer();
    }
    return count;
  }

 private:
  void train() {
    int64_t batches = task_->batches_per_epoch(), epoch = next_ / batches, index = next_ % batches;
    optimizer_->zero_grad();
    Tensor loss = loss_of(epoch, index);
    loss.backward();
    optimizer_->step();
    loss.item();  // as a loop does that shows it
  }
  Tensor loss_of(int64_t epoch, int64_t index) {
    if (!plan_ || !task_->has_batches()) return task_->loss(epoch, index);
    TaskBatch batch = task_->batch(epoch, index);
    batch.inputs = plan_->prepare(batch.inputs);
    return task_->loss(batch);
  }
  void infer() {
    InferenceModeGuard inference;
    task_->forward ? task_->forward(inputs_) : task_->outputs(inputs_);
  }
  // The test set was cut to as many batches as there are steps.
  int64_t evaluate(const std::function<void(int64_t)>& progress) {
    Score score =
        task_->evaluate([&](double part) { progress(static_cast<int64_t>(part * static_cast<double>(flags_.steps))); });
    return (score.samples + flags_.task.batch - 1) / flags_.task.batch;
  }

  ProfileFlags& flags_;
  std::optional<Plan> plan_;
  std::shared_ptr<Task> task_;
  std::optional<optim::AdamW> optimizer_;
  Tensor inputs_;
  int64_t next_ = 0;
};

constexpr int64_t kWarmUp = 2, kMemorySteps = 2;  // packed weights are kept from the second call on

struct Measured {
  profile::Profile profile;
  profile::MemoryReport memory;
  int64_t steps = 0;
};

Measured measure(ProfileFlags& f, const std::optional<Plan>& plan, DType amp, const Progress& progress) {
  Steps steps(f, plan);
  auto show = [&](const char* what) {
    return [&f, &progress, what](int64_t i) { progress.show(fmt::format("{}, step {} of {}", what, i + 1, f.steps)); };
  };
  steps.run(kWarmUp, amp, show("warming up"));
  Measured m;
  const auto run = [&] {
    m.steps = steps.run(f.steps, amp, show("profiling"));
    return !bench::interrupted();
  };
  profile::Watched watched = profile::profile_run(run, !f.task.device.is_cpu(), !f.trace.empty());
  m.profile = std::move(watched.profile);
  if (!f.trace.empty()) profile::write_trace(watched.trace, f.trace);
  progress.show("what this machine can do");
  profile::judge(m.profile);
  if (bench::interrupted()) return m;
  profile::MemoryRecorder recorder;  // on its own: what it costs would be in the times
  steps.run(kMemorySteps, amp, show("memory"));
  m.memory = recorder.report();
  return m;
}

Json to_json(const ProfileFlags& f, const Measured& m, DType amp) {
  Json machine = bench::machine_json();
  return {{"schema", 1},
          {"kind", "deft profile"},
          {"version", bench::build_info().version},
          {"machine", machine},
          {"workload",
           {{"name", fmt::format("{} on {}", f.task.model, f.task.data)},
            {"task", f.what},
            {"model", f.task.model},
            {"data", f.task.data},
            {"batch", f.task.batch},
            {"amp", amp == DType::f32 ? "off" : std::string(name_of(amp))},
            {"device", to_string(f.task.device)},
            {"steps", m.steps},
            {"samples", m.steps * f.task.batch}}},
          {"bottleneck", doctor::bottleneck_json(m.profile)},
          {"profile", doctor::profile_json(m.profile, profile::roofs_of(m.profile))},
          {"memory", m.memory.seconds > 0 ? doctor::memory_json(m.memory) : Json()}};
}

std::vector<Json> rows_of(const Json& list) { return list.get<std::vector<Json>>(); }

// The largest first; what is not known last.
std::vector<Json> sorted(std::vector<Json> rows, const std::string& key, size_t most) {
  auto value = [&](const Json& row) { return row[key].is_number() ? row[key].get<double>() : -1.0; };
  std::stable_sort(rows.begin(), rows.end(), [&](const Json& a, const Json& b) { return value(a) > value(b); });
  rows.resize(std::min(rows.size(), most));
  return rows;
}

std::vector<Json> module_rows(const Json& profile, size_t most) {
  std::vector<Json> rows = sorted(rows_of(profile["modules"]), "ms", most);
  for (Json& row : rows)
    if (row["name"] == "") row["name"] = "(whole model)";
  return rows;
}

std::vector<Json> memory_rows(const Json& all) {
  std::vector<Json> rows;
  if (all.is_null()) return rows;
  const Json& memory = all["device"].is_null() ? all : all["device"];  // where the model is
  for (const auto& [name, mb] : memory["peak_by_category_mb"].items()) rows.push_back({{"category", name}, {"mb", mb}});
  rows.push_back({{"category", "all"}, {"mb", memory["peak_mb"]}});
  return rows;
}

std::vector<Json> holders_of(const Json& memory) {
  return sorted(rows_of((memory["device"].is_null() ? memory : memory["device"])["holders"]), "mb", 5);
}

Presentation presentation_of(const ProfileFlags& f, const Json& report, const Measured& m) {
  const Json& p = report["profile"];
  auto most = static_cast<size_t>(f.top);
  Presentation out;
  out.title = fmt::format("{}, {}: {} steps of {} in {:.3g} s\n\n{}", report["workload"]["name"].get<std::string>(),
                          f.what, m.steps, f.task.batch, m.profile.wall_seconds, m.profile.sentence);
  out.more_tables = {
      {rows_of(p["buckets"]), {{"name", "time"}, {"s", "s", 4}, {"percent", "%", 1}}},
      {sorted(rows_of(p["ops"]), f.sort, most),
       {{"name", "op"},
        {"pass", "pass"},
        {"type", "type"},
        {"site", "line"},
        {"calls", "calls"},
        {"ms", "ms", 2},
        {"overhead_ms", "around it ms", 2},
        {"percent", "%", 1},
        {"gflops", "GFLOP/s", 1},
        {"gb_per_s", "GB/s", 1},
        {"bound", "bound"},
        {"of_limit_percent", "% of limit", 0}}},
      {sorted(rows_of(p["device_kernels"]), "ms", most),
       {{"name", "on the device"}, {"bucket", "kind"}, {"calls", "calls"}, {"ms", "ms", 2}, {"percent", "%", 1}}},
      {module_rows(p, most),
       {{"name", "module"},
        {"type", "type"},
        {"calls", "calls"},
        {"ms", "ms", 2},
        {"self_ms", "itself ms", 2},
        {"percent", "%", 1}}},
      {memory_rows(report["memory"]), {{"category", "memory at its peak"}, {"mb", "MB", 2}}},
      {report["memory"].is_null() ? std::vector<Json>() : holders_of(report["memory"]),
       {{"op", "held by"}, {"site", "line"}, {"category", "category"}, {"mb", "MB", 2}, {"count", "tensors"}}}};
  const Json &cpu = p["cpu_utilisation_percent"], &own = p["overhead_percent"];
  out.notes = {fmt::format("CPU in use: {:.0f} % of {} thread{}. The profiler's own cost: {:.2f} % of the time.",
                           cpu.is_number() ? cpu.get<double>() : 0, m.profile.threads,
                           m.profile.threads == 1 ? "" : "s", own.is_number() ? own.get<double>() : 0)};
  if (m.profile.looked_share < 1)
    out.notes.push_back(
        fmt::format("To keep its cost low it recorded {:.0f} % of the time and extrapolated to the whole run.",
                    100 * m.profile.looked_share));
  if (m.profile.device_busy_seconds >= 0)
    out.notes.push_back(
        fmt::format("Device in use: {:.0f} % of the time. Tracing it took {:.1f} % longer, in a run of its own.",
                    100 * m.profile.device_busy_seconds / m.profile.wall_seconds,
                    100 * m.profile.watching_seconds / m.profile.wall_seconds));
  if (!f.trace.empty()) out.notes.push_back(fmt::format("Trace: {}, for ui.perfetto.dev.", f.trace));
  if (!f.html.empty()) out.notes.push_back(fmt::format("Page: {}", f.html));
  return out;
}

// A plan of deft compile in batches that it serves: the largest, where none is given.
void take_plan(ProfileFlags& f, Command command) {
  const std::string file = f.task.model;
  DEFT_CHECK(!command.given("--task") || f.what != "train", ValueError,
             "{} is a plan of deft compile, which holds inference only: --task train does not apply; use --task infer "
             "or eval, or give the checkpoint it was made from",
             file);
  DEFT_CHECK(f.plan_file.empty() && f.weights.empty() && f.amp == "off", ValueError,
             "{} is a plan of deft compile, which holds weights, precision and passes: it takes no --plan, --weights "
             "or --amp",
             file);
  if (!command.given("--task")) f.what = "infer";
  if (!command.given("--data")) f.task.data = "";
  PlanTask plan = open_plan_task(file, f.task);
  const bool serves = plan.any_batch || std::ranges::count(plan.batches, f.task.batch) > 0;
  DEFT_CHECK(serves || !command.given("--batch"), ValueError, "{} serves batches of {}, not of {}", file,
             fmt::join(plan.batches, ", "), f.task.batch);
  if (!serves) f.task.batch = plan.batches.back();
  f.device = to_string(plan.device);
  f.task.model = fmt::format("{}, a plan of {}", file, plan.model.empty() ? "an unnamed model" : plan.model);
  f.task.data = plan.data;
  f.compiled = plan.task;
}

void take_model_file(ProfileFlags& f, Command command) {
  if (model_file_kind(f.task.model) == ModelFile::plan) return take_plan(f, command);
  if (!command.given("--data")) f.task.data = "";
  take_checkpoint(f.task, f.weights);
}

int run(ProfileFlags& f, Command command) {
  bench::watch_for_interrupt();
  LateEnd late([&f] { return print_rows_so_far(f); });  // none: a step was never ended
  check_writable(f.trace);
  check_writable(f.html);
  if (is_model_file(f.task.model))
    take_model_file(f, command);
  else if (!f.weights.empty())
    take_settings(command, f.task, read_weights(f.weights));
  if (!command.given("--data") && is_text_model(f.task.model)) f.task.data = "text";
  PlanUse use = f.what == "train" ? PlanUse::train : f.what == "eval" ? PlanUse::eval : PlanUse::infer;
  std::optional<Plan> plan = plan_for(command, f.plan_file, use, f, f.task, f.amp);
  if (f.threads > 0) set_num_threads(f.threads);
  f.task.device = chosen_device(f.device);
  DType amp = amp_dtype(f.amp, f.quiet, f.task.device);
  if (f.what == "eval") f.task.test_size = f.steps * f.task.batch;
  Measured m;
  {
    Progress progress("profile", f.quiet);
    m = measure(f, plan, amp, progress);
  }
  claim_the_end();
  Json json = to_json(f, m, amp);
  if (!f.html.empty()) write_file(f.html, doctor::report_html(json));
  if (f.format == "json") {
    write_out(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return bench::interrupted() ? kInterrupted : kOk;
  }
  bench::Report report;
  report.results = rows_of(json["profile"]["ops"]);
  report.interrupted = bench::interrupted();
  return print_report(report, f, presentation_of(f, json, m));
}

}  // namespace

std::function<int()> add_profile(Command command) {
  auto flags = std::make_shared<ProfileFlags>();
  add_common_flags(command, *flags);
  add_threads_flag(command, *flags);
  add_task_flags(command, flags->task, true);
  add_amp_flag(command, flags->amp);
  add_device_flag(command, flags->device, "--device");
  add_plan_flag(command, flags->plan_file);
  command.add_option("--task", flags->what, "train (default), eval or infer")
      .check(one_of("task", {"train", "eval", "infer"}))
      .type_name("TASK");
  command.add_option("--steps", flags->steps, "Batches to profile; default 20")
      .check(whole_number(1, 1'000'000))
      .type_name("N");
  command.add_option("-w,--weights", flags->weights, "Checkpoint, safetensors or PyTorch file; default: fresh weights")
      .type_name("FILE");
  command.add_option("--top", flags->top, "Rows of the op and module tables; default 15")
      .check(whole_number(1, 100'000))
      .type_name("N");
  command.add_option("--sort", flags->sort, "Column that orders the ops: ms (default), overhead_ms, calls, gflops, ...")
      .check(one_of("column", {"ms", "overhead_ms", "percent", "calls", "gflops", "gb_per_s", "of_limit_percent"}))
      .type_name("COLUMN");
  command.add_option("--trace", flags->trace, "File for chrome://tracing and ui.perfetto.dev").type_name("FILE");
  command.add_option("--html", flags->html, "The same as a page").type_name("FILE");
  return [flags, command] { return run(*flags, command); };
}

}  // namespace deft::cli
