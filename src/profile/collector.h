// The profiler: where the time of a part of a program goes.
//
//   profile::ProfileSession session;
//   train();
//   profile::Profile p = session.stop();
//
// It profiles the thread that makes it, and ends there. Work this thread starts elsewhere (threads of the pool, workers
// of loaders) is in the trace and in Profile::other_threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

#include "core/observer.h"
#include "profile/core_time.h"
#include "profile/profile.h"
#include "profile/trace.h"

namespace deft::profile {

// A clock that tests set.
struct FakeClock {
  uint64_t (*ticks)() = nullptr;
  double seconds_per_tick = 1e-9;
  double zone_seconds = 0;  // declared cost of recording a zone
};

struct ProfileOptions {
  // The trace keeps the latest events within this many bytes, half of them for the thread that is profiled. Sums do not
  // depend on it.
  size_t ring_bytes = 16 << 20;
  bool trace = true;  // false: no events are kept
  // Share of the time that recording may cost. Where zones are so short that it would be more, part of the run is not
  // recorded, and the samples are extrapolated: times still add up, calls are approximate. 1: records everything.
  double most_cost = 0.02;
  bool device = true;        // GPU activity, where the driver reports it (CUPTI); needs `trace`
  Observer* next = nullptr;  // is notified of everything as well; null: the previous observer, if any
  const FakeClock* clock = nullptr;
};

class ProfileSession {
 public:
  explicit ProfileSession(const ProfileOptions& options = {});  // ValueError if another one runs
  ~ProfileSession();
  ProfileSession(const ProfileSession&) = delete;
  ProfileSession& operator=(const ProfileSession&) = delete;

  Profile stop();  // once, on the thread that made it
  bool running() const { return running_; }
  const Trace& trace() const { return trace_; }  // after stop()
  Trace take_trace() { return std::move(trace_); }

 private:
  void close();
  void add_device(Profile& profile);

  ProfileOptions options_;
  std::thread::id thread_ = std::this_thread::get_id();
  bool was_on_;  // kProfile
  Observer* before_ = nullptr;
  bool running_ = true;
  double cpu_start_;
  double zone_cost_ = 0, short_cut_cost_ = 0;  // seconds
  CoreTime core_start_;
  bool device_on_ = false;  // its activity is collected
  std::string device_note_;
  std::chrono::steady_clock::time_point began_;  // known after stop()
  Trace trace_;
};

// Asked where a session is wanted while another one runs: may stop that one, which was not requested explicitly.
// Null: none does.
void set_session_gives_way(void (*give_way)());

}  // namespace deft::profile
