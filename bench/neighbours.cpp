#include "bench/neighbours.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "bench/statistics.h"
#include "runtime/parallel.h"

namespace deft::bench {

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kOwn = 0.85;  // of the most instructions a cycle: with a neighbour it is 0.5 to 0.7
constexpr int kFirstLooks = 100;
constexpr double kFree = 90;  // percentile of looks: above it are those during which the chain was interrupted
constexpr auto kPause = std::chrono::milliseconds(1);
constexpr auto kMostAtOnce = std::chrono::milliseconds(500);
constexpr auto kMostInAll = std::chrono::minutes(4);

#if defined(__x86_64__)
// A chain of dependent multiplications measures the clock whatever else runs: three cycles each.
void chain(int64_t rounds) {
  int64_t sum = 0;
  asm volatile(
      "1:\n"
      ".rept 8\n"
      "imul %0, %0\n"
      ".endr\n"
      "dec %1\n"
      "jnz 1b\n"
      : "+r"(sum), "+r"(rounds)
      :
      : "cc");
}
void nothings(int64_t rounds) {
  asm volatile(
      "1:\n"
      ".rept 64\n"
      "nop\n"
      ".endr\n"
      "dec %0\n"
      "jnz 1b\n"
      : "+r"(rounds)
      :
      : "cc");
}
template <class F>
double seconds(F f) {
  const auto start = Clock::now();
  f(2000);
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double instructions_a_cycle() { return 64.0 / 24 * seconds(chain) / seconds(nothings); }
#else
double instructions_a_cycle() { return 1; }
#endif

double fewest_a_cycle(int threads) {
  std::atomic<double> least{std::numeric_limits<double>::infinity()};
  parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double mine = instructions_a_cycle();
      for (double now = least; mine < now && !least.compare_exchange_weak(now, mine);) {
      }
    }
  });
  return least;
}

}  // namespace

Neighbours::Neighbours(int threads) : threads_(threads) {
  for (int i = 0; i < kFirstLooks; ++i) {
    looks_.push_back(fewest_a_cycle(threads_));
    std::this_thread::sleep_for(kPause);
  }
}

bool Neighbours::quiet() {
  const double now = fewest_a_cycle(threads_);
  looks_[next_++ % looks_.size()] = now;
  most_ = std::max(most_, percentile(looks_, kFree));
  return now >= kOwn * most_;
}

void Neighbours::wait_for_quiet() {
  if (waited_ >= kMostInAll) return;
  const auto start = Clock::now();
  while (!quiet() && Clock::now() - start < kMostAtOnce) std::this_thread::sleep_for(kPause);
  waited_ += Clock::now() - start;
}

}  // namespace deft::bench
