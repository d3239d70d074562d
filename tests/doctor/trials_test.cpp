// The trials on workloads whose times, results and accuracies are known.
#include "doctor/trials.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "base/error.h"
#include "ops/all_ops.h"

namespace deft::doctor {
namespace {

// Seconds per sample and accuracy as a function of the plan; nothing is really run.
struct Simulated : Workload {
  std::function<double(const Plan&)> seconds;
  std::function<double(const Plan&)> accuracy = [](const Plan&) { return 0.9; };
  std::function<void(const Plan&)> on_prepare = [](const Plan&) {};
  WorkloadTraits kind{.images = true, .loads = true};
  Plan start;
  int64_t runs = 0;
  double time = 0;     // what the runs took
  bool polite = true;  // asks between batches whether its time is over
  std::mt19937_64 chance{1};

  struct Run : PreparedRun {
    Run(Simulated& w, const Plan& p) : workload(w), plan(p) {}
    double run(int64_t samples) override {
      ++workload.runs;
      EXPECT_EQ(samples % plan.batch, 0);
      double noise = std::exp(0.02 * std::normal_distribution<>()(workload.chance)), seconds = 0;
      for (int64_t i = 0; i < samples; i += plan.batch) {
        if (workload.polite && workload.out_of_time()) throw OutOfTime();
        const double batch = workload.seconds(plan) * static_cast<double>(plan.batch) * noise;
        workload.time += batch, seconds += batch;
      }
      return seconds;
    }
    Outcome check() override {
      double off = plan.autocast == DType::f32 && plan.dtype == DType::f32 ? 0 : 0.01;
      return {full({4, 2}, 1 + off), workload.accuracy(plan)};
    }
    Simulated& workload;
    Plan plan;
  };
  std::string name() const override { return "simulated"; }
  std::string task() const override { return kind.trains ? "train" : "infer"; }
  WorkloadTraits traits() const override { return kind; }
  Plan today() const override { return start; }
  Plan reference() const override {
    Plan p;
    p.eval = true;
    return p;
  }
  std::unique_ptr<PreparedRun> prepare(const Plan& plan) override {
    on_prepare(plan);
    return std::make_unique<Run>(*this, plan);
  }
};

// Everything goes by the time of the runs, whatever the machine does meanwhile.
TrialsOptions by_clock_of(Simulated& w, double seconds) {
  TrialsOptions o;
  o.seconds = seconds;
  o.clock = [&w] { return w.time; };
  o.waited = [] { return 0.0; };
  return o;
}

const TrialRow& row_of(const TrialsResult& r, const std::string& technique) {
  for (const TrialRow& row : r.rows)
    if (row.technique == technique) return row;
  throw ValueError("no row of " + technique);
}

// 1 ms a sample; inference mode 1.5x, bf16 2x, channels_last 0.8x, batches of 8 and 32 2x each, no more with 128.
double usual_seconds(const Plan& p) {
  double s = 1e-3;
  if (p.grad_mode != PlanGradMode::grad) s /= 1.5;
  if (p.autocast == DType::bf16) s /= 2;
  if (p.autocast == DType::f16) s /= 0.5;
  if (p.layout == MemoryFormat::channels_last) s *= 1.25;
  if (p.batch >= 8) s /= 2;
  if (p.batch >= 32) s /= 2;
  return s;
}

TEST(Trials, KeepWhatHelpsAndNothingElse) {
  Simulated w;
  w.seconds = usual_seconds;
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_EQ(r.plan.grad_mode, PlanGradMode::no_grad) << "inference mode is no faster than no_grad here";
  EXPECT_TRUE(r.plan.eval);
  EXPECT_EQ(r.plan.autocast, DType::bf16);
  EXPECT_EQ(r.plan.layout, MemoryFormat::contiguous);
  EXPECT_EQ(r.plan.batch, 32);
  EXPECT_FALSE(r.plan.compile);
  EXPECT_EQ(r.plan.workers, 0);
  EXPECT_EQ(r.plan.machine, Plan::this_machine());
  EXPECT_EQ(r.plan.workload, "simulated, infer");
  EXPECT_NEAR(r.verified.speedup, 12, 0.5);
  EXPECT_EQ(r.verified.verdict, Verdict::helps);
  EXPECT_FALSE(r.interrupted);

  const TrialRow& bf16 = row_of(r, "autocast bf16");
  EXPECT_TRUE(bf16.kept);
  EXPECT_EQ(bf16.stage, "precision");
  EXPECT_NEAR(bf16.speedup, 2, 0.1);
  EXPECT_LE(bf16.speedup_low, 2);
  EXPECT_GE(bf16.speedup_high, 2);
  EXPECT_NEAR(bf16.before_ms, 2.0 / 3, 0.05);
  EXPECT_NEAR(bf16.after_ms, 1.0 / 3, 0.03);
  EXPECT_NEAR(bf16.output_error, 0.01, 1e-6);
  EXPECT_EQ(row_of(r, "no_grad").output_error, 0);
  EXPECT_EQ(row_of(r, "channels_last").reason, "hurts");
  EXPECT_EQ(row_of(r, "compile").reason, "no difference");
  EXPECT_EQ(row_of(r, "int8 weights").reason, "not available yet");
  EXPECT_TRUE(std::isnan(row_of(r, "int8 weights").speedup)) << "never a number that nobody measured";
  EXPECT_EQ(row_of(r, "int8 weights").pairs, 0);
}

TEST(Trials, TheWaterfallMultipliesToWhatIsVerified) {
  Simulated w;
  w.seconds = usual_seconds;
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  std::vector<std::string> names;
  for (const auto& step : r.waterfall) names.push_back(step.name);
  EXPECT_EQ(names, (std::vector<std::string>{"as it was", "+ eval mode", "+ no_grad", "+ autocast bf16",
                                             "+ batches of 8", "+ batches of 32", "verified together"}));
  EXPECT_NEAR(r.waterfall[0].samples_per_s, 1000, 50);
  EXPECT_NEAR(r.waterfall[3].speedup, 3, 0.2);
  EXPECT_NEAR(r.waterfall[5].speedup, r.waterfall[6].speedup, 1);
  EXPECT_NEAR(r.waterfall[6].samples_per_s, 12000, 700);
}

TEST(Trials, AccuracyIsNotGivenUp) {
  Simulated w;
  w.seconds = usual_seconds;
  w.accuracy = [](const Plan& p) { return p.autocast == DType::bf16 ? 0.894 : 0.9; };
  TrialsResult strict = run_trials(w, by_clock_of(w, 1000));
  EXPECT_EQ(strict.plan.autocast, DType::f32);
  EXPECT_EQ(row_of(strict, "autocast bf16").reason, "costs 0.60 points of accuracy");
  TrialsOptions o = by_clock_of(w, 1000);
  o.max_drop = 0.01;
  EXPECT_EQ(run_trials(w, o).plan.autocast, DType::bf16);
}

TEST(Trials, SmallDropsDoNotAddUp) {
  Simulated w;
  w.seconds = usual_seconds;
  w.accuracy = [](const Plan& p) { return 0.9 - (p.autocast == DType::bf16 ? 0.004 : 0) - (p.batch >= 8 ? 0.004 : 0); };
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_EQ(r.plan.autocast, DType::bf16);
  EXPECT_EQ(r.plan.batch, 1);
}

TEST(Trials, EvalModeIsNeededHoweverSlow) {
  Simulated w;
  w.seconds = [](const Plan& p) { return usual_seconds(p) * (p.eval ? 1.2 : 1); };
  w.accuracy = [](const Plan& p) { return p.eval ? 0.9 : 0.5; };
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_TRUE(r.plan.eval);
  EXPECT_EQ(row_of(r, "eval mode").reason, "results are wrong without it");
  EXPECT_EQ(row_of(r, "eval mode").accuracy_before, 0.5);
  EXPECT_EQ(row_of(r, "eval mode").accuracy_after, 0.9);
  EXPECT_EQ(r.accuracy_before, 0.5);
  EXPECT_EQ(r.accuracy_after, 0.9);
}

TEST(Trials, WhatWasNoUseAtFirstIsTriedAgainWithBatches) {
  Simulated w;
  w.seconds = [](const Plan& p) { return usual_seconds(p) / (p.compile && p.batch > 1 ? 1.5 : 1); };
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_FALSE(row_of(r, "compile").kept);
  EXPECT_TRUE(row_of(r, "compile, batches of 32").kept);
  EXPECT_TRUE(r.plan.compile);
}

TEST(Trials, TrainingKeepsItsGradientsAndBatches) {
  Simulated w;
  w.kind.trains = true;
  w.seconds = usual_seconds;
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_EQ(r.plan.grad_mode, PlanGradMode::grad);
  EXPECT_FALSE(r.plan.eval);
  EXPECT_EQ(r.plan.batch, 1);
  EXPECT_EQ(r.plan.autocast, DType::bf16);
}

TEST(Trials, WhatCannotRunIsARowWithItsReason) {
  Simulated w;
  w.seconds = usual_seconds;
  w.on_prepare = [](const Plan& p) {
    if (p.autocast == DType::f16) throw UnsupportedError("no f16 here");
  };
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_EQ(row_of(r, "autocast f16").reason, "no f16 here");
  EXPECT_FALSE(row_of(r, "autocast f16").kept);
  w.on_prepare = [](const Plan& p) {
    if (p.compile) throw InternalError("a bug");
  };
  EXPECT_THROW(run_trials(w, by_clock_of(w, 1000)), InternalError);
}

TEST(Trials, StepsThatDoNotGoTogetherAreGivenUp) {
  Simulated w;
  int64_t after = 0;  // prepared plans with batches of 32: the first is the trial, the next ones come with the rest
  w.on_prepare = [&](const Plan& p) { after += p.batch == 32; };
  w.seconds = [&](const Plan& p) { return usual_seconds(p) * (p.batch == 32 && after > 1 ? 30 : 1); };
  w.kind.most_batch = 32;
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_EQ(r.verified.verdict, Verdict::hurts);
  EXPECT_EQ(r.plan.batch, 1);
  EXPECT_TRUE(r.plan.eval);
}

TEST(Trials, AStopGivesWhatThereIs) {
  Simulated w;
  w.seconds = usual_seconds;
  TrialsOptions o = by_clock_of(w, 1000);
  int trials = 0;
  o.progress = [&](const std::string&) { ++trials; };
  o.stopped = [&] { return trials > 4; };  // the workload itself, two of input, eval
  TrialsResult r = run_trials(w, o);
  EXPECT_TRUE(r.interrupted);
  EXPECT_TRUE(r.plan.eval);
  EXPECT_EQ(r.verified.pairs, 0);
  EXPECT_EQ(row_of(r, "compile").reason, "not tried: stopped");
  EXPECT_EQ(r.waterfall.front().name, "as it was");
}

TEST(Trials, WithoutTimeNothingIsMadeUp) {
  Simulated w;
  w.seconds = usual_seconds;
  TrialsResult r = run_trials(w, by_clock_of(w, 0));
  for (const TrialRow& row : r.rows) EXPECT_FALSE(row.kept) << row.technique;
  EXPECT_EQ(r.plan.grad_mode, PlanGradMode::grad);
  EXPECT_EQ(r.why, "there was no time to measure the workload as it is: the defaults stay");
}

// As `deft infer` runs it.
Plan usual_plan() {
  Plan p;
  p.eval = true;
  p.grad_mode = PlanGradMode::inference;
  p.batch = 128;
  p.layout = MemoryFormat::channels_last;
  return p;
}

bool same_settings(Plan a, const Plan& b) {
  a.version = b.version, a.machine = b.machine, a.workload = b.workload;
  return a == b;
}

TEST(Trials, AnyBudgetIsKept) {
  for (double seconds_per_sample : {1e-5, 1e-3, 1e-2, 0.3})
    for (double budget : {0.5, 3.0, 20.0, 200.0}) {
      Simulated w;
      w.start = usual_plan();
      w.seconds = [&](const Plan& p) { return usual_seconds(p) * 1e3 * seconds_per_sample; };
      TrialsResult r = run_trials(w, by_clock_of(w, budget));
      // A batch that has begun is not broken off.
      EXPECT_LE(w.time, budget + 3 * 128 * seconds_per_sample) << seconds_per_sample << " s, budget " << budget;
    }
}

TEST(Trials, WithoutProofTheDefaultsStay) {
  for (double budget : {0.2, 1.0, 5.0, 15.0, 40.0, 100.0, 1000.0}) {
    Simulated w;
    w.start = usual_plan();
    w.seconds = usual_seconds;
    TrialsResult r = run_trials(w, by_clock_of(w, budget));
    EXPECT_FALSE(r.why.empty());
    if (r.verified.verdict == Verdict::helps) continue;
    EXPECT_TRUE(same_settings(r.plan, usual_plan())) << budget << ": " << r.plan.to_json();
    for (const TrialRow& row : r.rows) EXPECT_FALSE(row.kept) << budget << ": " << row.technique;
  }
  Simulated w;
  w.start = usual_plan();
  w.seconds = usual_seconds;
  TrialsResult r = run_trials(w, by_clock_of(w, 1000));
  EXPECT_EQ(r.verified.verdict, Verdict::helps);
  EXPECT_EQ(r.plan.autocast, DType::bf16);
  EXPECT_EQ(r.plan.grad_mode, PlanGradMode::inference) << "no_grad is a step back";
  EXPECT_EQ(r.why, "all of it together helps beyond noise");
}

TEST(Trials, ATrialThatCannotEndIsGivenUpBetweenBatches) {
  Simulated w;
  w.seconds = [](const Plan& p) { return usual_seconds(p) * (p.compile ? 1e6 : 1); };
  TrialsResult r = run_trials(w, by_clock_of(w, 100));
  EXPECT_EQ(row_of(r, "compile").reason, "undecided: too little time");
  EXPECT_FALSE(r.plan.compile);
}

TEST(Trials, WhatCannotFitIsNotBegun) {
  Simulated w;
  w.start = usual_plan();
  w.start.batch = 8;
  w.kind.most_batch = 128;
  w.seconds = [](const Plan&) { return 0.05; };
  TrialsResult r = run_trials(w, by_clock_of(w, 60));
  EXPECT_TRUE(row_of(r, "batches of 128").reason.starts_with("not tried: a run takes about 6.4 s"))
      << row_of(r, "batches of 128").reason;
}

// Beside programs that take the cores, what has all its threads running looks slow.
TEST(Trials, UnderLoadNothingIsSaidToHurt) {
  Simulated w;
  w.start = usual_plan();
  w.seconds = [](const Plan& p) { return 1e-3 * (p.workers > 0 ? 0.8 : 1) * (p.autocast == DType::f32 ? 1 : 1.5); };
  TrialsOptions o = by_clock_of(w, 1000);
  double waited = 0;
  o.waited = [&] { return waited += 10; };
  TrialsResult r = run_trials(w, o);
  for (const TrialRow& row : r.rows) EXPECT_NE(row.reason, "hurts") << row.technique;
  EXPECT_EQ(row_of(r, "autocast bf16").reason, "undecided: other programs use the processors");
  EXPECT_FALSE(row_of(r, "1 loading thread").kept) << "cores are left to others only as long as they are there";
  EXPECT_TRUE(same_settings(r.plan, usual_plan()));
  o.waited = [] { return 0.0; };
  EXPECT_EQ(row_of(run_trials(w, o), "autocast bf16").reason, "hurts");
}

TEST(Trials, WhatIsKnownIsToldAfterEachTrial) {
  Simulated w;
  w.start = usual_plan();
  w.seconds = usual_seconds;
  TrialsOptions o = by_clock_of(w, 1000);
  size_t told = 0;
  o.so_far = [&](const TrialsResult& r) {
    EXPECT_EQ(r.rows.size(), ++told);
    EXPECT_TRUE(same_settings(r.plan, usual_plan())) << "nothing is proved yet";
    EXPECT_FALSE(r.plan.machine.empty());
  };
  TrialsResult r = run_trials(w, o);
  EXPECT_EQ(told, r.rows.size());
}

}  // namespace
}  // namespace deft::doctor
