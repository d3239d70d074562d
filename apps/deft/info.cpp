// deft info
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <optional>

#include "bench/machine.h"
#include "exit_code.h"
#include "output.h"
#include "runtime/backend.h"
#include "runtime/cgroup.h"
#include "runtime/cpu_info.h"
#include "runtime/cpu_isa.h"
#include "runtime/device_plugin.h"
#include "runtime/memory.h"
#include "verbs.h"

namespace deft::cli {

namespace {

using bench::Json;

std::string human_bytes(int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value == std::floor(value) ? 0 : 1, units[unit]);
}

// Of this container. Nothing without a limit.
std::optional<int64_t> memory_limit(int64_t physical) {
  const int64_t bytes = cgroup_memory_limit();
  return bytes > 0 && bytes < physical ? std::optional(bytes) : std::nullopt;
}

Json caches_json(const CpuInfo& cpu) {
  Json caches = Json::array();
  for (const CpuCache& c : cpu.caches) {
    caches.push_back({{"level", c.level}, {"type", c.type}, {"bytes", c.bytes}, {"shared_by", c.shared_by}});
  }
  return caches;
}

std::string thread_reason(const ThreadChoice& c) {
  if (c.from_env > 0) return fmt::format("DEFT_NUM_THREADS={}", c.from_env);
  std::string quota = c.cgroup_quota > 0 ? fmt::format("cgroup quota {:g} CPUs", c.cgroup_quota) : "no cgroup quota";
  return fmt::format("smallest of {} allowed CPUs, {} physical cores, {}; DEFT_NUM_THREADS not set", c.affinity,
                     c.physical_cores, quota);
}

Json isa_json() {
  const IsaChoice& c = isa_choice();
  const char* machine = c.levels[static_cast<size_t>(c.machine)].name;
  std::string reason = "the machine's level; DEFT_CPU_ISA not set";
  if (!c.ignored.empty()) {
    reason = "the machine's level; " + c.ignored;
  } else if (!c.from_env.empty()) {
    reason = fmt::format("DEFT_CPU_ISA={}; the machine's level is {}", c.from_env, machine);
  }
  Json levels = Json::array();
  for (const IsaLevel& level : c.levels) levels.push_back(level.name);
  return {{"level", isa_level_name()}, {"machine", machine}, {"reason", reason}, {"levels", levels}};
}

Json gpu_json() {
  const PluginReport plugin = cuda_plugin_report();
  const Json file = {{"loaded", plugin.loaded}, {"path", plugin.path}, {"identity", plugin.identity}};
  if (!plugin.loaded)
    return {{"count", 0},
            {"plugin", file},
            {"reason", fmt::format("{} could not be loaded: {}", plugin.path, plugin.why_not)}};
  Backend* cuda = backend(DeviceType::cuda);
  Json versions = Json::object(), devices = Json::array();
  for (const auto& [what, version] : cuda->versions()) versions[what] = version;
  for (int i = 0; i < cuda->device_count(); ++i) {
    DeviceProperties p = cuda->properties(i);
    devices.push_back({{"name", p.name},
                       {"compute_capability", fmt::format("{}.{}", p.major, p.minor)},
                       {"memory_bytes", p.memory_bytes},
                       {"multiprocessors", p.multiprocessors},
                       {"l2_bytes", p.l2_bytes}});
  }
  Json out = {{"count", devices.size()}, {"plugin", file}, {"versions", versions}, {"devices", devices}};
  if (devices.empty())
    out["reason"] = versions["driver"] == "none" ? "no NVIDIA driver was found (libcuda.so.1)"
                                                 : "the NVIDIA driver finds no GPU, or is too old for this runtime";
  return out;
}

// One row per GPU, and one for the libraries.
void add_gpu_rows(const Json& gpu, const std::function<void(const char*, const std::string&)>& add) {
  if (gpu.contains("reason")) add("GPU", "none: " + gpu["reason"].get<std::string>());
  if (!gpu.contains("devices")) return;
  for (const Json& d : gpu["devices"])
    add("GPU",
        fmt::format("{}, compute capability {}, {} multiprocessors, {} memory, {} L2", d["name"].get<std::string>(),
                    d["compute_capability"].get<std::string>(), d["multiprocessors"].get<int>(),
                    human_bytes(d["memory_bytes"]), human_bytes(d["l2_bytes"])));
  std::vector<std::string> parts;
  for (const auto& [what, version] : gpu["versions"].items()) parts.push_back(what + " " + version.get<std::string>());
  add("CUDA", fmt::format("{}; {}", fmt::join(parts, ", "), gpu["plugin"]["path"].get<std::string>()));
}

Json info_json() {
  CpuInfo cpu = cpu_info();
  ThreadChoice choice = thread_choice();
  bench::BuildInfo build = bench::build_info();
  int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::optional<int64_t> limit = memory_limit(physical);
  return {
      {"schema", 1},
      {"version", build.version},
      {"commit", build.commit},
      {"build", {{"type", build.build_type}, {"compiler", build.compiler}, {"flags", build.flags}}},
      {"cpu",
       {{"model", cpu.model},
        {"arch", cpu.architecture},
        {"logical_cpus", cpu.logical_cpus},
        {"physical_cores", cpu.physical_cores},
        {"governor", cpu.governor.empty() ? "unknown" : cpu.governor},
        {"features", cpu.features},
        {"isa", isa_json()},
        {"caches", caches_json(cpu)},
        {"fast_here", cpu.fast_here}}},
      {"threads",
       {{"count", choice.threads},
        {"reason", thread_reason(choice)},
        {"allowed_cpus", choice.affinity},
        {"cgroup_quota_cpus", choice.cgroup_quota},
        {"physical_cores", choice.physical_cores},
        {"from_env", choice.from_env > 0 ? Json(choice.from_env) : Json()}}},
      {"gpu", gpu_json()},
      {"memory",
       {{"physical_bytes", physical},
        {"limit_bytes", limit ? Json(*limit) : Json()},
        {"buffer_cache_limit_bytes", buffer_cache_limit()}}},
  };
}

std::string joined(const Json& words, const char* separator) {
  return fmt::format("{}", fmt::join(words.get<std::vector<std::string>>(), separator));
}

std::string caches_text(const Json& caches) {
  std::vector<std::string> parts;
  for (const Json& c : caches) {
    std::string type = c["type"];
    const char* suffix = type == "Data" ? "d" : type == "Instruction" ? "i" : "";
    int shared_by = c["shared_by"];
    std::string shared = shared_by > 1 ? fmt::format(" shared by {}", shared_by) : "";
    parts.push_back(fmt::format("L{}{} {}{}", c["level"].get<int>(), suffix, human_bytes(c["bytes"]), shared));
  }
  return parts.empty() ? "unknown" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string memory_text(const Json& memory) {
  std::string limit = memory["limit_bytes"].is_null() ? std::string("no container limit")
                                                      : "container limit " + human_bytes(memory["limit_bytes"]);
  return fmt::format("{}, {}; freed buffers kept: up to {} (DEFT_CACHE_MB)", human_bytes(memory["physical_bytes"]),
                     limit, human_bytes(memory["buffer_cache_limit_bytes"]));
}

// Rows of the printed table: what, and how it is here.
std::vector<Json> info_rows(const Json& info) {
  const Json &cpu = info["cpu"], &threads = info["threads"], &build = info["build"];
  auto text = [](const Json& value) { return value.get<std::string>(); };
  std::vector<Json> rows;
  auto add = [&](const char* what, const std::string& here) { rows.push_back({{"what", what}, {"here", here}}); };
  add("version", fmt::format("deft {}, commit {}, {} build, {}", text(info["version"]), text(info["commit"]),
                             text(build["type"]), text(build["compiler"])));
  add("CPU", fmt::format("{} ({}), {} logical on {} physical cores, governor {}", text(cpu["model"]), text(cpu["arch"]),
                         cpu["logical_cpus"].get<int>(), cpu["physical_cores"].get<int>(), text(cpu["governor"])));
  add("threads", fmt::format("{}: {}", threads["count"].get<int>(), text(threads["reason"])));
  add("kernels", fmt::format("{}: {}", text(cpu["isa"]["level"]), text(cpu["isa"]["reason"])));
  add("fast here", cpu["fast_here"].empty() ? "nothing special" : joined(cpu["fast_here"], "; "));
  add("caches", caches_text(cpu["caches"]));
  add("memory", memory_text(info["memory"]));
  add_gpu_rows(info["gpu"], add);
  add("features", joined(cpu["features"], " "));
  return rows;
}

}  // namespace

std::function<int()> add_info(Command command) {
  auto flags = std::make_shared<CommonFlags>();
  add_common_flags(command, *flags);
  return [flags] {
    Json info = info_json();
    std::vector<Json> rows = info_rows(info);
    if (flags->format == "json") {
      write_out(info.dump(2) + "\n");
    } else if (flags->format == "csv") {
      write_out(bench::to_csv(rows));
    } else {
      write_out(bench::to_markdown(rows, {{"what", "what"}, {"here", "here"}}));
    }
    return kOk;
  };
}

}  // namespace deft::cli
