// Ends the program in time where its work does not: a step that takes a minute cannot be asked to stop.
#pragma once

#include <functional>
#include <memory>

namespace deft::cli {

// Seconds between a signal, or the end of the time, and a late end.
inline constexpr double kSignalGrace = 1.2, kDeadlineGrace = 0.5;

// While it lives: `end` runs on a thread of its own, and the program exits with what it returns, once a stop signal
// (stop_signal.h, bench/interrupt.h) came and kSignalGrace seconds later this still lives, or kDeadlineGrace after
// `deadline`. Infinite: there is none. In seconds of steady_clock.
class LateEnd {
 public:
  LateEnd(double deadline, std::function<int()> end);
  explicit LateEnd(std::function<int()> end);  // no deadline
  ~LateEnd();
  LateEnd(const LateEnd&) = delete;
  LateEnd& operator=(const LateEnd&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// For the writer of the program's result. The first thread that calls proceeds; others wait here for the end of the
// program, which is near.
void claim_the_end();

}  // namespace deft::cli
