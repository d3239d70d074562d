#include "stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace deft::cli {

namespace {
volatile std::sig_atomic_t seen = 0;
}

void watch_for_stop() {
  struct sigaction action = {};
  action.sa_handler = [](int signal) { seen = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (int signal : {SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
  struct sigaction old = {};
  // nohup asks for this one to be ignored.
  if (sigaction(SIGHUP, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  // Every write beyond the limit sends it: the checkpoint may be one more of them, and says so by itself.
  action.sa_flags = SA_RESTART;
  sigaction(SIGXFSZ, &action, nullptr);
}

int stop_signal() { return seen; }
int stop_exit_code() { return 128 + seen; }

}  // namespace deft::cli
