// deft doctor: why a workload lags, what its code does wrong, which techniques help it, and a plan that proves it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "bench/mission_tables.h"
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
#include "model_file.h"
#include "output.h"
#include "profile/bottleneck.h"
#include "profile/collector.h"
#include "profile/watched.h"
#include "runtime/parallel.h"
#include "stop_signal.h"
#include "task_flags.h"
#include "verbs.h"
#include "write_file.h"

namespace deft::cli {

namespace {

using doctor::Json;

struct Flags {
  TaskOptions task;
  std::string kind = "infer", weights, out = "deft.plan.json", html, format = "md", budget = "60s", demo,
              device = "cpu", plan_file;  // plan_file: of deft compile, given as --model
  double max_drop = 0.5;                  // points of accuracy
  int threads = 0;
  bool quiet = false;
};

// Shares of --budget.
constexpr double kProfileShare = 0.04, kLatencyShare = 0.06, kTrialsShare = 0.65, kValidateShare = 0.06,
                 kEagerShare = 0.1;
constexpr int64_t kMostProfiled = 4096, kLintedBatches = 64;
constexpr size_t kMostOps = 200;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

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

// What the naive run shows: times, memory, mistakes, latency, energy.
class Examination {
 public:
  Examination(doctor::Workload& workload, Device device, double budget, const Progress& progress)
      : workload_(workload),
        device_(device),
        budget_(budget),
        progress_(progress),
        run_(workload.prepare(workload.naive())) {}

  void add_to(Json& report, std::vector<Finding>& findings) {
    cold();
    report["bottleneck"] = nullptr;
    profile(report);
    memory(report);
    lint(findings);
    latency(report);
  }
  int64_t samples() const { return samples_; }

 private:
  void cold() {
    progress_.show("the first call");
    cold_seconds_ = run_->run(batch());
    for (int i = 0; i < 3; ++i) seconds_ = run_->run(batch());
    double wanted = kProfileShare * budget_ / seconds_;
    samples_ = batch() * std::clamp<int64_t>(static_cast<int64_t>(wanted), 4, kMostProfiled);
    run_->run(samples_);
  }
  void profile(Json& report) {
    progress_.show("where the time goes");
    profile::EnergyMeter meter(profile::energy_sources(device_));
    const auto run = [&] {
      run_->run(samples_);
      return !stop_signal();
    };
    profile::Profile p = profile::profile_run(run, !device_.is_cpu(), false).profile;
    meter.start();
    run_->run(samples_);
    report["energy"] = doctor::energy_json(meter.stop(), samples_);
    progress_.show("what this machine can do at most");
    profile::judge(p);
    report["bottleneck"] = doctor::bottleneck_json(p);
    report["profile"] = doctor::profile_json(p, profile::roofs_of(p), kMostOps);
  }
  void memory(Json& report) {
    progress_.show("who holds the memory");
    profile::MemoryRecorder recorder;
    run_->run(linted());
    report["memory"] = doctor::memory_json(recorder.report());
  }
  // Apart from the profile, whose times it would be in.
  void lint(std::vector<Finding>& findings) {
    progress_.show("looking for mistakes");
    doctor::Linter linter;
    {
      profile::ProfileSession session({.trace = false, .next = &linter});
      workload_.prepare(workload_.naive())->run(linted());
      session.stop();
    }
    findings = linter.findings();
  }
  void latency(Json& report) {
    progress_.show("latency");
    profile::LatencyOptions o;
    o.covers = fmt::format("one batch of {}, from the data set to the answer", batch());
    o.cold_seconds = cold_seconds_;
    o.warm_seconds = kLatencyShare * budget_ / 3;
    o.idle_seconds = o.open_loop_seconds = o.warm_seconds;
    report["latency"] = doctor::latency_json(profile::measure_latency([&] { run_->run(batch()); }, o));
  }

  int64_t batch() const { return workload_.naive().batch; }
  int64_t linted() const { return std::min(samples_, kLintedBatches * batch()); }

  doctor::Workload& workload_;
  Device device_;
  double budget_;
  const Progress& progress_;
  std::unique_ptr<doctor::PreparedRun> run_;
  double cold_seconds_ = 0, seconds_ = 0;
  int64_t samples_ = 0;
};

// The two tables everyone quotes, at sizes that fit the time: of each model, a few batches.
Json mission_tables(const Flags& f, const Progress& progress) {
  bench::ModelsOptions o;
  o.models = {f.task.model == "mlp" || f.task.model == "cnn" ? f.task.model : "cnn"};
  o.models.push_back(o.models[0] == "cnn" ? "mlp" : "cnn");
  o.device = f.task.device;
  o.repeats = std::clamp(static_cast<int>(seconds_in(f.budget) / 12), 1, 5);
  o.progress = [&](const std::string& what) { progress.show("tables: " + what); };
  Json modes = Json::array(), families = Json::array();
  for (const Json& row : bench::measure_mission_tables(o).results) {
    if (row["table"] == "modes")
      modes.push_back({{"mode", row["what"]},
                       {"model", row["case"]},
                       {"batch", row["batch"]},
                       {"samples", row["epoch_samples"]},
                       {"epoch_s", row["epoch_seconds"]},
                       {"peak_mb", row["peak_mb"]},
                       {"speedup", row["times_training"]}});
    else
      families.push_back(
          {{"model", fmt::format("{}, {}", row["case"].get<std::string>(), row["type"].get<std::string>())},
           {"batch", row["batch"]},
           {"peak_mb", row["peak_mb"]},
           {"ms_per_batch", row["p50_ms"]},
           {"samples_per_s", row["samples_per_second"]}});
  }
  return {{"modes", modes}, {"families", families}};
}

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

Json workload_json(const Flags& f, const doctor::Workload& workload, const TrainedTask& trained, int64_t samples) {
  Json out = {
      {"name", workload.name()},      {"task", workload.task()},         {"model", trained.options.model},
      {"data", trained.options.data}, {"batch", workload.naive().batch}, {"device", to_string(trained.options.device)},
      {"samples", samples},           {"learned", trained.learned},      {"labelled", trained.labelled}};
  if (!f.plan_file.empty()) out["plan_file"] = f.plan_file;
  return out;
}

void try_techniques(const Flags& f, const std::shared_ptr<const TrainedTask>& trained, doctor::Workload& workload,
                    const Progress& progress, Json& report) {
  double budget = seconds_in(f.budget);
  doctor::TrialsOptions o;
  o.seconds = kTrialsShare * budget;
  o.max_drop = f.max_drop / 100;
  o.stopped = [] { return stop_signal() != 0; };
  o.progress = [&](const std::string& what) { progress.show(what); };
  doctor::TrialsResult result = doctor::run_trials(workload, o);
  report["trials"] = doctor::trials_json(result.rows);
  report["waterfall"] = doctor::waterfall_json(result.waterfall);
  report["verified"] = Json::array();
  if (Json v = doctor::verified_json(f.kind, result.verified); !v.is_null()) report["verified"].push_back(v);
  bool labelled = !std::isnan(result.accuracy_after);  // validation needs labels
  if (f.kind == "infer" && labelled && result.verified.pairs > 0 && !o.stopped()) {
    Json v = validated(trained, result.plan, kValidateShare * budget, progress);
    if (!v.is_null()) report["verified"].push_back(v);
  }
  if (!f.plan_file.empty()) {  // no command takes the one plan with the other
    report["next"] = doctor::next_json(result, fmt::format("deft infer --plan-file {}", f.plan_file));
    return;
  }
  report["next"] = doctor::next_json(result, fmt::format("deft {} --plan {}", f.kind, f.out));
  report["plan"] = doctor::plan_json(result.plan);
  result.plan.save(f.out);
  report["written"]["plan"] = f.out;
}

PlanCase read_plan(const Flags& f, const Progress& progress) {
  progress.show("reading the plan");
  PlanCase c = plan_case(f.plan_file, f.task, f.weights);
  DEFT_CHECK(f.kind == "infer" || c.plan.labelled, ValueError,
             "{} is measured on {}, which have no labels for --task {}; use --task infer", f.plan_file, c.plan.data,
             f.kind);
  return c;
}

Json examine(const Flags& f, std::vector<Finding>& findings) {
  Progress progress("doctor", f.quiet);
  const double budget = seconds_in(f.budget);
  std::optional<PlanCase> of_file;
  if (!f.plan_file.empty()) of_file = read_plan(f, progress);
  auto trained = of_file
                     ? of_file->trained
                     : trained_task(f.task, f.weights, budget, [&](const std::string& what) { progress.show(what); });
  auto workload = make_workload(trained, f.kind);
  Json report = {{"schema", 1}, {"kind", "deft doctor"}, {"version", bench::build_info().version}};
  report["machine"] = bench::machine_json();
  report["workload"] = nullptr;
  Examination examination(*workload, trained->options.device, budget, progress);
  examination.add_to(report, findings);
  report["workload"] = workload_json(f, *workload, *trained, examination.samples());
  report["findings"] = doctor::findings_json(findings);
  if (!stop_signal()) try_techniques(f, trained, *workload, progress, report);
  if (of_file && !stop_signal()) report["eager"] = eager_json(*of_file, kEagerShare * budget, progress);
  if (!stop_signal()) report["tables"] = mission_tables(f, progress);
  report["interrupted"] = stop_signal() != 0;
  return report;
}

// The leak that everyone writes once, and what the sentinel says about it.
int run_demo(const Flags& f) {
  doctor::Linter linter;
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
  return out + eager_text(report.value("eager", Json()));
}

void take_model_file(Flags& f) {
  if (model_file_kind(f.task.model) == ModelFile::checkpoint) return take_checkpoint(f.task, f.weights);
  DEFT_CHECK(f.kind != "train", ValueError,
             "{} is a plan of deft compile, which holds inference only: --task train does not apply; use --task infer "
             "or eval, or give the checkpoint it was made from",
             f.task.model);
  f.plan_file = f.task.model;
}

int run(Flags& f) {
  watch_for_stop();
  if (f.threads > 0) set_num_threads(f.threads);
  if (f.demo == "leak") return run_demo(f);
  f.task.device = chosen_device(f.device);
  check_writable(f.html);
  if (is_model_file(f.task.model)) take_model_file(f);
  if (f.task.data.empty() && f.plan_file.empty()) {
    f.task.data = is_text_model(f.task.model) ? "text" : has_fashion() ? "fashion" : "glyphs";
  }
  if (f.plan_file.empty()) check_writable(f.out);
  double start = now();
  std::vector<Finding> findings;
  Json report = examine(f, findings);
  report["seconds"] = std::round(10 * (now() - start)) / 10;
  if (!f.html.empty()) {
    report["written"]["page"] = f.html;
    write_file(f.html, doctor::report_html(report));
  }
  if (f.format == "json")
    write_out(report.dump(2) + "\n");
  else if (f.format == "sarif")
    write_out(doctor::sarif(findings));
  else
    write_out(doctor::report_text(report, !bold("").empty()) + verified_text(report));
  if (stop_signal()) return stop_exit_code();
  return findings.empty() ? kOk : kFindings;
}

void add_workload_flags(Command command, TaskOptions& o) {
  add_model_flag(command, o, true);
  command
      .add_option("-d,--data", o.data,
                  fmt::format("{}; default fashion where it is installed, else glyphs", fmt::join(data_names(), ", ")))
      .check(one_of("data set", data_names()))
      .type_name("NAME");
  add_data_flags(command, o);
}

}  // namespace

std::function<int()> add_doctor(Command command) {
  auto flags = std::make_shared<Flags>();
  Flags& f = *flags;
  f.task.data = "";
  add_workload_flags(command, f.task);
  command.add_option("--task", f.kind, "What the model does: infer (default), eval or train")
      .check(one_of("task", {"infer", "eval", "train"}))
      .type_name("infer|eval|train");
  command.add_option("-w,--weights", f.weights, "Checkpoint, safetensors or PyTorch file; default: a short training")
      .type_name("FILE");
  add_device_flag(command, f.device, "--device");
  command.add_option("--budget", f.budget, "Time for all measurements; default 60s")
      .check(a_budget())
      .type_name("TIME");
  command.add_option("--max-drop", f.max_drop, "Points of accuracy a technique may cost; default 0.5")
      .check(number_from(0, true))
      .type_name("X");
  command.add_option("--out", f.out, "Where the plan goes; default deft.plan.json").type_name("FILE");
  command.add_option("--html", f.html, "The report as one page").type_name("FILE");
  command.add_option("--demo", f.demo, "leak: what the doctor says about `total += loss`")
      .check(one_of("demo", {"leak"}))
      .type_name("leak");
  command.add_option("-o,--output", f.format, "Form of the result; default: md")
      .check(one_of("output format", {"md", "json", "sarif"}))
      .type_name("md|json|sarif");
  command.add_option("-t,--threads", f.threads, "Threads; default: one per core")
      .check(whole_number(1, 1024))
      .type_name("N");
  command.add_flag("-q,--quiet", f.quiet, "No progress on stderr");
  return [flags] { return run(*flags); };
}

}  // namespace deft::cli
