// What one eager op costs when its arithmetic costs nothing: instructions, time, allocations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/cpu_timer.h"
#include "bench/mode.h"
#include "bench/report.h"
#include "runtime/device.h"

namespace deft::bench {

struct OverheadCase {
  std::string name;
  std::vector<Mode> modes;
  // Called inside the mode; makes its inputs once. Inputs require grad in grad mode, where that changes what is done.
  std::function<Loop(Mode)> make;
};
std::vector<OverheadCase> overhead_cases();

struct OverheadOptions {
  int repeats = 15;  // batches of each side
  std::string peer;  // program to compare with; "" for none
  std::string only;  // one case; "" for all
  Device device;
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};
// Runs on one thread: sets it for the process.
Report measure_overhead(const OverheadOptions& options);

}  // namespace deft::bench
