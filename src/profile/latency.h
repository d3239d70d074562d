// How long one call takes: the first one, warm, after a pause, and under load that does not wait for it. Percentiles
// come from raw samples, which are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace deft::profile {

// Seconds since whenever. Tests bring their own.
class LatencyClock {
 public:
  virtual ~LatencyClock() = default;
  virtual double now() = 0;
  virtual void wait_until(double time) = 0;  // to the point; returns at once if that is over
  virtual void sleep(double seconds) = 0;    // idle, and maybe a little longer
};
LatencyClock& wall_clock();

enum class Arrivals : uint8_t { poisson, even };

struct LatencyOptions {
  std::string covers;                  // what a call does: "one batch of 1: load, normalise, forward"
  std::optional<double> cold_seconds;  // of the first call in this process, where the caller has measured it already
  // Warm: calls for `warm_up_seconds`, then samples for `warm_seconds`, with these minimum and maximum counts.
  double warm_up_seconds = 0.2, warm_seconds = 1;
  int64_t least_samples = 20, most_samples = 100000;
  // After idle: this many samples with a pause before each, within the time box; 0 for none.
  int idle_samples = 10;
  double idle_pause_seconds = 0.1, idle_seconds = 2;
  // Open loop: calls per second, or a share of what warm calls could do one after the other; 0 for none.
  double rate = 0, load = 0.7;
  Arrivals arrivals = Arrivals::poisson;
  double open_loop_seconds = 1;  // of arrivals; serving them stops after twice that
  int64_t most_arrivals = 100000;
  uint64_t seed = 1;
  std::function<bool()> stopped = [] { return false; };  // asked between calls; what was measured until then counts
  LatencyClock* clock = nullptr;                         // nullptr: wall_clock()
};

// Samples of one kind, in seconds.
struct LatencyColumn {
  std::string name;             // "cold", "warm", "after idle", "open loop, 700 per s"
  std::vector<double> samples;  // in the order they were taken
  double p50 = 0, p90 = 0, p99 = 0, p999 = 0, mean = 0, sd = 0, most = 0;
};

struct LatencyBin {
  double from = 0, to = 0;  // seconds; the last bin has its end
  int64_t count = 0;
};

struct LatencyReport {
  std::string covers;
  std::vector<LatencyColumn> columns;  // cold, warm, after idle, open loop: those that were asked for
  std::vector<LatencyBin> histogram;   // of warm samples, bins of equal ratio
  double spread = 0;                   // of warm samples: half the distance of the 16th and 84th percentile over p50
  std::string verdict;                 // "stable (spread 3 %)", "UNSTABLE (spread 12 %)"
  // p50 after a pause over p50 warm.
  std::optional<double> idle_ratio;
  // Open loop: arrivals per second asked for, how long arrivals waited for the call before theirs, and those that were
  // still waiting at the end, which are not among the samples: the call cannot keep up with the rate.
  double rate = 0;
  double mean_wait = 0, p99_wait = 0;
  int64_t unserved = 0;

  const LatencyColumn* column(const std::string& name) const;  // by the beginning of its name; null: there is none
};

LatencyReport measure_latency(const std::function<void()>& call, const LatencyOptions& options);

// --- What it is made of --------------------------------------------------------------------------------------------

// The sample that a share of `per_mille` of all lies below, the higher one where it falls between two: one slow call in
// a thousand shows at 999. NaN without samples.
double latency_percentile(std::vector<double> samples, int per_mille);
LatencyColumn latency_column(std::string name, std::vector<double> samples);
std::vector<LatencyBin> latency_histogram(const std::vector<double>& samples, int most_bins = 40);
// The same for the same seed, the first at 0 or later; in seconds.
std::vector<double> arrival_times(Arrivals arrivals, double rate, int64_t count, uint64_t seed);

}  // namespace deft::profile
