#include "late_end.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <limits>
#include <mutex>
#include <thread>

#include "bench/interrupt.h"
#include "clock.h"
#include "exit_code.h"
#include "stop_signal.h"

namespace deft::cli {

namespace {

constexpr std::chrono::milliseconds kLook(50);

int signal_seen() { return stop_signal() ? stop_signal() : bench::interrupt_signal(); }

std::atomic<std::thread::id> ends_it;

}  // namespace

struct LateEnd::Impl {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  double deadline;
  std::function<int()> end;
  std::thread thread;

  void watch() {
    double until = deadline + kDeadlineGrace;
    bool signalled = false;
    std::unique_lock lock(mutex);
    while (!over && now() < until) {
      changed.wait_for(lock, kLook);
      if (signalled || signal_seen() == 0) continue;
      signalled = true;
      until = std::min(until, now() + kSignalGrace);
    }
    if (over) return;
    lock.unlock();
    leave();
  }

  // The work goes on meanwhile, on its own threads: nothing it uses is destroyed.
  [[noreturn]] void leave() {
    claim_the_end();
    int code = kInternal;
    try {
      code = end();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "deft: %s\n", e.what());
      code = kUnsupported;
    }
    std::fflush(stdout);
    _exit(code);
  }
};

// Signals are for the thread that works.
LateEnd::LateEnd(double deadline, std::function<int()> end) : impl_(std::make_unique<Impl>()) {
  impl_->deadline = deadline;
  impl_->end = std::move(end);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  impl_->thread = std::thread([this] { impl_->watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LateEnd::LateEnd(std::function<int()> end) : LateEnd(std::numeric_limits<double>::infinity(), std::move(end)) {}

LateEnd::~LateEnd() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->over = true;
  }
  impl_->changed.notify_one();
  impl_->thread.join();
}

void claim_the_end() {
  std::thread::id nobody;
  if (ends_it.compare_exchange_strong(nobody, std::this_thread::get_id()) || nobody == std::this_thread::get_id())
    return;
  while (true) pause();
}

}  // namespace deft::cli
