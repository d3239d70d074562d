#include "runtime/cpu_info.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>

#include "runtime/cgroup.h"
#include "runtime/text_file.h"

namespace deft {

namespace {

std::string read_word(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  in >> word;
  return word;
}
template <class T>
bool parse_number(std::string_view text, T& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}
std::string cpu_path(int cpu, const std::string& root) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
}

// ---- the machine

std::string cpuinfo_field(const std::string& text, std::string_view name) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == line.npos) continue;
    if (line.find_first_not_of(" \t", name.size()) != colon) continue;  // a longer name
    size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == line.npos ? "" : line.substr(value);
  }
  return "";
}

struct ArmPart {
  std::string_view implementer, part, name;
};
constexpr ArmPart kArmParts[] = {
    {"0x41", "0xd03", "Cortex-A53"},  {"0x41", "0xd05", "Cortex-A55"},  {"0x41", "0xd07", "Cortex-A57"},
    {"0x41", "0xd08", "Cortex-A72"},  {"0x41", "0xd0b", "Cortex-A76"},  {"0x41", "0xd0c", "Neoverse-N1"},
    {"0x41", "0xd40", "Neoverse-V1"}, {"0x41", "0xd41", "Cortex-A78"},  {"0x41", "0xd44", "Cortex-X1"},
    {"0x41", "0xd49", "Neoverse-N2"}, {"0x41", "0xd4f", "Neoverse-V2"}, {"0x41", "0xd84", "Neoverse-V3"},
    {"0x41", "0xd8e", "Neoverse-N3"}, {"0x46", "0x001", "A64FX"},       {"0xc0", "0xac3", "Ampere-1"},
    {"0xc0", "0xac4", "Ampere-1A"},
};
std::string model_name(const std::string& root) {
  std::string text = read_text(root + "/proc/cpuinfo");
  if (std::string name = cpuinfo_field(text, "model name"); !name.empty()) return name;
  std::string implementer = cpuinfo_field(text, "CPU implementer"), part = cpuinfo_field(text, "CPU part");
  for (const ArmPart& p : kArmParts) {
    if (p.implementer == implementer && p.part == part) return std::string(p.name);
  }
  return implementer.empty() ? "unknown" : "ARM implementer " + implementer + " part " + part;
}

int64_t parse_size(const std::string& text) {  // "64K", "32M"
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  char unit = end < text.data() + text.size() ? *end : ' ';
  return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : unit == 'G' ? value << 30 : value;
}
std::vector<CpuCache> read_caches(int cpu, const std::string& root) {
  std::vector<CpuCache> caches;
  for (int i = 0;; ++i) {
    std::string folder = cpu_path(cpu, root) + "/cache/index" + std::to_string(i);
    CpuCache cache;
    if (!parse_number(read_word(folder + "/level"), cache.level)) return caches;
    cache.type = read_word(folder + "/type");
    cache.bytes = parse_size(read_word(folder + "/size"));
    cache.shared_by = static_cast<int>(parse_cpu_list(read_word(folder + "/shared_cpu_list")).size());
    caches.push_back(cache);
  }
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  const char *p = text.data(), *end = p + text.size();
  while (p < end) {
    int first = 0, last = 0;
    auto number = std::from_chars(p, end, first);
    if (number.ec != std::errc()) break;
    last = first;
    if (number.ptr < end && *number.ptr == '-') {
      number = std::from_chars(number.ptr + 1, end, last);
      if (number.ec != std::errc()) break;
    }
    constexpr int kMostCpus = 1 << 16;  // a damaged list must not fill the memory
    for (int cpu = first; cpu <= last && cpus.size() < kMostCpus; ++cpu) cpus.push_back(cpu);
    if (number.ptr == end || *number.ptr != ',') break;
    p = number.ptr + 1;
  }
  return cpus;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int most = 1024; most <= 1 << 16; most *= 2) {  // the kernel refuses a set smaller than its own
    cpu_set_t* set = CPU_ALLOC(most);
    if (!set) return cpus;
    size_t bytes = CPU_ALLOC_SIZE(most);
    bool good = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; good && cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (good) break;
  }
  return cpus;
}

int count_physical_cores(const std::vector<int>& cpus, const std::string& root) {
  std::set<std::string> cores;
  for (int cpu : cpus) {
    std::string siblings = read_word(cpu_path(cpu, root) + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);  // unknown: a core of its own
  }
  return static_cast<int>(cores.size());
}

ThreadChoice choose_threads(const std::vector<int>& cpus, const char* env, const std::string& root) {
  constexpr int kMost = 1024;
  ThreadChoice choice;
  choice.affinity = static_cast<int>(cpus.size());
  choice.cgroup_quota = cgroup_cpu_quota(root);
  choice.physical_cores = count_physical_cores(cpus, root);
  int from_env = 0;
  if (env && parse_number(std::string_view(env), from_env) && from_env >= 1 && from_env <= kMost)
    choice.from_env = from_env;

  int threads = std::min(choice.affinity, choice.physical_cores);
  if (choice.cgroup_quota > 0) threads = static_cast<int>(std::min<double>(threads, std::ceil(choice.cgroup_quota)));
  choice.threads = choice.from_env ? choice.from_env : std::clamp(threads, 1, kMost);
  return choice;
}

CpuInfo cpu_info(const std::string& root) {
  std::vector<int> cpus = allowed_cpus();
  int first = cpus.empty() ? 0 : cpus.front();
  CpuInfo info;
  info.model = model_name(root);
#if defined(__aarch64__)
  info.architecture = "aarch64";
#elif defined(__x86_64__)
  info.architecture = "x86-64";
#else
  info.architecture = "unknown";
#endif
  info.features = cpu_features();
  info.caches = read_caches(first, root);
  info.logical_cpus = static_cast<int>(cpus.size());
  info.physical_cores = count_physical_cores(cpus, root);
  info.governor = read_word(cpu_path(first, root) + "/cpufreq/scaling_governor");
  info.fast_here = fast_here(info.features);
  return info;
}

}  // namespace deft
