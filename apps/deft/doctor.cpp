// deft doctor: why a workload is slow, what its code does wrong, which techniques help it, and a plan that proves it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "clock.h"
#include "data/image_set.h"
#include "doctor/findings_json.h"
#include "doctor/linter.h"
#include "doctor/profile_json.h"
#include "doctor/report_html.h"
#include "doctor/report_json.h"
#include "doctor/report_text.h"
#include "doctor/report_values.h"
#include "doctor/sarif.h"
#include "doctor_workload.h"
#include "exit_code.h"
#include "late_end.h"
#include "model_file.h"
#include "output.h"
#include "profile/bottleneck.h"
#include "profile/collector.h"
#include "profile/watched.h"
#include "runtime/config.h"
#include "runtime/parallel.h"
#include "stop_signal.h"
#include "task_flags.h"
#include "verbs.h"
#include "write_file.h"

namespace deft::cli {

namespace {

using doctor::Json;

struct DoctorFlags {
  TaskOptions task;
  std::string kind = "infer", weights, out = "deft.plan.json", html, format = "md", budget = "60s", demo,
              device = "cpu", plan_file;  // plan_file: of deft compile, given as --model
  double max_drop = 0.5;                  // points of accuracy
  int threads = 0;
  bool quiet = false;
};

// Shares of --budget: the examination takes so much at most, the parts of it, and what comes after the trials.
constexpr double kExamineShare = 0.35, kProfileShare = 0.04, kLatencyShare = 0.06, kValidateShare = 0.08,
                 kEagerShare = 0.12;
constexpr int64_t kMostProfiled = 4096, kLintedBatches = 64;
constexpr int64_t kLatencySamples = 5;  // at least
constexpr size_t kMostOps = 200;
// Rules about data, precision, threads and weights. All others are about code, and that of a built-in model is Deft's.
constexpr std::array kRulesOfRuns = {"D016", "D018", "D019", "D020", "D021"};

// "90", "90s", "2m", "1.5m"; 0: none of these.
double seconds_in(const std::string& text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string unit(end, text.data() + text.size());
  bool good = error == std::errc() && (unit.empty() || unit == "s" || unit == "m");
  return good ? value * (unit == "m" ? 60 : 1) : 0;
}

Check a_budget() {
  return [](const std::string& word) {
    double s = seconds_in(word);
    return s >= 1 && s <= 3600 ? std::string() : fmt::format("found '{}', expected 1s to 3600s, or 1m to 60m", word);
  };
}

// The report as far as it is known. Whoever ends the program writes it: its main thread, or the one that cannot wait.
class Live {
 public:
  explicit Live(const DoctorFlags& flags) : flags_(flags) {}

  template <class F>
  void update(F change) {
    std::lock_guard lock(mutex_);
    change(report_);
  }
  void set(const char* key, Json value) {
    update([&](Json& report) { report[key] = std::move(value); });
  }
  void found(std::vector<Finding> findings) {
    std::lock_guard lock(mutex_);
    report_["findings"] = doctor::findings_json(findings);
    findings_ = std::move(findings);
  }
  void plan(const Plan& plan, const std::string& why) {
    std::lock_guard lock(mutex_);
    plan_ = plan;
    report_["plan"] = doctor::plan_json(plan);
    report_["plan_why"] = why;
  }
  // Writes what there is. The exit code.
  int end();

 private:
  void write_files();

  const DoctorFlags& flags_;
  std::mutex mutex_;
  Json report_;
  std::vector<Finding> findings_;
  std::optional<Plan> plan_;
  double start_ = now();
};

// What today's run shows: times, memory, mistakes, latency, energy. Ends between batches when its time is over.
class Examination {
 public:
  Examination(doctor::Workload& workload, const TrainedTask& trained, double until, const Progress& progress)
      : workload_(workload), trained_(trained), budget_(trained.budget), progress_(progress) {
    workload.out_of_time = [until] { return now() > until || stop_signal() != 0; };
    run_ = workload.prepare(workload.today());
  }
  ~Examination() {
    workload_.out_of_time = [] { return false; };
  }
  Examination(const Examination&) = delete;
  Examination& operator=(const Examination&) = delete;

  void add_to(Live& live) {
    try {
      cold();
      live.update([&](Json& report) { report["workload"]["samples"] = samples_; });
      profile(live);
      memory(live);
      lint(live);
      latency(live);
    } catch (const doctor::OutOfTime&) {
    }
  }

 private:
  void cold() {
    progress_.show("the first call");
    cold_seconds_ = run_->run(batch());
    for (int i = 0; i < 3; ++i) seconds_ = run_->run(batch());
    double wanted = kProfileShare * budget_ / seconds_;
    samples_ = batch() * std::clamp<int64_t>(static_cast<int64_t>(wanted), 2, kMostProfiled);
    run_->run(samples_);
  }
  void profile(Live& live) {
    progress_.show("where the time goes");
    profile::EnergyMeter meter(profile::energy_sources(trained_.options.device));
    const auto run = [&] {
      run_->run(samples_);
      return !stop_signal();
    };
    profile::Profile p = profile::profile_run(run, !trained_.options.device.is_cpu(), false).profile;
    meter.start();
    run_->run(samples_);
    live.set("energy", doctor::energy_json(meter.stop(), samples_));
    progress_.show("what this machine can do at most");
    profile::judge(p);
    live.set("bottleneck", doctor::bottleneck_json(p));
    live.set("profile", doctor::profile_json(p, profile::roofs_of(p), kMostOps));
  }
  void memory(Live& live) {
    progress_.show("who holds the memory");
    profile::MemoryRecorder recorder;
    run_->run(linted());
    live.set("memory", doctor::memory_json(recorder.report()));
  }
  // Apart from the profile, whose times it would be in.
  void lint(Live& live) {
    progress_.show("looking for mistakes");
    doctor::Linter linter;
    {
      profile::ProfileSession session({.trace = false, .next = &linter});
      workload_.prepare(workload_.today())->run(linted());
      session.stop();
    }
    std::vector<Finding> findings = linter.findings();
    if (!trained_.naive)
      std::erase_if(findings, [](const Finding& f) { return std::ranges::count(kRulesOfRuns, f.id) == 0; });
    live.found(std::move(findings));
  }
  void latency(Live& live) {
    progress_.show("latency");
    profile::LatencyOptions o;
    o.covers = fmt::format("one batch of {}, from the data set to the answer", batch());
    o.cold_seconds = cold_seconds_;
    o.warm_up_seconds = 0;  // the runs before this one were
    o.warm_seconds = kLatencyShare * budget_ / 3;
    o.least_samples = kLatencySamples;
    o.idle_seconds = o.open_loop_seconds = o.warm_seconds;
    o.stopped = workload_.out_of_time;
    live.set("latency", doctor::latency_json(profile::measure_latency([&] { run_->run(batch()); }, o)));
  }

  int64_t batch() const { return workload_.today().batch; }
  int64_t linted() const { return std::min(samples_, kLintedBatches * batch()); }

  doctor::Workload& workload_;
  const TrainedTask& trained_;
  double budget_;
  const Progress& progress_;
  std::unique_ptr<doctor::PreparedRun> run_;
  double cold_seconds_ = 0, seconds_ = 0;
  int64_t samples_ = 0;
};

// Inference and validation are the same model: the plan must serve both.
Json validated(const std::shared_ptr<const TrainedTask>& trained, const Plan& plan, double seconds,
               const Progress& progress) {
  progress.show("validation with the plan");
  auto workload = make_workload(trained, "eval");
  doctor::TrialsOptions o;
  o.seconds = seconds;
  o.stopped = [] { return stop_signal() != 0; };
  return doctor::verified_json("eval", doctor::verify_plan(*workload, plan, o));
}

// A plan of deft compile against the model it was made from.
Json eager_json(const PlanCase& c, double seconds, const Progress& progress) {
  if (!c.compared) return {{"reason", c.plan.no_eager}};
  progress.show("the model without the plan");
  Json out = doctor::verified_json("infer", against_eager(c, seconds));
  if (out.is_null()) return {{"reason", "there was no time for it"}};
  out["model"] = c.plan.model;
  out["weights"] = c.compared->learned;
  out["batch"] = c.plan.batches.back();
  return out;
}

Json workload_json(const DoctorFlags& f, const doctor::Workload& workload, const TrainedTask& trained) {
  const int64_t batch = workload.today().batch, usual = usual_batch(trained, f.kind);
  const char* as = trained.naive ? "the naive loop: a demonstration, not what any command does"
                                 : "what the commands do today, by default";
  Json out = {{"name", workload.name() + (trained.naive ? ", the naive loop" : "")},
              {"task", workload.task()},
              {"model", trained.options.model},
              {"data", trained.options.data},
              {"batch", batch},
              {"device", to_string(trained.options.device)},
              {"samples", 0},
              {"learned", trained.learned},
              {"labelled", trained.labelled},
              {"baseline", as}};
  if (!trained.naive && batch < usual)
    out["baseline"] = fmt::format("{}, in batches of {} instead of {}: those take too much of --budget {}", as, batch,
                                  usual, f.budget);
  if (!f.plan_file.empty()) out["plan_file"] = f.plan_file;
  return out;
}

// A word of a command line, as shells take it.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string out = "'";
  for (char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// The flags that say what is run: "-m cnn -d fashion".
std::string workload_flags(const DoctorFlags& f) {
  const TaskOptions& t = f.task;
  std::string out = fmt::format("-m {}", quoted(t.model));
  const auto add = [&](const char* flag, const auto& value, const auto& usual) {
    if (value != usual) out += fmt::format(" {} {}", flag, quoted(fmt::format("{}", value)));
  };
  const TaskOptions usual;
  add("-d", t.data, std::string());
  add("--path", t.path, usual.path);
  add("--length", t.length, usual.length);
  add("--train-size", t.train_size, usual.train_size);
  add("--test-size", t.test_size, usual.test_size);
  add("--device", f.device, std::string("cpu"));
  return out;
}

// A command that applies the plan and runs as it is printed. Without a file of weights there is nothing to infer with;
// where the time goes does not depend on them.
std::string command_of(const DoctorFlags& f, const Plan& plan) {
  const std::string flags = workload_flags(f);
  if (f.demo == "naive") return fmt::format("deft doctor {} --task {}", flags, f.kind);
  if (!f.plan_file.empty()) {
    const std::string threads = plan.threads > 0 ? fmt::format(" -t {}", plan.threads) : "";
    return fmt::format("deft profile {} --task {} -b {} --workers {}{}", flags, f.kind, plan.batch, plan.workers,
                       threads);
  }
  if (f.kind == "train") return fmt::format("deft train {} --plan {}", flags, quoted(f.out));
  const char* verb = f.kind == "infer" && !is_text_model(f.task.model) ? "infer" : "eval";
  if (!f.weights.empty())
    return fmt::format("deft {} {} -w {} --plan {}", verb, flags, quoted(f.weights), quoted(f.out));
  return fmt::format("deft profile {} --task {} --plan {}", flags, verb, quoted(f.out));
}

// The file is for any batch where that of the trials was cut to fit the budget.
Plan plan_to_write(const TrainedTask& trained, const std::string& kind, const Plan& measured) {
  Plan plan = measured;
  if (!trained.naive && plan.batch == measured_batch(trained, kind)) plan.batch = usual_batch(trained, kind);
  return plan;
}

// No command takes a plan of deft doctor with one of deft compile, and none runs the naive loop.
void add_plan(Live& live, const DoctorFlags& f, const TrainedTask& trained, const Plan& plan, const std::string& why) {
  if (!f.plan_file.empty() || trained.naive) return;
  live.plan(plan_to_write(trained, f.kind, plan), why);
  live.set("apply", command_of(f, plan));
}
// Until anything is proved.
void add_todays_plan(Live& live, const DoctorFlags& f, const TrainedTask& trained, const doctor::Workload& workload) {
  Plan plan = workload.today();
  plan.version = kVersion;
  plan.machine = Plan::this_machine();
  plan.workload = fmt::format("{}, {}", workload.name(), workload.task());
  add_plan(live, f, trained, plan, "there was no time to try anything: the defaults stay");
}

void add_trials(Live& live, const DoctorFlags& f, const TrainedTask& trained, const doctor::TrialsResult& result) {
  live.set("trials", doctor::trials_json(result.rows));
  live.set("waterfall", doctor::waterfall_json(result.waterfall));
  live.set("plan_why", result.why);
  add_plan(live, f, trained, result.plan, result.why);
}

void try_techniques(const DoctorFlags& f, const std::shared_ptr<const TrainedTask>& trained, doctor::Workload& workload,
                    double until, const Progress& progress, Live& live) {
  doctor::TrialsOptions o;
  o.seconds = until - now();
  o.max_drop = f.max_drop / 100;
  o.stopped = [] { return stop_signal() != 0; };
  o.progress = [&](const std::string& what) { progress.show(what); };
  o.so_far = [&](const doctor::TrialsResult& result) { add_trials(live, f, *trained, result); };
  doctor::TrialsResult result = doctor::run_trials(workload, o);
  add_trials(live, f, *trained, result);
  Json verified = Json::array();
  if (Json v = doctor::verified_json(f.kind, result.verified); !v.is_null()) verified.push_back(v);
  live.set("verified", verified);
  live.set("next", doctor::next_json(result, command_of(f, result.plan), f.demo == "naive"));
  bool labelled = !std::isnan(result.accuracy_after);  // validation needs labels
  if (f.kind == "infer" && labelled && result.verified.verdict == doctor::Verdict::helps && !trained->naive &&
      !o.stopped()) {
    Json v = validated(trained, result.plan, kValidateShare * trained->budget, progress);
    if (!v.is_null()) live.update([&](Json& report) { report["verified"].push_back(v); });
  }
}

PlanCase read_plan(const DoctorFlags& f, const Progress& progress) {
  progress.show("reading the plan");
  PlanCase c = plan_case(f.plan_file, f.task, f.weights, seconds_in(f.budget));
  DEFT_CHECK(f.kind == "infer" || c.plan.labelled, ValueError,
             "{} is measured on {}, which have no labels for --task {}; use --task infer", f.plan_file, c.plan.data,
             f.kind);
  return c;
}

void examine(const DoctorFlags& f, double end, Live& live) {
  Progress progress("doctor", f.quiet);
  const double budget = seconds_in(f.budget);
  live.update([](Json& report) {
    report = {{"schema", 1}, {"kind", "deft doctor"}, {"version", bench::build_info().version}};
    report["machine"] = bench::machine_json();
    for (const char* part : {"workload", "bottleneck", "profile", "memory", "latency", "energy"})
      report[part] = nullptr;
    report["findings"] = Json::array();
  });
  std::optional<PlanCase> of_file;
  if (!f.plan_file.empty()) of_file = read_plan(f, progress);
  auto trained = of_file
                     ? of_file->trained
                     : trained_task(f.task, f.weights, budget, [&](const std::string& what) { progress.show(what); });
  if (f.demo == "naive") {
    auto naive = std::make_shared<TrainedTask>(*trained);
    naive->naive = true;
    trained = naive;
  }
  auto workload = make_workload(trained, f.kind);
  live.set("workload", workload_json(f, *workload, *trained));
  add_todays_plan(live, f, *trained, *workload);
  Examination(*workload, *trained, std::min(end, now() + kExamineShare * budget), progress).add_to(live);
  const bool compared = of_file && of_file->compared, validates = f.kind == "infer" && f.plan_file.empty();
  const double after = compared ? kEagerShare : validates ? kValidateShare : 0;
  if (!stop_signal()) try_techniques(f, trained, *workload, end - after * budget, progress, live);
  if (of_file && !stop_signal()) live.set("eager", eager_json(*of_file, std::max(0.0, end - now()), progress));
}

// The leak that everyone writes once, and what the sentinel says about it.
int run_demo(const DoctorFlags& f) {
  doctor::Linter linter({.off = {}, .own_lines = true});  // the loop stands for a program
  {
    profile::ProfileSession session({.trace = false, .next = &linter});
    leaking_loop();
    session.stop();
  }
  std::vector<Finding> findings = linter.findings();
  if (f.format == "sarif")
    write_out(doctor::sarif(findings));
  else if (f.format == "json")
    write_out(Json{{"findings", doctor::findings_json(findings)}}.dump(2) + "\n");
  else
    for (const Finding& finding : findings) write_out(finding.to_string() + "\n");
  return findings.empty() ? kOk : kFindings;
}

bool has_fashion() {
  try {
    data::fashion_folder();
    return true;
  } catch (const ValueError&) {
    return false;
  }
}

// "1.40x (1.35x to 1.46x), 12 pairs of runs"; a few pairs have no interval.
std::string trial_text(const Json& v) {
  const bool known = v["speedup_low"].is_number() && v["speedup_high"].is_number();
  const std::string interval =
      known ? fmt::format(" ({} to {})", doctor::times(v["speedup_low"]), doctor::times(v["speedup_high"])) : "";
  const int pairs = v["pairs"].get<int>();
  return fmt::format("{}{}, {} pair{} of runs", doctor::times(v["speedup"]), interval, pairs, pairs == 1 ? "" : "s");
}

std::string eager_text(const Json& eager) {
  if (eager.is_null()) return "";
  if (eager.contains("reason"))
    return fmt::format("not compared with the model itself: {}\n", eager["reason"].get<std::string>());
  return fmt::format("against {} eager ({}), batches of {}: {}\n", eager["model"].get<std::string>(),
                     eager["weights"].get<std::string>(), eager["batch"].get<int64_t>(), trial_text(eager));
}

// The plan against the workload as it was, in runs of their own: inference and validation.
std::string verified_text(const Json& report) {
  std::string out;
  for (const Json& v : report.value("verified", Json::array()))
    out += fmt::format("{} with the plan: {}\n", v["task"] == "eval" ? "validation" : v["task"].get<std::string>(),
                       trial_text(v));
  if (report.contains("apply"))
    out += fmt::format("plan: {}; run it with\n  {}\n", report["plan_why"].get<std::string>(),
                       report["apply"].get<std::string>());
  return out + eager_text(report.value("eager", Json()));
}

void Live::write_files() {
  report_["seconds"] = std::round(10 * (now() - start_)) / 10;
  report_["interrupted"] = stop_signal() != 0;
  if (plan_ && stop_signal() == 0) {  // what a user broke off replaces nothing
    plan_->save(flags_.out);
    report_["written"]["plan"] = flags_.out;
  }
  if (flags_.html.empty()) return;
  report_["written"]["page"] = flags_.html;
  write_file(flags_.html, doctor::report_html(report_));
}

int Live::end() {
  std::lock_guard lock(mutex_);
  write_files();
  if (flags_.format == "json")
    write_out(report_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  else if (flags_.format == "sarif")
    write_out(doctor::sarif(findings_));
  else
    write_out(doctor::report_text(report_, !bold("").empty()) + verified_text(report_));
  if (stop_signal()) return stop_exit_code();
  return findings_.empty() ? kOk : kFindings;
}

void take_model_file(DoctorFlags& f) {
  if (model_file_kind(f.task.model) == ModelFile::checkpoint) return take_checkpoint(f.task, f.weights);
  DEFT_CHECK(f.kind != "train", ValueError,
             "{} is a plan of deft compile, which holds inference only: --task train does not apply; use --task infer "
             "or eval, or give the checkpoint it was made from",
             f.task.model);
  f.plan_file = f.task.model;
}

int run(DoctorFlags& f) {
  watch_for_stop();
  if (f.threads > 0) set_num_threads(f.threads);
  if (f.demo == "leak") return run_demo(f);
  f.task.device = chosen_device(f.device);
  check_writable(f.html);
  if (is_model_file(f.task.model)) take_model_file(f);
  if (f.task.data.empty() && f.plan_file.empty()) {
    f.task.data = is_text_model(f.task.model) ? "text" : has_fashion() ? "fashion" : "glyphs";
  }
  DEFT_CHECK(f.demo.empty() || f.plan_file.empty(), ValueError,
             "--demo naive is a loop over a built-in model; {} holds a plan of deft compile", f.plan_file);
  if (f.plan_file.empty() && f.demo.empty()) check_writable(f.out);
  const double deadline = now() + seconds_in(f.budget);
  Live live(f);
  {
    LateEnd late(deadline, [&live] { return live.end(); });
    examine(f, deadline, live);
  }
  return live.end();
}

void add_workload_flags(Command command, TaskOptions& o) {
  add_model_flag(command, o, true);
  command
      .add_option("-d,--data", o.data,
                  fmt::format("{}; default fashion where it is installed, else glyphs", fmt::join(data_names(), ", ")))
      .check(one_of("data set", data_names()))
      .type_name("NAME");
  command.add_option("-b,--batch", o.batch, "Your present batch size; default 128, as in the other commands")
      .check(whole_number(1, 65536))
      .type_name("N");
  add_data_flags(command, o);
}

}  // namespace

std::function<int()> add_doctor(Command command) {
  auto flags = std::make_shared<DoctorFlags>();
  DoctorFlags& f = *flags;
  f.task.data = "";
  add_workload_flags(command, f.task);
  command.add_option("--task", f.kind, "What the model does: infer (default), eval or train")
      .check(one_of("task", {"infer", "eval", "train"}))
      .type_name("infer|eval|train");
  command.add_option("-w,--weights", f.weights, "Checkpoint, safetensors or PyTorch file; default: a short training")
      .type_name("FILE");
  add_device_flag(command, f.device, "--device");
  command.add_option("--budget", f.budget, "Time limit for everything; default 60s")
      .check(a_budget())
      .type_name("TIME");
  command.add_option("--max-drop", f.max_drop, "Points of accuracy a technique may cost; default 0.5")
      .check(number_from(0, true))
      .type_name("X");
  command.add_option("--out", f.out, "Where the plan goes; default deft.plan.json").type_name("FILE");
  command.add_option("--html", f.html, "The report as one page").type_name("FILE");
  command
      .add_option(
          "--demo", f.demo,
          "leak: what the doctor says about `total += loss`; naive: a loop with nothing switched off, one sample "
          "at a time, examined and cured step by step")
      .check(one_of("demo", {"leak", "naive"}))
      .type_name("leak|naive");
  command.add_option("-o,--output", f.format, "Output format; default: md")
      .check(one_of("output format", {"md", "json", "sarif"}))
      .type_name("md|json|sarif");
  command.add_option("-t,--threads", f.threads, "Threads; default: one per core")
      .check(whole_number(1, 1024))
      .type_name("N");
  command.add_flag("-q,--quiet", f.quiet, "No progress on stderr");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
