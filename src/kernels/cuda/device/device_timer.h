// Times work on a stream, for choosing between kernels. Makes the host wait: callers have called count_sync().
#pragma once

#include "kernels/cuda/device/encoder.h"

namespace deft::cuda {

// False while work on the stream is recorded into a graph, and where a SyncGuard forbids waiting: what was not timed
// before is then not timed.
bool can_wait(const Encoder& e);

class DeviceTimer {
 public:
  explicit DeviceTimer(const Encoder& e);
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  // Milliseconds of one call of run(), the least of some rounds after one call to warm up; fewer rounds where it is far
  // above `best`. run() enqueues the work and gives false when it cannot; the result is then kNever.
  template <class Run>
  double least_ms(double best, Run run) {
    constexpr int kRounds = 3, kCalls = 4;
    double least = kNever;
    if (!run()) return kNever;
    for (int round = 0; round < kRounds; ++round) {
      start();
      for (int i = 0; i < (round ? kCalls : 1); ++i)
        if (!run()) return kNever;
      double ms = stop() / (round ? kCalls : 1);
      if (ms < least) least = ms;
      if (least > 3 * best) break;
    }
    return least;
  }
  static constexpr double kNever = 1e300;

 private:
  void start();
  double stop();
  const Encoder& e_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace deft::cuda
