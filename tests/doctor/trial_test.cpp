// Trials on simulated machines whose times are known: noise with heavy tails, drift, phases of a busy neighbour.
#include "doctor/trial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace deft::doctor {
namespace {

// Time on a machine that others use too.
class NoisyMachine {
 public:
  struct Nature {
    double jitter = 0.03;    // lognormal
    double outliers = 0.05;  // share of runs that take up to several times as long
    double drift = 0;        // per second, of all times
    double busy = 0;         // slowdown in phases of a second
  };
  NoisyMachine(const Nature& nature, uint64_t seed) : nature_(nature), chance_(seed) {}
  double run(double seconds) {
    double t = seconds * std::exp(nature_.jitter * std::normal_distribution<>()(chance_));
    if (std::uniform_real_distribution<>()(chance_) < nature_.outliers)
      t += seconds * std::min(20.0, std::pow(std::uniform_real_distribution<>(0.01, 1)(chance_), -1.0) - 0.8);
    t *= 1 + nature_.drift * now_;
    if (static_cast<int64_t>(now_) % 2 == 1) t *= 1 + nature_.busy;
    now_ += t;
    return t;
  }
  double now() const { return now_; }

 private:
  Nature nature_;
  std::mt19937_64 chance_;
  double now_ = 0;
};

const NoisyMachine::Nature kNatures[] = {{.jitter = 0.03},
                                         {.jitter = 0.03, .drift = 0.03},
                                         {.jitter = 0.03, .outliers = 0.2},
                                         {.jitter = 0.03, .busy = 0.8},
                                         {.jitter = 0.05, .outliers = 0.1, .drift = -0.02, .busy = 0.5}};

TrialResult simulate(const NoisyMachine::Nature& nature, double speedup, uint64_t seed, double budget = 5) {
  NoisyMachine machine(nature, seed);
  constexpr double kUnit = 0.01;
  TrialOptions o;
  o.seed = seed;
  o.out_of_time = [&] { return machine.now() > budget; };
  return run_trial([&] { return machine.run(kUnit); }, [&] { return machine.run(kUnit / speedup); }, o);
}

TEST(Trial, EffectsOfMoreThanFivePercentAreSeenEveryTime) {
  for (const auto& nature : kNatures)
    for (double effect : {1.06, 1.1, 1.5, 4.0})
      for (uint64_t seed = 1; seed <= 20; ++seed) {
        TrialResult faster = simulate(nature, effect, seed), slower = simulate(nature, 1 / effect, seed + 100);
        EXPECT_EQ(faster.verdict, Verdict::helps) << effect << " seed " << seed;
        EXPECT_EQ(slower.verdict, Verdict::hurts) << effect << " seed " << seed;
        EXPECT_TRUE(faster.decided() && slower.decided());
      }
}

TEST(Trial, NothingIsMadeOfNoise) {
  int wrong = 0, runs = 0;
  for (const auto& nature : kNatures)
    for (uint64_t seed = 1; seed <= 100; ++seed, ++runs) wrong += simulate(nature, 1, seed).verdict <= Verdict::hurts;
  EXPECT_LE(wrong, runs / 50);
}

TEST(Trial, TheIntervalHoldsTheTruth) {
  int held = 0, runs = 0;
  for (const auto& nature : kNatures)
    for (uint64_t seed = 1; seed <= 100; ++seed, ++runs) {
      TrialResult r = simulate(nature, 1.3, seed);
      held += r.low <= 1.3 && 1.3 <= r.high;
      EXPECT_LE(r.low, r.speedup);
      EXPECT_LE(r.speedup, r.high);
    }
  EXPECT_GE(held, runs * 95 / 100);
}

TEST(Trial, LargeEffectsTakeFewPairs) {
  EXPECT_EQ(simulate(kNatures[0], 3, 1).pairs, 8);
  EXPECT_GT(simulate(kNatures[0], 1, 1).pairs, 8);
}

TEST(Trial, OutOfTimeIsUndecided) {
  TrialResult r = simulate(kNatures[0], 1.5, 1, 0.05);
  EXPECT_EQ(r.verdict, Verdict::undecided);
  EXPECT_GT(r.pairs, 0);
  EXPECT_EQ(r.high, std::numeric_limits<double>::infinity());
  TrialResult none = simulate(kNatures[0], 1.5, 1, -1);
  EXPECT_EQ(none.pairs, 0);
}

// Other programs stretch every run by a draw of its own: what they do to one side is no property of it.
TEST(Trial, SmallEffectsAreUndecidedWhereRunsDifferByMore) {
  NoisyMachine::Nature loaded{.jitter = 0.6};
  int hurts = 0, decided = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    TrialResult r = simulate(loaded, 0.85, seed, 20);
    EXPECT_GT(r.spread, 0.2);
    hurts += r.verdict == Verdict::hurts;
    decided += r.decided();
  }
  EXPECT_EQ(hurts, 0);
  EXPECT_LE(decided, 1);
  EXPECT_EQ(simulate(loaded, 6, 1).verdict, Verdict::helps) << "a large effect is seen all the same";
}

// Medians of each side's own times would say 0.217 to 0.257 ms beside a speedup of 1.42.
TEST(Trial, TimesGoWithTheSpeedup) {
  for (const auto& nature : kNatures)
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      TrialResult r = simulate(nature, 1.2, seed, 0.3);
      ASSERT_GT(r.pairs, 0);
      EXPECT_NEAR(r.before / r.after, r.speedup, 1e-9 * r.speedup);
    }
}

TEST(Trial, ARunThatGivesUpEndsTheTrial) {
  int runs = 0;
  auto after = [&]() -> double {
    if (++runs > 3) throw OutOfTime();
    return 1.0;
  };
  TrialResult r = run_trial([] { return 2.0; }, after);
  EXPECT_EQ(r.verdict, Verdict::undecided);
  EXPECT_EQ(r.pairs, 3);
  EXPECT_DOUBLE_EQ(r.speedup, 2);
}

TEST(Trial, OrdersAreBalanced) {
  std::string order;
  TrialOptions o;
  o.max_pairs = 64;
  o.most = 0;  // never decided
  run_trial([&] { return order += 'b', 1.0; }, [&] { return order += 'a', 1.0; }, o);
  ASSERT_EQ(order.size() % 4, 0u);
  bool before_first = false, after_first = false;
  for (size_t i = 0; i < order.size(); i += 4) {
    std::string block = order.substr(i, 4);
    EXPECT_TRUE(block == "baab" || block == "abba") << block;
    (block[0] == 'b' ? before_first : after_first) = true;
  }
  EXPECT_TRUE(before_first && after_first);
}

TEST(Trial, MedianIntervals) {
  std::vector<double> v;
  for (int i = 0; i < 7; ++i) v.push_back(i);
  Interval few = median_interval(v, 0.99);  // 2 / 2^7 > 1 %
  EXPECT_EQ(few.median, 3);
  EXPECT_EQ(few.low, -std::numeric_limits<double>::infinity());
  v.push_back(7);
  Interval eight = median_interval(v, 0.99);  // 2 / 2^8 < 1 %, 2 * 9 / 2^8 > 1 %
  EXPECT_EQ(eight.low, 0);
  EXPECT_EQ(eight.median, 3.5);
  EXPECT_EQ(eight.high, 7);
  for (int i = 8; i < 20; ++i) v.push_back(i);
  Interval twenty = median_interval(v, 0.99);  // 2 * (1 + 20 + 190 + 1140) / 2^20 < 1 %; with 4845 more > 1 %
  EXPECT_EQ(twenty.low, 3);
  EXPECT_EQ(twenty.high, 16);
}

}  // namespace
}  // namespace deft::doctor
