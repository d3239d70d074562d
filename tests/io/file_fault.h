// Saving with faults: one of its system calls fails, or is the last thing the program does.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "io/atomic_file.h"

namespace deft::io {

// Counts the system calls of a save; the one of number `fail_at` fails with `error`, or ends the program if that is 0.
struct Fault {
  static inline int calls = 0, fail_at = -1, error = 0;
  static inline detail::FileCalls real;

  explicit Fault(int at, int code) {
    calls = 0, fail_at = at, error = code;
    real = detail::file_calls();
    detail::file_calls() = {
        [](const char* p, int flags, mode_t m) { return hit() ? -1 : real.open(p, flags, m); },
        [](int fd, const void* p, size_t n) { return hit() ? ssize_t{-1} : real.write(fd, p, n); },
        [](int fd) { return hit() ? -1 : real.lock(fd); },
        [](int fd, uint64_t n) { return hit() ? -1 : real.allocate(fd, n); },
        [](int fd) { return hit() ? -1 : real.sync(fd); },
        [](int fd) {
          int result = real.close(fd);
          return hit() ? -1 : result;
        },
        [](const char* a, const char* b) { return hit() ? -1 : real.rename(a, b); },
    };
  }
  ~Fault() { detail::file_calls() = real; }
  static bool hit() {
    if (calls++ != fail_at) return false;
    if (error == 0) ::kill(getpid(), SIGKILL);
    errno = error;
    return true;
  }
};

}  // namespace deft::io
