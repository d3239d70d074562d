// The built-in models as users run them: training steps and inference, by batch, element type and grad mode.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"
#include "runtime/device.h"

namespace deft::bench {

struct ModelsOptions {
  std::vector<std::string> models;  // names of bench_models(); empty: those that take seconds, not minutes
  int64_t batch = 0;                // 0: each model's own
  Device device = kCPU;
  std::vector<std::string> passes;  // train, validate, infer; empty: all
  std::vector<std::string> types;   // f32, amp, bf16; empty: all. bf16: weights too, inference only
  bool compile = false;             // each row by a plan, beside the same row eager
  int repeats = 0;                  // samples per row; 0: within a few seconds
  std::string peer;                 // a program; see peer.h
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

struct BenchModelInfo {
  const char* name;
  const char* summary;
  int64_t default_batch;
  bool quick;  // part of a run without names
};
const std::vector<BenchModelInfo>& bench_models();

Report measure_models(const ModelsOptions& options);

}  // namespace deft::bench
