#include "bench/machine.h"

#include <nlohmann/json.hpp>

#include "runtime/backend.h"
#include "runtime/cpu_info.h"
#include "runtime/parallel.h"

namespace deft::bench {

BuildInfo build_info() { return {DEFT_VERSION, DEFT_COMMIT, DEFT_BUILD_TYPE, DEFT_COMPILER, DEFT_FLAGS}; }

namespace {

Json gpu_json() {
  if (device_count(DeviceType::cuda) == 0) return nullptr;
  DeviceProperties p = device_properties(kCUDA);
  Json out = {{"name", p.name}, {"memory_bytes", p.memory_bytes}, {"multiprocessors", p.multiprocessors}};
  for (const auto& [what, version] : backend(DeviceType::cuda)->versions()) out[what] = version;
  return out;
}

}  // namespace

Json machine_json() {
  CpuInfo cpu = cpu_info();
  BuildInfo build = build_info();
  return {
      {"cpu", cpu.model},
      {"arch", cpu.architecture},
      {"features", cpu.features},
      {"logical_cpus", cpu.logical_cpus},
      {"physical_cores", cpu.physical_cores},
      {"threads", num_threads()},
      {"cgroup_quota_cpus", thread_choice().cgroup_quota},
      {"governor", cpu.governor.empty() ? "unknown" : cpu.governor},
      {"gpu", gpu_json()},
      {"compiler", build.compiler},
      {"flags", build.flags},
      {"build_type", build.build_type},
      {"version", build.version},
      {"commit", build.commit},
  };
}

}  // namespace deft::bench
