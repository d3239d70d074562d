// The built-in models under each grad mode: latency, peak memory, and what is kept for backward.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace deft::bench {

struct ModesOptions {
  std::vector<std::string> models;  // names of builtin_models(); empty: all
  int64_t batch = 0;                // 0: each model's own
  int repeats = 0;                  // samples per row; 0: at least 100, more while there is time
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};
Report measure_modes(const ModesOptions& options);

}  // namespace deft::bench
