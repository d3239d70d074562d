// What the loader itself costs, and whether it keeps up: `deft bench data`.
#pragma once

#include <functional>
#include <string>

#include "bench/report.h"

namespace deft::bench {

struct DataLoaderOptions {
  double seconds = 1;  // for each row, about
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// Rows: overhead and heap allocations per batch of 256 tiny samples, with and without workers; how long a consumer
// waits that is 5 % slower than the loader.
Report measure_data_loader(const DataLoaderOptions& options);

}  // namespace deft::bench
