// How fast single ops run on one device, against the device's own copy bandwidth and against a peer in the same run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"
#include "core/tensor.h"

namespace deft::bench {

// A case is a line that both sides understand: "add bf16 8192x16384", "matmul bf16 8192x8192x8192",
// "conv bf16 64x256x56x56 w 64x1x1 s 1 p 0" (channels_last; weight as out x kernel).
struct OpCase {
  std::string name;
  std::string family;  // copy, elementwise, reduce, rows, matmul, conv: what --family chooses from
};
std::vector<OpCase> op_cases(Device device);

struct OpsOptions {
  Device device;
  int repeats = 20;    // timed rounds of each side; the median counts
  std::string peer;    // program to compare with; "" for none
  std::string family;  // "" for all
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};
Report measure_ops(const OpsOptions& options);

}  // namespace deft::bench
