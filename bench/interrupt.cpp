#include "bench/interrupt.h"

#include <csignal>

namespace deft::bench {

namespace {
volatile std::sig_atomic_t interrupt_seen = 0;
}  // namespace

void watch_for_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupt_seen = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }

}  // namespace deft::bench
