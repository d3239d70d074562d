// SIGTERM, SIGINT, SIGHUP and SIGXFSZ (a file grew beyond its limit) as a wish: work ends after the step it is in. A
// second one of the first three ends the program at once.
#pragma once

namespace deft::cli {

void watch_for_stop();
// The signal that came, or 0.
int stop_signal();
// 128 + the signal, as shells report it.
int stop_exit_code();

}  // namespace deft::cli
