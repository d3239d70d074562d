// Ctrl-C ends a measurement early and keeps what was measured; pressed twice it ends the program.
#pragma once

namespace deft::bench {

void watch_for_interrupt();  // SIGINT and SIGTERM
bool interrupted();
int interrupt_signal();  // the one that came, or 0

}  // namespace deft::bench
