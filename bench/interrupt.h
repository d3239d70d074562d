// Ctrl-C ends a measurement early and keeps what was measured; pressed twice it ends the program.
#pragma once

namespace deft::bench {

void watch_for_interrupt();
bool interrupted();

}  // namespace deft::bench
