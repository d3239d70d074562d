#include "bench/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace deft::bench {

namespace {
volatile std::sig_atomic_t interrupt_seen = 0;
}  // namespace

void watch_for_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { interrupt_seen = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }
int interrupt_signal() { return interrupt_seen; }

}  // namespace deft::bench
