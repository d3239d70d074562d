// What machine this is. Functions that read /sys and /proc take the folder in front of them, so that tests can bring
// their own; "" is the real one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/parallel.h"

namespace deft {

struct CpuCache {
  int level = 0;
  std::string type;  // "Data", "Instruction", "Unified"
  int64_t bytes = 0;
  int shared_by = 0;  // logical CPUs
};

struct CpuInfo {
  std::string model;                   // "Neoverse-V1"
  std::string architecture;            // "aarch64", "x86-64"
  std::vector<std::string> features;   // as the kernel spells them: "bf16", "avx512f"
  std::vector<CpuCache> caches;        // of the first CPU
  int logical_cpus = 0;                // this process may run on
  int physical_cores = 0;              // behind those
  std::string governor;                // frequency governor; empty where unknown
  std::vector<std::string> fast_here;  // "bf16 matrix instructions (BFMMLA)", ...
};
CpuInfo cpu_info(const std::string& root = "");

// Instruction sets of the running CPU that the operating system has switched on.
std::vector<std::string> cpu_features();
std::vector<std::string> fast_here(const std::vector<std::string>& features);

// CPUs in the calling thread's affinity set.
std::vector<int> allowed_cpus();
// "0-3,8" -> {0, 1, 2, 3, 8}. Stops at the first thing that is not a list.
std::vector<int> parse_cpu_list(const std::string& text);
int count_physical_cores(const std::vector<int>& cpus, const std::string& root = "");
// `env` is the text of DEFT_NUM_THREADS or nullptr; anything but a number from 1 to 1024 is ignored.
ThreadChoice choose_threads(const std::vector<int>& cpus, const char* env, const std::string& root = "");

}  // namespace deft
