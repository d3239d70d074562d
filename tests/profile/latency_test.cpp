#include "profile/latency.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace deft::profile {
namespace {

// Time passes only when somebody says so.
struct FakeClock final : LatencyClock {
  double time = 100, slept = 0;
  double now() override { return time; }
  void wait_until(double until) override { time = std::max(time, until); }
  void sleep(double seconds) override { time += seconds, slept += seconds; }
};

LatencyOptions with(FakeClock& clock) {
  LatencyOptions o;
  o.clock = &clock;
  o.warm_up_seconds = 0;
  o.warm_seconds = 0;
  o.idle_samples = 0;
  o.load = 0;
  return o;
}

TEST(Latency, StallOfOneCallInAThousandShowsAtTheEndOnly) {
  FakeClock clock;
  int64_t calls = 0;
  LatencyOptions o = with(clock);
  o.least_samples = o.most_samples = 10000;
  const LatencyReport r = measure_latency([&] { clock.time += ++calls % 1000 == 0 ? 0.010 : 0.001; }, o);
  const LatencyColumn& warm = *r.column("warm");
  ASSERT_EQ(warm.samples.size(), 10000u);
  EXPECT_NEAR(warm.p50, 0.001, 1e-9);
  EXPECT_NEAR(warm.p90, 0.001, 1e-9);
  EXPECT_NEAR(warm.p99, 0.001, 1e-9);
  EXPECT_NEAR(warm.p999, 0.010, 1e-9);
  EXPECT_NEAR(warm.most, 0.010, 1e-9);
  EXPECT_NEAR(warm.mean, 0.001 + 0.009 / 1000, 1e-9);
  EXPECT_EQ(r.verdict, "stable (spread 0 %)");
  int64_t counted = 0;
  for (const LatencyBin& b : r.histogram) counted += b.count;
  EXPECT_EQ(counted, 10000);
  EXPECT_EQ(r.histogram.front().count, 9990);
  EXPECT_EQ(r.histogram.back().count, 10);
}

// As in some sandboxes.
TEST(Latency, AClockThatStandsStillEndsAllTheSame) {
  FakeClock clock;
  LatencyOptions o = with(clock);
  o.warm_up_seconds = o.warm_seconds = 1;
  o.most_samples = 50;
  int64_t calls = 0;
  measure_latency([&] { ++calls; }, o);
  EXPECT_LE(calls, 200);
}

TEST(Latency, ColdAndAfterIdleAreColumnsOfTheirOwn) {
  FakeClock clock;
  int calls = 0;
  double busy_until = 0;
  // Slow at first, and after any pause of 50 ms.
  const auto call = [&] {
    clock.time += calls++ == 0 ? 0.5 : clock.time - busy_until > 0.05 ? 0.003 : 0.001;
    busy_until = clock.time;
  };
  LatencyOptions o = with(clock);
  o.covers = "one call";
  o.least_samples = 50;
  o.idle_samples = 7;
  o.idle_seconds = 10;
  LatencyReport r = measure_latency(call, o);
  EXPECT_EQ(r.covers, "one call");
  ASSERT_EQ(r.columns.size(), 3u);
  EXPECT_EQ(r.column("cold")->samples.size(), 1u);
  EXPECT_NEAR(r.column("cold")->p50, 0.5, 1e-9);
  EXPECT_NEAR(r.column("warm")->most, 0.001, 1e-9);
  EXPECT_EQ(r.column("after idle")->samples.size(), 7u);
  EXPECT_NEAR(r.column("after idle")->p50, 0.003, 1e-9);
  EXPECT_NEAR(clock.slept, 0.7, 1e-9);
  ASSERT_TRUE(r.idle_ratio);
  EXPECT_NEAR(*r.idle_ratio, 3, 1e-6);
  EXPECT_EQ(r.column("open loop"), nullptr);

  o.cold_seconds = 2.5;  // measured elsewhere: no call is taken for it
  o.idle_seconds = 0.25;
  calls = 1;
  r = measure_latency(call, o);
  EXPECT_EQ(r.column("cold")->p50, 2.5);
  EXPECT_EQ(calls, 1 + 50 + 3);
  EXPECT_EQ(r.column("after idle")->samples.size(), 3u);  // the time box
}

TEST(Latency, TimeBoxOfWarmSamples) {
  FakeClock clock;
  int calls = 0;
  LatencyOptions o = with(clock);
  o.warm_up_seconds = 0.5;
  o.warm_seconds = 2;
  const LatencyReport r = measure_latency([&] { ++calls, clock.time += 0.0625; }, o);
  EXPECT_EQ(r.column("warm")->samples.size(), 32u);
  EXPECT_EQ(calls, 1 + 8 + 32);
}

TEST(Latency, QueueShowsInAnOpenLoop) {
  FakeClock clock;
  LatencyOptions o = with(clock);
  o.arrivals = Arrivals::even;
  o.rate = 100;
  o.open_loop_seconds = 1;
  // Half as fast as it would have to be: the k-th arrival, due at 10 k ms, ends at 20 (k + 1) ms.
  LatencyReport r = measure_latency([&] { clock.time += 0.020; }, o);
  const LatencyColumn* open = r.column("open loop");
  ASSERT_TRUE(open);
  EXPECT_EQ(open->name, "open loop, 100 per s");
  ASSERT_EQ(open->samples.size(), 100u);
  for (size_t k = 0; k < open->samples.size(); ++k) EXPECT_NEAR(open->samples[k], 0.020 + 0.010 * double(k), 1e-9);
  EXPECT_NEAR(r.mean_wait, 0.010 * 99 / 2, 1e-9);
  EXPECT_NEAR(r.column("warm")->p99, 0.020, 1e-9);
  EXPECT_EQ(r.unserved, 0);

  r = measure_latency([&] { clock.time += 0.050; }, o);  // hopeless: stops after twice the time
  EXPECT_EQ(r.column("open loop")->samples.size(), 41u);
  EXPECT_EQ(r.unserved, 59);

  r = measure_latency([&] { clock.time += 0.005; }, o);  // fast enough: nobody waits
  EXPECT_NEAR(r.column("open loop")->most, 0.005, 1e-9);
  EXPECT_NEAR(r.mean_wait, 0, 1e-9);
}

// One stall of 100 ms: ten arrivals that were due meanwhile are late, which a closed loop would count as one.
TEST(Latency, NoCoordinatedOmission) {
  FakeClock clock;
  int64_t calls = 0;
  LatencyOptions o = with(clock);
  o.arrivals = Arrivals::even;
  o.rate = 100;
  o.least_samples = o.most_samples = 100;
  const LatencyReport r = measure_latency([&] { clock.time += ++calls == 151 ? 0.100 : 0.001; }, o);
  int late = 0;
  for (double s : r.column("open loop")->samples) late += s > 0.005;
  EXPECT_EQ(late, 11);
  EXPECT_NEAR(r.column("warm")->most, 0.001, 1e-9);
}

TEST(Latency, LoadIsAShareOfTheCapacity) {
  FakeClock clock;
  LatencyOptions o = with(clock);
  o.load = 0.5;
  const LatencyReport r = measure_latency([&] { clock.time += 0.001; }, o);
  EXPECT_NEAR(r.rate, 500, 1e-6);
  const LatencyColumn* open = r.column("open loop");
  ASSERT_TRUE(open);
  EXPECT_EQ(open->samples.size(), 500u);
  // A queue with random arrivals and even service at half load waits half a service time on average.
  EXPECT_NEAR(r.mean_wait, 0.0005, 0.00015);
  EXPECT_GT(open->p99, open->p50);
}

TEST(Latency, PoissonArrivals) {
  const std::vector<double> a = arrival_times(Arrivals::poisson, 200, 20000, 7);
  EXPECT_EQ(a, arrival_times(Arrivals::poisson, 200, 20000, 7));
  EXPECT_NE(a, arrival_times(Arrivals::poisson, 200, 20000, 8));
  EXPECT_TRUE(std::is_sorted(a.begin(), a.end()));
  EXPECT_NEAR(a.back(), 100, 3);
  int long_gaps = 0;
  for (size_t i = 1; i < a.size(); ++i) long_gaps += a[i] - a[i - 1] > 2.0 / 200;
  EXPECT_NEAR(long_gaps / 20000.0, std::exp(-2.0), 0.01);
  EXPECT_EQ(arrival_times(Arrivals::even, 4, 3, 7), (std::vector<double>{0, 0.25, 0.5}));
  EXPECT_THROW(arrival_times(Arrivals::even, 0, 3, 7), ValueError);
}

TEST(Latency, Verdicts) {
  FakeClock clock;
  LatencyOptions o = with(clock);
  o.least_samples = o.most_samples = 200;
  int calls = 0;
  // One in ten a hundred times as long: the bulk decides.
  LatencyReport r = measure_latency([&] { clock.time += ++calls % 10 == 0 ? 0.1 : 0.001; }, o);
  EXPECT_EQ(r.verdict, "stable (spread 0 %)");
  calls = 0;
  r = measure_latency([&] { clock.time += 0.001 + 0.0005 * (++calls % 2); }, o);
  EXPECT_NEAR(r.spread, 0.25 / 1.5, 1e-6);
  EXPECT_EQ(r.verdict, "UNSTABLE (spread 17 %)");
  o.least_samples = o.most_samples = 2;
  r = measure_latency([&] { clock.time += 0.001; }, o);
  EXPECT_EQ(r.verdict, "unknown (2 samples)");
}

TEST(Latency, PercentilesOfRawSamples) {
  std::vector<double> s(1000);
  std::iota(s.rbegin(), s.rend(), 0);
  EXPECT_EQ(latency_percentile(s, 500), 500);
  EXPECT_EQ(latency_percentile(s, 999), 999);
  EXPECT_EQ(latency_percentile(s, 1000), 999);
  EXPECT_EQ(latency_percentile(s, 0), 0);
  EXPECT_EQ(latency_percentile({3}, 500), 3);
  EXPECT_TRUE(std::isnan(latency_percentile({}, 500)));
  const LatencyColumn c = latency_column("x", {1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(c.mean, 2.5);
  EXPECT_DOUBLE_EQ(c.sd, std::sqrt(5.0 / 3));
}

TEST(Latency, HistogramBins) {
  const std::vector<LatencyBin> bins = latency_histogram({1, 10, 100, 1000}, 3);
  ASSERT_EQ(bins.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(bins[i].from, std::pow(10.0, double(i)), 1e-9);
    EXPECT_NEAR(bins[i].to, std::pow(10.0, double(i + 1)), 1e-6);
  }
  EXPECT_EQ(bins[0].count + bins[1].count + bins[2].count, 4);
  EXPECT_EQ(latency_histogram({5, 5, 5}).size(), 1u);
  EXPECT_EQ(latency_histogram({5, 5, 5})[0].count, 3);
  EXPECT_TRUE(latency_histogram({}).empty());
}

TEST(Latency, RealClock) {
  LatencyOptions o;
  o.warm_up_seconds = 0;
  o.warm_seconds = 0.01;
  o.idle_samples = 1;
  o.idle_pause_seconds = 0.002;
  o.open_loop_seconds = 0.02;
  o.rate = 500;
  int calls = 0;
  const LatencyReport r = measure_latency([&] { ++calls; }, o);
  size_t samples = 0;
  for (const LatencyColumn& c : r.columns) {
    samples += c.samples.size();
    for (double s : c.samples) EXPECT_GE(s, 0) << c.name;
  }
  EXPECT_EQ(static_cast<size_t>(calls), samples);
  EXPECT_EQ(r.column("open loop")->samples.size() + static_cast<size_t>(r.unserved), 10u);
}

TEST(Latency, WrongOptions) {
  LatencyOptions o;
  o.least_samples = 0;
  EXPECT_THROW(measure_latency([] {}, o), ValueError);
  o = {};
  o.rate = -1;
  EXPECT_THROW(measure_latency([] {}, o), ValueError);
}

}  // namespace
}  // namespace deft::profile
