// Limits that a container sets: of this process's control group and all above it, v1 and v2.
#pragma once

#include <cstdint>
#include <string>

namespace deft {

// `root` stands for "/": tests have a tree of their own.
// The tightest CPU quota, in CPUs; 0 = none.
double cgroup_cpu_quota(const std::string& root = "");
// The tightest limit of memory in bytes; 0 = none.
int64_t cgroup_memory_limit(const std::string& root = "");

}  // namespace deft
