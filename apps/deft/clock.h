// Seconds of a clock that never jumps.
#pragma once

#include <chrono>

namespace deft::cli {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace deft::cli
