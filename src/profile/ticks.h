// The cheapest clock of the machine: a counter at a fixed rate, read in a few nanoseconds. Its rate is found by
// comparing it with steady_clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace deft::profile {

inline uint64_t ticks() {
#if defined(__aarch64__)
  uint64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#elif defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace deft::profile
