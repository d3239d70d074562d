// Note [Sampling]: a session that would cost too much records a part of the run and extrapolates.
#include <cmath>

#include "base/error.h"
#include "core/grad_mode.h"
#include "core/observer.h"
#include "ops/creation.h"
#include "ops/unary.h"
#include "profile/session_util.h"

namespace deft::profile {
namespace {

constexpr int kSteps = 200'000;  // of 10 microseconds: 400 slices

FakeClock with_zones_of(double seconds) { return {kFake.ticks, kFake.seconds_per_tick, seconds}; }

// Half of the steps are of another kind: a part that keeps step with the program would see too much of one.
void steps(int count) {
  for (int i = 0; i < count; ++i) {
    Zone step("step", Bucket::dispatch);
    pass(2);
    {
      Zone kernel(i % 2 ? "odd" : "even", i % 2 ? Bucket::kernel : Bucket::linear_algebra);
      pass(i % 2 ? 4 : 6);
    }
    Zone wait("wait", Bucket::sync);
    pass(i % 2 ? 4 : 2);
  }
  pass(7);
}

Profile profile_of_steps(int count, double zone_seconds, double most_cost) {
  const FakeClock clock = with_zones_of(zone_seconds);
  ProfileSession session({.most_cost = most_cost, .clock = &clock});
  steps(count);
  Profile p = session.stop();
  add_up(p);
  return p;
}

TEST(Doze, WhatIsSeenStandsForAll) {
  const Profile p = profile_of_steps(kSteps, 1e-7, 0.02);  // three zones a step: 3 %
  EXPECT_NEAR(p.wall_seconds * 1e6, 10.0 * kSteps + 7, 1e-3);
  EXPECT_NEAR(p.looked_share, 1.0 / 3, 0.02);
  const double wall = p.wall_seconds;
  EXPECT_NEAR(p[Bucket::dispatch] / wall, 0.2, 0.002);
  EXPECT_NEAR(p[Bucket::linear_algebra] / wall, 0.3, 0.002);
  EXPECT_NEAR(p[Bucket::kernel] / wall, 0.2, 0.002);
  EXPECT_NEAR(p[Bucket::sync] / wall, 0.3, 0.002);
  ASSERT_TRUE(row_of(p, "step") && stack_of(p, "step;even"));
  EXPECT_NEAR(static_cast<double>(row_of(p, "step")->calls), kSteps, 0.01 * kSteps);
  EXPECT_NEAR(static_cast<double>(stack_of(p, "step;even")->calls), kSteps / 2, 0.01 * kSteps);
  EXPECT_EQ(p.zones % 3, 0);
  // Half of what it may cost, by its own estimate; zones at which it looks at the clock come on top.
  EXPECT_NEAR(p.overhead_seconds / wall, 0.01 + 0.005 * (1 - p.looked_share), 0.001);
}

TEST(Doze, OnlyWhereLookingCostsTooMuch) {
  for (const auto& [cost, most] : {std::pair{3e-8, 0.02}, {1e-7, 0.07}, {1e-7, 1.0}}) {
    const Profile p = profile_of_steps(kSteps / 10, cost, most);
    EXPECT_EQ(p.looked_share, 1) << cost << " of " << most;
    ASSERT_TRUE(row_of(p, "step"));
    EXPECT_EQ(row_of(p, "step")->calls, kSteps / 10);
    EXPECT_EQ(p.zones, 3 * kSteps / 10);
  }
}

TEST(Doze, RefusesAShareThatIsNone) {
  for (double share : {0.0, -1.0, std::nan("")})
    EXPECT_THROW(ProfileSession({.most_cost = share}), ValueError) << share;
  add_up(profile_of_steps(10, 1e-7, 0.02));  // the next one runs
}

TEST(Doze, LooksAtATenthAtLeast) {
  const Profile p = profile_of_steps(kSteps, 5e-6, 0.02);  // zones that take longer than the steps
  EXPECT_NEAR(p.looked_share, 0.1, 0.02);
  EXPECT_NEAR(p[Bucket::dispatch] / p.wall_seconds, 0.2, 0.005);
}

TEST(Doze, TheTraceShowsTheGaps) {
  const FakeClock clock = with_zones_of(1e-7);
  ProfileSession session({.clock = &clock});
  steps(20'000);
  const Profile p = session.stop();
  const EventRing& events = session.trace().threads[0].events;
  double gaps = 0;
  for (size_t i = 0; i < events.size(); ++i)
    if (std::string(events[i].name) == "(not recorded)") gaps += static_cast<double>(events[i].end - events[i].begin);
  EXPECT_EQ(events.dropped(), 0u);
  EXPECT_NEAR(gaps * 1e-6, p.wall_seconds * (1 - p.looked_share), 1e-6);
  EXPECT_GT(gaps, 0);
}

bool zones_are_on() { return context().bits & kProfile; }

// A zone inside another costs one branch meanwhile, and is on again after it.
TEST(Doze, ZonesInsideAreOff) {
  const FakeClock clock = with_zones_of(1e-6);
  ProfileSession session({.clock = &clock});
  int inside_off = 0;
  for (int i = 0; i < 20'000; ++i) {
    EXPECT_TRUE(zones_are_on());
    Zone step("step", Bucket::dispatch);
    inside_off += !zones_are_on();
    Zone kernel("kernel", Bucket::kernel);
    pass(10);
  }
  EXPECT_GT(inside_off, 10'000);
  session.stop();
  EXPECT_FALSE(zones_are_on());
}
TEST(Doze, ASessionMayEndInAZoneItDoesNotLookAt) {
  const FakeClock clock = with_zones_of(1e-6);
  ProfileScope around("around");
  for (int count : {1999, 2000, 2001, 5000}) {
    auto session = std::make_unique<ProfileSession>(ProfileOptions{.clock = &clock});
    for (int i = 0; i < count; ++i) {
      Zone step("step", Bucket::dispatch);
      pass(10);
      if (i == count - 1) add_up(session->stop());
    }
    EXPECT_TRUE(zones_are_on()) << count;
  }
}

struct Counting : Observer {
  int kernels = 0;
  void kernel_ran(const KernelCall&, const Site&) override { ++kernels; }
};

// Who is told as well hears of everything; where nobody is, small ops go their short way again.
TEST(Doze, OthersAreToldOfEverything) {
  const FakeClock clock = with_zones_of(1e-5);
  const Tensor x = ones({4});
  for (bool told : {true, false}) {
    Counting counting;
    int alone = 0;
    {
      NoGradGuard no_grad;
      ProfileSession session({.next = told ? &counting : nullptr, .clock = &clock});
      for (int i = 0; i < 5000; ++i) {
        pass(10);
        relu(x);
        alone += detail::active_observer() == nullptr;
      }
      const Profile p = session.stop();
      EXPECT_LT(p.looked_share, 0.5);
      EXPECT_FALSE(detail::active_observer());
    }
    EXPECT_EQ(counting.kernels, told ? 5000 : 0);
    EXPECT_EQ(alone > 2500, !told) << alone;
  }
}

}  // namespace
}  // namespace deft::profile
