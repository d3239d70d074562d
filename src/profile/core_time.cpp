#include "profile/core_time.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

namespace deft::profile {

namespace {

// Nanoseconds this thread could have run and did not; 0 where the system does not tell.
int64_t waited_for_a_core() {
  char text[96];
  const int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  if (bytes <= 0) return 0;
  text[bytes] = 0;
  long long ran = 0, waited = 0;
  return std::sscanf(text, "%lld %lld", &ran, &waited) == 2 ? waited : 0;
}

}  // namespace

CoreTime CoreTime::now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return {t.tv_sec * int64_t{1'000'000'000} + t.tv_nsec, waited_for_a_core()};
}

double CoreTime::share_since(const CoreTime& then) const {
  const double ran = static_cast<double>(ran_ns - then.ran_ns),
               waited = static_cast<double>(waited_ns - then.waited_ns);
  if (!(ran > 0) || waited < 0) return 1;
  return ran / (ran + waited);
}

}  // namespace deft::profile
