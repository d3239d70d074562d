// Profiles made of two runs: the times of the first, and what the second saw of a device.
#include "profile/watched.h"

#include <gtest/gtest.h>

#include "ops/all_ops.h"

namespace deft::profile {
namespace {

double& of(std::array<double, kBucketCount>& seconds, Bucket b) { return seconds[static_cast<size_t>(b)]; }

OpRow op(const char* name, double kernel, double around, bool on_device) {
  OpRow row;
  row.name = name;
  row.site = "a.cpp:1";
  row.kernel_seconds = kernel;
  row.overhead_seconds = around;
  row.on_device = on_device;
  return row;
}

// 10 s, all of it the host's: watched, it takes 14, of which the device works 4.
struct TwoRuns {
  Profile plain, watched;
  TwoRuns() {
    plain.wall_seconds = 10;
    of(plain.seconds, Bucket::dispatch) = 10;
    plain.ops = {op("relu", 5, 4, true), op("item", 0.5, 0.25, false)};
    watched.wall_seconds = 14;
    watched.device_busy_seconds = 4;
    of(watched.seconds, Bucket::kernel) = of(watched.device_seconds, Bucket::kernel) = 4;
    of(watched.seconds, Bucket::dispatch) = 7.5;
    of(watched.seconds, Bucket::other) = 2.5;
    watched.ops = {op("relu", 4, 12, true), op("item", 0.5, 1, false)};
    watched.device = {{"relu_kernel", Bucket::kernel, 1, 4}};
    watched.dropped = 3;
  }
};

TEST(Watched, KernelsKeepTheirTimeAndGapsShrink) {
  TwoRuns runs;
  Profile p = with_device(runs.plain, runs.watched);
  EXPECT_DOUBLE_EQ(p.wall_seconds, 10);
  EXPECT_DOUBLE_EQ(p[Bucket::kernel], 4);
  EXPECT_DOUBLE_EQ(p[Bucket::dispatch], 4.5);  // 6 of 10 s are left for 7.5 and 2.5
  EXPECT_DOUBLE_EQ(p[Bucket::other], 1.5);
  EXPECT_DOUBLE_EQ(p.sum(), 10);
  EXPECT_DOUBLE_EQ(p.device_busy_seconds, 4);
  EXPECT_DOUBLE_EQ(p.watching_seconds, 4);
  EXPECT_EQ(p.device.size(), 1u);
  EXPECT_EQ(p.dropped, 3);
}

TEST(Watched, OpsHaveTheirKernelsAndTheHostsTimeOfTheFirstRun) {
  TwoRuns runs;
  Profile p = with_device(runs.plain, runs.watched);
  ASSERT_EQ(p.ops.size(), 2u);
  EXPECT_EQ(p.ops[0].name, "relu");
  EXPECT_DOUBLE_EQ(p.ops[0].kernel_seconds, 4);
  EXPECT_DOUBLE_EQ(p.ops[0].overhead_seconds, 9);
  EXPECT_DOUBLE_EQ(p.ops[1].overhead_seconds, 1);  // not on the device: as it was seen with it
}

TEST(Watched, ADeviceThatIsBusierThanTheRunTookFillsIt) {
  TwoRuns runs;
  runs.plain.wall_seconds = 3;
  Profile p = with_device(runs.plain, runs.watched);
  EXPECT_DOUBLE_EQ(p[Bucket::kernel], 3);
  EXPECT_DOUBLE_EQ(p.sum(), 3);
  EXPECT_DOUBLE_EQ(p.device_busy_seconds, 3);
}

TEST(Watched, WithoutTheDevicesActivityTheFirstRunStands) {
  TwoRuns runs;
  runs.watched.device_busy_seconds = -1;
  runs.watched.device_note = "no CUPTI";
  Profile p = with_device(runs.plain, runs.watched);
  EXPECT_DOUBLE_EQ(p[Bucket::dispatch], 10);
  EXPECT_EQ(p.device_note, "no CUPTI");
  EXPECT_DOUBLE_EQ(p.ops[0].kernel_seconds, 5);
}

TEST(Watched, RunsOnceOnTheHostAndTwiceOnADeviceUnlessInterrupted) {
  int runs = 0;
  const Tensor x = ones({4});
  const auto run = [&] {
    relu(x);
    return ++runs > 0;
  };
  const Watched host = profile_run(run, false, true);
  EXPECT_EQ(runs, 1);
  ASSERT_EQ(host.profile.ops.size(), 1u);
  EXPECT_EQ(host.profile.ops[0].calls, 1);
  EXPECT_GT(host.trace.threads.at(0).events.size(), 0u);
  profile_run(run, true, false);
  EXPECT_EQ(runs, 3);
  profile_run([&] { return ++runs < 0; }, true, false);
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace deft::profile
