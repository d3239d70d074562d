// Time per call on the CPU. One thread: the minimum of thread CPU time (bench/cpu_timer.h). More: wall time, since the
// work of other threads is in no clock of this one; the median counts, of samples during which no thread had to give
// way to another process where there are a few of those.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <vector>

#include "bench/cpu_timer.h"
#include "bench/statistics.h"

namespace deft::bench {

class Stopwatch {
 public:
  Stopwatch(std::function<void()> call, int threads) : timer_(repeat(std::move(call))), wall_(threads > 1) {}

  void batches(int count) {
    if (!wall_) return timer_.batches(count);
    if (calls_ == 0) warm_up();
    for (int i = 0; i < count; ++i) {
      int64_t before = times_given_way();
      double ns = wall_ns(calls_) / static_cast<double>(calls_);
      samples_.push_back(ns);
      if (times_given_way() == before) undisturbed_.push_back(ns);
    }
  }
  double batch_ns() const { return ns() * static_cast<double>(wall_ ? calls_ : timer_.calls_per_batch()); }
  // Per call.
  double ns() const {
    if (!wall_) return timer_.best_ns();
    return percentile(undisturbed_.size() >= kFewSamples ? undisturbed_ : samples_, 50);
  }
  double last_ns() const { return wall_ ? samples_.back() : timer_.last_ns(); }  // of the latest batch
  double best_ns() const { return wall_ ? percentile(samples_, 0) : timer_.best_ns(); }

 private:
  static constexpr double kBatchNs = 1e6, kWarmUpNs = 5e6;
  static constexpr size_t kFewSamples = 3;

  static int64_t times_given_way() {
    rusage use = {};
    getrusage(RUSAGE_SELF, &use);
    return use.ru_nivcsw;
  }

  double wall_ns(int64_t calls) {
    auto start = std::chrono::steady_clock::now();
    timer_.loop()(calls);
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  }
  void warm_up() {
    calls_ = 1;
    for (double spent = 0; spent < kWarmUpNs;) {
      double ns = wall_ns(calls_);
      spent += ns;
      if (ns < kBatchNs) calls_ *= 2;
    }
  }

  CpuTimer timer_;
  bool wall_;
  int64_t calls_ = 0;
  std::vector<double> samples_, undisturbed_;
};

}  // namespace deft::bench
