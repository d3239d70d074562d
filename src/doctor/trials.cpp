#include "doctor/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "ops/all_ops.h"
#include "runtime/config.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

namespace deft::doctor {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kUnitSeconds = 0.003;  // what a run of a pair takes at least; short ones are seldom disturbed
constexpr double kDisturbed = 0.02;     // a run that waited longer for a core, as a part of its time
constexpr int kFewestTries = 2, kMostTries = 10;
constexpr double kTrySeconds = 0.06;    // for more than one
constexpr double kVerifyShare = 0.2;    // of the time, for the last trial
constexpr double kLongestTrial = 0.15;  // of the time
constexpr int kWarmUps = 4;             // captures, symbolic sizes, packed weights, tuned kernels

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Technique {
  std::string name, stage;
  std::function<void(Plan&)> change;
  bool needed = false;           // what runs without it is wrong, however fast
  std::string unavailable = "";  // why there is nothing to try
};

// A plan that is ready to run, with what was learned about it on the way.
struct Contestant {
  Plan plan;
  std::unique_ptr<PreparedRun> run;
  int64_t unit = 1;  // samples
  double peak_mb = kNaN;
  Outcome outcome;
  double seconds_per_sample() const;
};

// How long threads of this process have waited for a core, together; 0 where the system does not tell.
double seconds_waited() {
  double ns = 0, ran = 0, waited = 0;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(thread.path() / "schedstat");
    if (file >> ran >> waited) ns += waited;
  }
  return ns / 1e9;
}

// The quickest of a few runs, until in one of them no other program had the cores; of long ones, the first.
double Contestant::seconds_per_sample() const {
  double best = std::numeric_limits<double>::infinity(), spent = 0;
  bool alone = false;
  for (int i = 0; i == 0 || (spent < kTrySeconds && (i < kFewestTries || (!alone && i < kMostTries))); ++i) {
    double waited = seconds_waited(), seconds = run->run(unit);
    alone = alone || seconds_waited() - waited < kDisturbed * seconds;
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best / static_cast<double>(unit);
}

Contestant make_contestant(Workload& workload, const Plan& plan) {
  Contestant c;
  c.plan = plan;
  int64_t before = memory_live().total;
  c.run = workload.prepare(plan);
  double seconds = 0;
  for (int i = 0; i < kWarmUps; ++i) seconds = c.run->run(plan.batch);
  c.unit = plan.batch * std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kUnitSeconds / seconds)));
  MemoryScope scope;
  c.run->run(c.unit);
  c.peak_mb = static_cast<double>(scope.peak_bytes() - before) / 1e6;
  c.outcome = c.run->check();
  return c;
}

TrialResult contest(const Contestant& before, const Contestant& after, double until, const TrialsOptions& options,
                    uint64_t round) {
  TrialOptions o;
  o.seed = options.seed + round;
  o.out_of_time = [&] { return now() > until || options.stopped(); };
  return run_trial([&] { return before.seconds_per_sample(); }, [&] { return after.seconds_per_sample(); }, o);
}

double relative_error(const Tensor& found, const Tensor& expected) {
  NoGradGuard no_grad;
  Tensor wanted = expected.to(DType::f64);
  double norm = wanted.mul(wanted).sum().item(), off = 0;
  Tensor difference = found.to(DType::f64) - wanted;
  off = difference.mul(difference).sum().item();
  return std::sqrt(off / std::max(norm, std::numeric_limits<double>::min()));
}

double accuracy_of(const Outcome& outcome) { return outcome.accuracy < 0 ? kNaN : outcome.accuracy; }

std::vector<Technique> input_techniques(const WorkloadTraits& t) {
  const char* stage = "input pipeline";
  if (!t.loads) return {{"loading threads", stage, {}, false, "the samples come through no loader"}};
  std::vector<Technique> list;
  for (int workers : {1, 2})
    list.push_back({fmt::format("{} loading thread{}", workers, workers == 1 ? "" : "s"), stage, [workers](Plan& p) {
                      p.workers = workers;
                      p.prefetch = 4 * workers;
                    }});
  return list;
}

std::vector<Technique> mode_techniques(const WorkloadTraits& t) {
  const char* stage = "grad mode and eval";
  if (t.trains) return {{"inference mode", stage, {}, false, "training needs gradients"}};
  return {{"eval mode", stage, [](Plan& p) { p.eval = true; }, true},
          {"no_grad", stage, [](Plan& p) { p.grad_mode = PlanGradMode::no_grad; }},
          {"inference mode", stage, [](Plan& p) { p.grad_mode = PlanGradMode::inference; }}};
}

std::vector<Technique> precision_techniques(const WorkloadTraits& t) {
  const char* stage = "precision";
  std::vector<Technique> list = {{"autocast bf16", stage, [](Plan& p) { p.autocast = DType::bf16; }}};
  if (t.trains) return list;  // f16 needs a GradScaler, 16-bit weights lose small steps
  list.push_back({"autocast f16", stage, [](Plan& p) { p.autocast = DType::f16; }});
  list.push_back({"bf16 weights", stage, [](Plan& p) { p.dtype = DType::bf16, p.autocast = DType::f32; }});
  return list;
}

std::vector<Technique> layout_techniques(const WorkloadTraits& t) {
  if (!t.pictures) return {{"channels_last", "layout", {}, false, "there are no pictures"}};
  return {{"channels_last", "layout", [](Plan& p) { p.layout = MemoryFormat::channels_last; }}};
}

std::vector<Technique> compile_techniques() {
  auto on = [](Plan& p) {
    p.compile = true;  // plans record no gradients
    if (p.eval && p.grad_mode == PlanGradMode::grad) p.grad_mode = PlanGradMode::no_grad;
  };
  std::vector<Technique> list = {{"compile", "compile", on}};
  for (const char* pass : {"fuse_epilogues", "assign_layout"})
    list.push_back({fmt::format("compile without {}", pass), "compile", [pass](Plan& p) {
                      if (p.compile) p.off_passes.emplace_back(pass);
                    }});
  return list;
}

std::vector<Technique> batch_techniques(const WorkloadTraits& t) {
  const char* stage = "threads and batch size";
  std::vector<Technique> list;
  if (t.trains) list.push_back({"larger batches", stage, {}, false, "they change what is learned"});
  for (int64_t batch = 8; !t.trains && batch <= t.most_batch; batch *= 4)
    list.push_back({fmt::format("batches of {}", batch), stage, [batch](Plan& p) { p.batch = batch; }});
  return list;
}

std::vector<Technique> thread_techniques() {
  std::vector<Technique> list;
  int all = thread_choice().threads;
  for (int n : {all / 2, 1}) {
    if (n < 1 || n >= all || (n == 1 && !list.empty() && all / 2 == 1)) continue;
    list.push_back(
        {fmt::format("{} thread{}", n, n == 1 ? "" : "s"), "threads and batch size", [n](Plan& p) { p.threads = n; }});
  }
  return list;
}

std::vector<Technique> last_techniques(const WorkloadTraits& t) {
  return {{"length buckets",
           "bucketing",
           {},
           false,
           t.varying_length ? "this workload's batches are not ours to make" : "all samples have the same length"},
          {"int8 weights", "quantization", {}, false, "not available yet"}};
}

// What a plan from a file leaves to choose: how samples come to it, and how many at a time.
std::vector<Technique> plan_techniques(const WorkloadTraits& t) {
  std::vector<Technique> list = input_techniques(t);
  for (const auto& [name, stage] :
       {std::pair{"inference mode", "grad mode and eval"}, std::pair{"autocast bf16", "precision"},
        std::pair{"channels_last", "layout"}, std::pair{"compile", "compile"}})
    list.push_back({name, stage, {}, false, "the plan was compiled as it is; deft compile makes another one"});
  for (int64_t batch : t.plan_batches)
    list.push_back(
        {fmt::format("batches of {}", batch), "threads and batch size", [batch](Plan& p) { p.batch = batch; }});
  return list;
}

std::vector<Technique> all_techniques(const WorkloadTraits& t) {
  std::vector<Technique> list;
  if (!t.plan_batches.empty()) {
    for (const auto& part : {plan_techniques(t), thread_techniques(), last_techniques(t)})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }
  for (const auto& part : {input_techniques(t), mode_techniques(t), precision_techniques(t), layout_techniques(t),
                           compile_techniques(), batch_techniques(t), thread_techniques(), last_techniques(t)})
    list.insert(list.end(), part.begin(), part.end());
  return list;
}

class Trials {
 public:
  Trials(Workload& workload, const TrialsOptions& options)
      : workload_(workload), options_(options), end_(now() + options.seconds) {}

  TrialsResult run() {
    options_.progress("the workload as it is");
    reference_ = workload_.prepare(workload_.reference())->check();
    best_ = make_contestant(workload_, workload_.naive());
    first_rate_ = 1 / best_.seconds_per_sample();
    result_.accuracy_before = accuracy_of(best_.outcome);
    std::vector<Technique> list = all_techniques(workload_.traits());
    try_all(list);
    if (best_.plan.batch != workload_.naive().batch) try_all(again(list));
    finish_plan();
    verify();
    return std::move(result_);
  }

 private:
  void try_all(const std::vector<Technique>& list) {
    left_ = static_cast<double>(list.size());
    for (const Technique& t : list) {
      try_one(t);
      --left_;
    }
  }

  // What was no use with single samples may be of use with batches.
  std::vector<Technique> again(const std::vector<Technique>& list) const {
    std::vector<Technique> rest;
    for (const Technique& t : list) {
      auto row = std::find_if(result_.rows.begin(), result_.rows.end(), [&](auto& r) { return r.technique == t.name; });
      if (row == result_.rows.end() || row->pairs == 0 || row->kept || t.stage == "threads and batch size") continue;
      rest.push_back(t);
      rest.back().name += fmt::format(", batches of {}", best_.plan.batch);
    }
    return rest;
  }

  void try_one(const Technique& t) {
    TrialRow row{t.name, t.stage, kNaN, kNaN, kNaN, kNaN, kNaN, 0, kNaN, kNaN, kNaN, kNaN, kNaN, false, t.unavailable};
    Plan plan = best_.plan;
    if (t.change) t.change(plan);
    double seconds = share();
    if (!t.change) return result_.rows.push_back(row);
    if (plan == best_.plan) return;  // in use, or of no meaning here
    if (options_.stopped())
      row.reason = "not tried: stopped";
    else if (seconds <= 0)
      row.reason = "not tried: no time left";
    else
      measure(t, plan, seconds, row);
    result_.rows.push_back(row);
  }

  void measure(const Technique& t, const Plan& plan, double seconds, TrialRow& row) {
    options_.progress(fmt::format("{}: {}", t.stage, t.name));
    double until = now() + seconds;
    Contestant candidate;
    try {
      candidate = make_contestant(workload_, plan);
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {  // no kernel for a type, nothing that can be captured, no memory
      row.reason = error.what();
      return;
    }
    TrialResult trial = contest(best_, candidate, std::max(until, now() + seconds / 2), options_, ++round_);
    fill(row, trial, candidate);
    row.kept = decide(t, trial, candidate, row.reason);
    if (row.kept) keep(t, trial, std::move(candidate));
  }

  void fill(TrialRow& row, const TrialResult& trial, const Contestant& candidate) const {
    row.pairs = trial.pairs;
    if (trial.pairs > 0) {
      row.before_ms = 1e3 * trial.before, row.after_ms = 1e3 * trial.after;
      row.speedup = trial.speedup, row.speedup_low = trial.low, row.speedup_high = trial.high;
    }
    row.peak_mb_before = best_.peak_mb, row.peak_mb_after = candidate.peak_mb;
    row.output_error = relative_error(candidate.outcome.outputs, reference_.outputs);
    row.accuracy_before = accuracy_of(best_.outcome), row.accuracy_after = accuracy_of(candidate.outcome);
  }

  bool decide(const Technique& t, const TrialResult& trial, const Contestant& candidate, std::string& reason) const {
    // Without eval mode the workload is no measure of itself: then it must only not get worse.
    bool right = candidate.plan.eval || workload_.traits().trains;
    double wanted = right ? reference_.accuracy : best_.outcome.accuracy;
    double drop = wanted - candidate.outcome.accuracy;
    if (candidate.outcome.accuracy >= 0 && drop > options_.max_drop)
      return reason = fmt::format("costs {:.2f} points of accuracy", 100 * drop), false;
    if (t.needed) return reason = "results are wrong without it", true;
    if (trial.verdict == Verdict::helps) return reason = "helps beyond noise", true;
    reason = trial.decided ? name_of(trial.verdict) : "undecided: too little time";
    return false;
  }

  void keep(const Technique& t, const TrialResult& trial, Contestant candidate) {
    if (trial.pairs > 0) product_ *= trial.speedup;
    result_.waterfall.push_back({"+ " + t.name, 0, product_});
    best_ = std::move(candidate);
  }

  // Seconds for the next trial: an equal part of what is left, so that quick verdicts leave more for the others.
  double share() const {
    double left = end_ - now() - kVerifyShare * options_.seconds;
    return std::min(left / std::max(1.0, left_ / 2), kLongestTrial * options_.seconds);
  }

  void finish_plan() {
    Plan& p = result_.plan = best_.plan;
    p.version = kVersion;
    p.machine = Plan::this_machine();
    p.workload = fmt::format("{}, {}", workload_.name(), workload_.task());
    result_.accuracy_after = accuracy_of(best_.outcome);
    result_.interrupted = options_.stopped();
  }

  // Both made anew: what a trial left in caches and models is gone.
  void verify() {
    if (!result_.interrupted && !(best_.plan == workload_.naive())) {
      options_.progress("all together");
      best_.run.reset();
      Contestant before = make_contestant(workload_, workload_.naive());
      Contestant after = make_contestant(workload_, best_.plan);
      double until = std::max(end_, now() + kVerifyShare / 2 * options_.seconds);
      result_.verified = contest(before, after, until, options_, ++round_);
      result_.accuracy_after = accuracy_of(after.outcome);
      if (result_.verified.verdict == Verdict::hurts) give_up(before.plan);
    }
    if (result_.verified.before > 0) first_rate_ = 1 / result_.verified.before;
    for (TrialsResult::Step& s : result_.waterfall) s.samples_per_s = first_rate_ * s.speedup;
    result_.waterfall.insert(result_.waterfall.begin(), {"as it was", first_rate_, 1});
    if (result_.verified.pairs > 0)
      result_.waterfall.push_back({"verified together", 1 / result_.verified.after, result_.verified.speedup});
    result_.interrupted = result_.interrupted || options_.stopped();
  }

  // Each step helped, all together do not: only what is right stays.
  void give_up(const Plan& naive) {
    bool eval = best_.plan.eval;
    best_.plan = naive;
    best_.plan.eval = eval;
    finish_plan();
  }

  Workload& workload_;
  const TrialsOptions& options_;
  double end_, left_ = 1;
  uint64_t round_ = 0;
  Outcome reference_;
  Contestant best_;
  double first_rate_ = 0, product_ = 1;  // samples per second as it was; speedups of what was kept
  TrialsResult result_;
};

}  // namespace

TrialResult verify_plan(Workload& workload, const Plan& plan, const TrialsOptions& options) {
  double until = now() + options.seconds;
  Contestant before = make_contestant(workload, workload.naive()), after = make_contestant(workload, plan);
  return contest(before, after, std::max(until, now() + options.seconds / 2), options, 0);
}

TrialsResult run_trials(Workload& workload, const TrialsOptions& options) { return Trials(workload, options).run(); }

}  // namespace deft::doctor
