#include "profile/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "base/check.h"

namespace deft::profile {

namespace {

constexpr double kUnstable = 0.1;
constexpr size_t kFewSamples = 5;      // a spread of fewer says nothing
constexpr double kLeastRatio = 1.005;  // of a bin: finer ones show the clock
constexpr double kSpin = 1e-3;         // a sleep may end that late

class WallClock final : public LatencyClock {
 public:
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // Sleeps, then spins: sleeping to the end wakes up late, and the delay would be charged to the call.
  void wait_until(double time) override {
    if (const double left = time - now() - kSpin; left > 0) sleep(left);
    while (now() < time) continue;
  }
  void sleep(double seconds) override { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
};

double timed(const std::function<void()>& call, LatencyClock& clock) {
  const double began = clock.now();
  call();
  return clock.now() - began;
}

std::vector<double> warm_samples(const std::function<void()>& call, const LatencyOptions& o, LatencyClock& clock) {
  const double warm = clock.now() + o.warm_up_seconds;
  for (int64_t i = 0; i < o.most_samples && clock.now() < warm && !o.stopped(); ++i) call();
  std::vector<double> samples;
  const double end = clock.now() + o.warm_seconds;
  const auto taken = [&] { return static_cast<int64_t>(samples.size()); };
  while (taken() < o.most_samples && (taken() < o.least_samples || clock.now() < end) && !(taken() > 0 && o.stopped()))
    samples.push_back(timed(call, clock));
  return samples;
}

std::vector<double> idle_samples(const std::function<void()>& call, const LatencyOptions& o, LatencyClock& clock) {
  std::vector<double> samples;
  const double end = clock.now() + o.idle_seconds;
  for (int i = 0; i < o.idle_samples && (i == 0 || clock.now() < end) && !o.stopped(); ++i) {
    clock.sleep(o.idle_pause_seconds);
    samples.push_back(timed(call, clock));
  }
  return samples;
}

// From when a call was due to its end: one that comes late because the one before it was slow counts as slow too.
void open_loop(const std::function<void()>& call, const LatencyOptions& o, LatencyClock& clock, LatencyReport& r) {
  const auto count = std::clamp<int64_t>(std::llround(r.rate * o.open_loop_seconds), 1, o.most_arrivals);
  const std::vector<double> arrivals = arrival_times(o.arrivals, r.rate, count, o.seed);
  std::vector<double> samples, waits;
  const double began = clock.now();
  for (const double arrival : arrivals) {
    if (clock.now() - began > 2 * o.open_loop_seconds || o.stopped()) break;
    clock.wait_until(began + arrival);
    waits.push_back(std::max(0.0, clock.now() - began - arrival));
    call();
    samples.push_back(clock.now() - began - arrival);
  }
  r.unserved = count - static_cast<int64_t>(samples.size());
  const LatencyColumn waited = latency_column("", std::move(waits));
  r.mean_wait = waited.mean;
  r.p99_wait = waited.p99;
  r.columns.push_back(latency_column(fmt::format("open loop, {:.4g} per s", r.rate), std::move(samples)));
}

std::string verdict(size_t samples, double spread) {
  if (samples < kFewSamples) return fmt::format("unknown ({} samples)", samples);
  return fmt::format("{} (spread {:.0f} %)", spread > kUnstable ? "UNSTABLE" : "stable", spread * 100);
}

void check(const LatencyOptions& o) {
  DEFT_CHECK(o.least_samples >= 1 && o.most_samples >= o.least_samples, ValueError,
             "measure_latency: from {} to {} samples were asked for; at least one is needed", o.least_samples,
             o.most_samples);
  DEFT_CHECK(o.rate >= 0 && o.load >= 0 && std::isfinite(o.rate) && std::isfinite(o.load), ValueError,
             "measure_latency: a rate of {} and a load of {} were asked for; neither may be negative", o.rate, o.load);
}

}  // namespace

LatencyClock& wall_clock() {
  static WallClock& clock = *new WallClock;  // never destroyed: threads may outlive main()
  return clock;
}

double latency_percentile(std::vector<double> samples, int per_mille) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  const size_t at = std::min(samples.size() * static_cast<size_t>(per_mille) / 1000, samples.size() - 1);
  const auto nth = samples.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(samples.begin(), nth, samples.end());
  return *nth;
}

LatencyColumn latency_column(std::string name, std::vector<double> samples) {
  LatencyColumn c{std::move(name), std::move(samples)};
  c.p50 = latency_percentile(c.samples, 500);
  c.p90 = latency_percentile(c.samples, 900);
  c.p99 = latency_percentile(c.samples, 990);
  c.p999 = latency_percentile(c.samples, 999);
  c.most = latency_percentile(c.samples, 1000);
  const auto n = static_cast<double>(c.samples.size());
  for (double s : c.samples) c.mean += s / n;
  for (double s : c.samples) c.sd += (s - c.mean) * (s - c.mean) / std::max(n - 1, 1.0);
  c.sd = std::sqrt(c.sd);
  return c;
}

std::vector<LatencyBin> latency_histogram(const std::vector<double>& samples, int most_bins) {
  if (samples.empty()) return {};
  const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
  const double first = std::max(*least, 1e-9), last = std::max(*most, first);
  const double bins = std::clamp(std::ceil(std::log(last / first) / std::log(kLeastRatio)), 1.0, double(most_bins));
  const double step = std::log(last / first) / bins;
  std::vector<LatencyBin> out(static_cast<size_t>(bins));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].from = first * std::exp(step * static_cast<double>(i));
    out[i].to = i + 1 == out.size() ? last : first * std::exp(step * static_cast<double>(i + 1));
  }
  for (double s : samples) {
    const auto above =
        std::upper_bound(out.begin(), out.end(), s, [](double v, const LatencyBin& b) { return v < b.to; });
    ++(above == out.end() ? out.back() : *above).count;
  }
  return out;
}

std::vector<double> arrival_times(Arrivals arrivals, double rate, int64_t count, uint64_t seed) {
  DEFT_CHECK(rate > 0 && std::isfinite(rate), ValueError, "arrival_times: a rate of {} per second was asked for", rate);
  std::mt19937_64 random(seed);
  std::vector<double> times;
  double time = 0;
  for (int64_t i = 0; i < count; ++i) {
    // Written out: what std::exponential_distribution gives differs from library to library.
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    if (arrivals == Arrivals::poisson) time += -std::log1p(-uniform) / rate;
    times.push_back(arrivals == Arrivals::poisson ? time : static_cast<double>(i) / rate);
  }
  return times;
}

const LatencyColumn* LatencyReport::column(const std::string& name) const {
  for (const LatencyColumn& c : columns)
    if (c.name.starts_with(name)) return &c;
  return nullptr;
}

LatencyReport measure_latency(const std::function<void()>& call, const LatencyOptions& o) {
  check(o);
  LatencyClock& clock = o.clock ? *o.clock : wall_clock();
  LatencyReport r;
  r.covers = o.covers;
  r.columns.push_back(latency_column("cold", {o.cold_seconds ? *o.cold_seconds : timed(call, clock)}));
  r.columns.push_back(latency_column("warm", warm_samples(call, o, clock)));
  const LatencyColumn warm = r.columns.back();
  r.histogram = latency_histogram(warm.samples);
  r.spread = (latency_percentile(warm.samples, 840) - latency_percentile(warm.samples, 160)) / 2 / warm.p50;
  r.verdict = verdict(warm.samples.size(), r.spread);
  if (o.idle_samples > 0) {
    r.columns.push_back(latency_column("after idle", idle_samples(call, o, clock)));
    if (!r.columns.back().samples.empty()) r.idle_ratio = r.columns.back().p50 / warm.p50;
  }
  r.rate = o.rate > 0 ? o.rate : o.load / warm.mean;
  if (r.rate > 0 && std::isfinite(r.rate)) open_loop(call, o, clock, r);
  return r;
}

}  // namespace deft::profile
