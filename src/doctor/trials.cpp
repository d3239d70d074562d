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
constexpr double kLoaded = 0.2;         // ... and one beside programs that take the cores
constexpr double kSureUnderLoad = 1.1;  // a speedup that counts beside them
constexpr int kFewestTries = 2, kMostTries = 10;
constexpr double kTrySeconds = 0.06;    // for more than one
constexpr double kVerifyShare = 0.2;    // of the time, for the last trial
constexpr double kLongestTrial = 0.15;  // of the time
constexpr int kWarmUps = 4;             // captures, symbolic sizes, packed weights, tuned kernels
constexpr int kFewestWarmUps = 2;       // of runs that take longer than this together
constexpr double kWarmUpSeconds = 1;
constexpr const char* kTooLittleTime = "undecided: too little time";

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
};

struct Timed {
  double seconds_per_sample;
  bool loaded;  // other programs had the cores in every run
};

// The quickest of a few runs, until in one of them no other program had the cores; of long ones, the first.
Timed timed(const Contestant& c, const TrialsOptions& options) {
  double best = std::numeric_limits<double>::infinity(), spent = 0;
  bool alone = false, loaded = true;
  for (int i = 0; i == 0 || (spent < kTrySeconds && (i < kFewestTries || (!alone && i < kMostTries))); ++i) {
    const double before = options.waited(), seconds = c.run->run(c.unit), waited = options.waited() - before;
    alone = alone || waited < kDisturbed * seconds;
    loaded = loaded && waited > kLoaded * seconds;
    best = std::min(best, seconds);
    spent += seconds;
  }
  return {best / static_cast<double>(c.unit), loaded};
}

Contestant make_contestant(Workload& workload, const Plan& plan) {
  Contestant c;
  c.plan = plan;
  int64_t before = memory_live().total;
  c.run = workload.prepare(plan);
  double seconds = 0, spent = 0;
  for (int i = 0; i < kWarmUps && (i < kFewestWarmUps || spent < kWarmUpSeconds); ++i)
    spent += seconds = c.run->run(plan.batch);
  c.unit = plan.batch * std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kUnitSeconds / seconds)));
  MemoryScope scope;
  c.run->run(c.unit);
  c.peak_mb = static_cast<double>(scope.peak_bytes() - before) / 1e6;
  c.outcome = c.run->check();
  return c;
}

struct Contest {
  TrialResult trial;
  bool loaded = false;  // most runs of the one that is known were beside other programs
};

// Beside programs that take the cores nothing is said to hurt, and what helps must do so by much, and not by leaving
// cores to them: that is over when they end.
void judge_under_load(const Contestant& before, const Contestant& after, TrialResult& trial) {
  const bool cores = before.plan.threads != after.plan.threads || before.plan.workers != after.plan.workers;
  const bool sure = trial.verdict == Verdict::helps && trial.low >= kSureUnderLoad && !cores;
  if (!sure && trial.verdict != Verdict::no_difference) trial.verdict = Verdict::undecided;
}

Contest contest(const Contestant& before, const Contestant& after, double until, const TrialsOptions& options,
                uint64_t round) {
  TrialOptions o;
  o.seed = options.seed + round;
  o.out_of_time = [&] { return options.clock() > until || options.stopped(); };
  int runs = 0, loaded = 0;
  const auto known = [&] {
    const Timed t = timed(before, options);
    ++runs, loaded += t.loaded;
    return t.seconds_per_sample;
  };
  Contest c{run_trial(
      known, [&] { return timed(after, options).seconds_per_sample; }, o)};
  c.loaded = runs > 0 && 2 * loaded > runs;
  if (c.loaded) judge_under_load(before, after, c.trial);
  return c;
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
          {"no_grad", stage,
           [](Plan& p) {
             if (p.grad_mode == PlanGradMode::grad) p.grad_mode = PlanGradMode::no_grad;
           }},
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

std::vector<Technique> layout_techniques(const WorkloadTraits& t, const Plan& today) {
  if (!t.images) return {{"channels_last", "layout", {}, false, "there are no images"}};
  if (today.layout == MemoryFormat::channels_last)
    return {{"contiguous", "layout", [](Plan& p) { p.layout = MemoryFormat::contiguous; }}};
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

std::vector<Technique> all_techniques(const WorkloadTraits& t, const Plan& today) {
  std::vector<Technique> list;
  if (!t.plan_batches.empty()) {
    for (const auto& part : {plan_techniques(t), thread_techniques(), last_techniques(t)})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }
  for (const auto& part :
       {input_techniques(t), mode_techniques(t), precision_techniques(t), layout_techniques(t, today),
        compile_techniques(), batch_techniques(t), thread_techniques(), last_techniques(t)})
    list.insert(list.end(), part.begin(), part.end());
  return list;
}

// Runs of the workload end at `until`, or when the user says so.
class Limit {
 public:
  Limit(Workload& workload, const TrialsOptions& options, double until)
      : workload_(workload), outer_(workload.out_of_time) {
    workload.out_of_time = [&options, until] { return options.clock() > until || options.stopped(); };
  }
  ~Limit() { workload_.out_of_time = outer_; }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  Workload& workload_;
  std::function<bool()> outer_;
};

class Trials {
 public:
  Trials(Workload& workload, const TrialsOptions& options)
      : workload_(workload), options_(options), end_(options.clock() + options.seconds) {}

  TrialsResult run() {
    today_ = workload_.today();
    describe(today_);
    result_.plan = today_;
    result_.accuracy_before = result_.accuracy_after = kNaN;
    result_.why = "there was no time to measure the workload as it is: the defaults stay";
    try {
      measure_today();
      std::vector<Technique> list = all_techniques(workload_.traits(), today_);
      try_all(list);
      if (best_.plan.batch != today_.batch) try_all(again(list));
      verify();
    } catch (const OutOfTime&) {
    }
    result_.interrupted = options_.stopped();
    return std::move(result_);
  }

 private:
  void describe(Plan& p) const {
    p.version = kVersion;
    p.machine = Plan::this_machine();
    p.workload = fmt::format("{}, {}", workload_.name(), workload_.task());
  }

  void measure_today() {
    options_.progress("the workload as it is");
    Limit limit(workload_, options_, end_);
    best_ = make_contestant(workload_, today_);
    const Plan reference = workload_.reference();
    reference_ = reference == workload_.today() ? best_.outcome : workload_.prepare(reference)->check();
    seconds_per_sample_ = timed(best_, options_).seconds_per_sample;
    result_.accuracy_before = result_.accuracy_after = accuracy_of(best_.outcome);
    first_rate_ = 1 / seconds_per_sample_;
    result_.waterfall.push_back({"as it was", first_rate_, 1});
    result_.why = "the trials did not come to their end: the defaults stay";
  }

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
    if (t.change && plan == best_.plan) return;  // in use, or of no meaning here
    if (t.change) row.reason = why_not(plan);
    if (row.reason.empty()) measure(t, plan, row);
    result_.rows.push_back(row);
    options_.so_far(result_);
  }

  // "" where there is time for the trial: at least for runs that warm up.
  std::string why_not(const Plan& plan) const {
    if (options_.stopped()) return "not tried: stopped";
    const double seconds = share();
    const double run = seconds_per_sample_ * static_cast<double>(plan.batch);
    if (seconds <= 0) return "not tried: no time left";
    if (run * (kFewestWarmUps + 1) <= seconds) return "";
    return fmt::format("not tried: a run takes about {:.2g} s, and {:.2g} s are left for it", run, seconds);
  }

  void measure(const Technique& t, const Plan& plan, TrialRow& row) {
    options_.progress(fmt::format("{}: {}", t.stage, t.name));
    const double until = options_.clock() + share();
    Limit limit(workload_, options_, until);
    Contestant candidate;
    try {
      candidate = make_contestant(workload_, plan);
    } catch (const OutOfTime&) {
      row.reason = kTooLittleTime;
      return;
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {  // no kernel for a type, nothing that can be captured, no memory
      row.reason = error.what();
      return;
    }
    const Contest c = contest(best_, candidate, until, options_, ++round_);
    fill(row, c.trial, candidate);
    row.kept = decide(t, c, candidate, row.reason);
    if (row.kept) keep(t, c.trial, std::move(candidate));
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

  bool decide(const Technique& t, const Contest& c, const Contestant& candidate, std::string& reason) const {
    // Without eval mode the workload is no measure of itself: then it must only not get worse.
    bool right = candidate.plan.eval || workload_.traits().trains;
    double wanted = right ? reference_.accuracy : best_.outcome.accuracy;
    double drop = wanted - candidate.outcome.accuracy;
    if (candidate.outcome.accuracy >= 0 && drop > options_.max_drop)
      return reason = fmt::format("costs {:.2f} points of accuracy", 100 * drop), false;
    if (t.needed) return reason = "results are wrong without it", true;
    if (c.trial.verdict == Verdict::helps) return reason = "helps beyond noise", true;
    reason = c.trial.decided() ? name_of(c.trial.verdict)
             : c.loaded        ? "undecided: other programs use the processors"
                               : kTooLittleTime;
    return false;
  }

  void keep(const Technique& t, const TrialResult& trial, Contestant candidate) {
    if (trial.pairs > 0) product_ *= trial.speedup, seconds_per_sample_ = trial.after;
    result_.waterfall.push_back({"+ " + t.name, 0, product_});
    best_ = std::move(candidate);
  }

  // Seconds for the next trial: an equal part of what is left, so that quick verdicts leave more for the others.
  double share() const {
    double left = end_ - options_.clock() - kVerifyShare * options_.seconds;
    return std::min(left / std::max(1.0, left_ / 2), kLongestTrial * options_.seconds);
  }

  // What was kept is the plan if all of it together helps, in a trial of its own; without that proof nothing changes.
  void verify() {
    if (best_.plan == today_) {
      const bool tried = std::ranges::any_of(result_.rows, [](const TrialRow& r) { return r.pairs > 0; });
      result_.why = tried ? "no technique was proved to help: the defaults stay"
                          : "there was no time to try anything: the defaults stay";
      return;
    }
    if (!options_.stopped()) prove();
    const bool proved = result_.verified.verdict == Verdict::helps;
    if (proved) {
      result_.plan = best_.plan;
      result_.accuracy_after = accuracy_of(best_.outcome);
      result_.why = "all of it together helps beyond noise";
    } else {
      give_up();
    }
    if (result_.verified.before > 0) first_rate_ = 1 / result_.verified.before;
    for (TrialsResult::Step& s : result_.waterfall) s.samples_per_s = first_rate_ * s.speedup;
    if (result_.verified.pairs > 0)
      result_.waterfall.push_back({"verified together", 1 / result_.verified.after, result_.verified.speedup});
  }

  // Both made anew: what a trial left in caches and models is gone.
  void prove() {
    options_.progress("all together");
    best_.run.reset();
    Limit limit(workload_, options_, end_);
    try {
      Contestant before = make_contestant(workload_, today_);
      Contestant after = make_contestant(workload_, best_.plan);
      result_.verified = contest(before, after, end_, options_, ++round_).trial;
      best_.outcome = after.outcome;
    } catch (const OutOfTime&) {
    }
  }

  // Each step helped, all together did not, or there was no time to see: only what is right stays.
  void give_up() {
    const bool hurts = result_.verified.verdict == Verdict::hurts;
    const char* together = hurts ? "helps alone, but hurts with the others"
                                 : "helps beyond noise, but not proved together with the others";
    result_.plan.eval = best_.plan.eval;
    result_.why = hurts ? "the steps hurt together: the defaults stay"
                        : "too little time to prove that the steps help together: the defaults stay";
    for (TrialRow& row : result_.rows) {
      if (!row.kept || row.reason == "results are wrong without it") continue;
      row.kept = false;
      row.reason = together;
    }
    result_.waterfall.resize(1);
  }

  Workload& workload_;
  const TrialsOptions& options_;
  double end_, left_ = 1;
  uint64_t round_ = 0;
  Plan today_;
  Outcome reference_;
  Contestant best_;
  double seconds_per_sample_ = 0;        // of the best so far
  double first_rate_ = 0, product_ = 1;  // samples per second as it was; speedups of what was kept
  TrialsResult result_;
};

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_waited_for_cores() {
  double ns = 0, ran = 0, waited = 0;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(thread.path() / "schedstat");
    if (file >> ran >> waited) ns += waited;
  }
  return ns / 1e9;
}

TrialResult verify_plan(Workload& workload, const Plan& plan, const TrialsOptions& options) {
  const double until = options.clock() + options.seconds;
  Limit limit(workload, options, until);
  try {
    Contestant before = make_contestant(workload, workload.today()), after = make_contestant(workload, plan);
    return contest(before, after, until, options, 0).trial;
  } catch (const OutOfTime&) {
    return {};
  }
}

TrialsResult run_trials(Workload& workload, const TrialsOptions& options) { return Trials(workload, options).run(); }

}  // namespace deft::doctor
