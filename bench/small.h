// Compiled against eager where arithmetic costs least: cells and networks at batch 1, chains of small elementwise ops.
#pragma once

#include <functional>
#include <string>

#include "bench/report.h"

namespace deft::bench {

struct SmallOptions {
  int repeats = 15;  // batches of each side
  std::string only;  // one case; "" for all
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};
// In inference mode. Runs on one thread: sets it for the process.
Report measure_small(const SmallOptions& options);

}  // namespace deft::bench
