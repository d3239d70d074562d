#include "bench/instruction_counter.h"

#include <linux/perf_event.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cpu_info.h"

namespace deft::bench {

namespace {

constexpr int64_t kWarmUp = 100, kFew = 1, kMany = 6;
constexpr int64_t kMaxSteps = 20'000'000;  // minutes

// ---- perf

int open_perf() {
  perf_event_attr attr = {};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_HARDWARE;
  attr.config = PERF_COUNT_HW_INSTRUCTIONS;
  attr.disabled = 1;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  return static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

std::optional<int64_t> perf_count(int fd, FunctionRef<void(int64_t)> loop, int64_t iterations) {
  ioctl(fd, PERF_EVENT_IOC_RESET, 0);
  ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
  loop(iterations);
  ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
  int64_t count = 0;
  if (read(fd, &count, sizeof count) != sizeof count || count == 0) return {};
  return count;
}

std::optional<double> perf_per_call(FunctionRef<void(int64_t)> loop) {
  int fd = open_perf();
  if (fd < 0) return {};
  loop(kWarmUp);
  auto few = perf_count(fd, loop, kFew), many = perf_count(fd, loop, kMany);
  close(fd);
  if (!few || !many) return {};
  return static_cast<double>(*many - *few) / (kMany - kFew);
}

// ---- ptrace

[[noreturn]] void run_stepped(FunctionRef<void(int64_t)> loop) {
  try {
    loop(kWarmUp);
    volatile int64_t iterations = kFew;  // volatile: the same code runs both counts
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) {
      raise(SIGUSR1);
      for (;;) {
        loop(iterations);
        raise(SIGUSR1);
        iterations = kMany;
      }
    }
  } catch (...) {  // a child must never return into its parent's code
  }
  _exit(1);
}

bool stopped_by(pid_t child, int& signal_number) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  signal_number = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  return WIFSTOPPED(status);
}

// Steps until the child raises SIGUSR1; the count of instructions on the way.
std::optional<int64_t> steps_to_mark(pid_t child) {
  int signal_number = 0;
  for (int64_t steps = 0; steps < kMaxSteps; ++steps) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0 || !stopped_by(child, signal_number)) return {};
    if (signal_number == SIGUSR1) return steps;
  }
  return {};
}

std::optional<double> ptrace_per_call(FunctionRef<void(int64_t)> loop) {
  pid_t child = fork();
  if (child < 0) return {};
  if (child == 0) run_stepped(loop);
  int signal_number = 0;
  if (!stopped_by(child, signal_number)) return {};
  auto few = steps_to_mark(child);
  auto many = few ? steps_to_mark(child) : std::nullopt;
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  if (!many) return {};
  return static_cast<double>(*many - *few) / (kMany - kFew);
}

// Load-exclusive/store-exclusive loops never end under single-stepping: the step clears the reservation.
bool atomics_can_be_stepped() {
#if defined(__aarch64__)
  std::vector<std::string> features = cpu_features();
  return std::find(features.begin(), features.end(), "atomics") != features.end();
#else
  return true;
#endif
}

InstructionCounter find_counter() {
#if defined(DEFT_ASAN) || defined(DEFT_TSAN)
  return InstructionCounter::none;  // counts of instrumented code say nothing
#else
  volatile int64_t sink = 0;
  auto loop = [&](int64_t n) {
    for (int64_t i = 0; i < n; ++i) sink = sink + 1;
  };
  if (perf_per_call(loop)) return InstructionCounter::perf;
  if (atomics_can_be_stepped() && ptrace_per_call(loop)) return InstructionCounter::ptrace;
  return InstructionCounter::none;
#endif
}

}  // namespace

InstructionCounter instruction_counter() {
  static const InstructionCounter counter = find_counter();
  return counter;
}

const char* name_of(InstructionCounter counter) {
  constexpr const char* names[] = {"perf", "ptrace", "unavailable"};
  return names[static_cast<int>(counter)];
}

std::optional<double> instructions_per_call(FunctionRef<void(int64_t)> loop) {
  switch (instruction_counter()) {
    case InstructionCounter::perf:
      return perf_per_call(loop);
    case InstructionCounter::ptrace:
      return ptrace_per_call(loop);
    default:
      return {};
  }
}

}  // namespace deft::bench
