// Time per call as the minimum of thread CPU time over many batches: preemption does not enter, and noise only adds.
// C++17 without dependencies, since peers are measured with this very code.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace deft::bench {

// Runs the measured call that many times.
using Loop = std::function<void(int64_t)>;

template <class Body>
Loop repeat(Body body) {
  return [body = std::move(body)](int64_t iterations) mutable {
    for (int64_t i = 0; i < iterations; ++i) body();
  };
}

inline double thread_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

class CpuTimer {
 public:
  explicit CpuTimer(Loop loop) : loop_(std::move(loop)) {}
  void batches(int count) {
    if (per_batch_ == 0) warm_up();
    for (int i = 0; i < count; ++i) {
      last_ns_ = time_of(per_batch_) / static_cast<double>(per_batch_);
      best_ns_ = std::min(best_ns_, last_ns_);
    }
  }
  double best_ns() const { return best_ns_; }
  double last_ns() const { return last_ns_; }  // of the latest batch
  int64_t calls_per_batch() const { return per_batch_; }
  const Loop& loop() const { return loop_; }

 private:
  static constexpr double kBatchNs = 5e5, kWarmUpNs = 5e6;

  double time_of(int64_t iterations) {
    double start = thread_cpu_ns();
    loop_(iterations);
    return thread_cpu_ns() - start;
  }
  void warm_up() {
    int64_t n = 1;
    for (double spent = 0; spent < kWarmUpNs;) {
      double ns = time_of(n);
      spent += ns;
      if (ns < kBatchNs) n *= 2;
    }
    per_batch_ = n;
  }

  Loop loop_;
  int64_t per_batch_ = 0;
  double best_ns_ = std::numeric_limits<double>::infinity(), last_ns_ = 0;
};

}  // namespace deft::bench
