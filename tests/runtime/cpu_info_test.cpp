#include "runtime/cpu_info.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/cgroup.h"

namespace deft {
namespace {

namespace fs = std::filesystem;

// A folder that plays the file system's root.
class FakeRoot : public testing::Test {
 protected:
  FakeRoot() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    root_ = (fs::temp_directory_path() / ("deft_root_" + std::to_string(getpid()) + "_" + name)).string();
    fs::create_directories(root_);
  }
  ~FakeRoot() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void put_siblings(int cpu, const std::string& list) {
    put("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list + "\n");
  }
  void put_v1_quota(const std::string& folder, const std::string& quota) {
    put(folder + "/cpu.cfs_quota_us", quota + "\n");
    put(folder + "/cpu.cfs_period_us", "100000\n");
  }
  double quota() const { return cgroup_cpu_quota(root_); }
  ThreadChoice choose(int cpus, const char* env = nullptr) const {
    std::vector<int> set;
    for (int i = 0; i < cpus; ++i) set.push_back(i);
    return choose_threads(set, env, root_);
  }

  std::string root_;
  static constexpr const char* kV2Mount =
      "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  static constexpr const char* kV1Mount =
      "34 33 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
      "35 33 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
};

TEST_F(FakeRoot, AnEmptySystemGivesOneThreadPerCpu) {
  EXPECT_EQ(quota(), 0);
  ThreadChoice c = choose(5);
  EXPECT_EQ(c.threads, 5);
  EXPECT_EQ(c.affinity, 5);
  EXPECT_EQ(c.physical_cores, 5);
  EXPECT_EQ(c.cgroup_quota, 0);
  EXPECT_EQ(c.from_env, 0);
  EXPECT_EQ(choose(0).threads, 1);
  EXPECT_EQ(choose(3000).threads, 1024);
}

TEST_F(FakeRoot, V2TakesTheTightestQuotaAlongThePath) {
  put("/proc/self/mountinfo", kV2Mount);
  put("/proc/self/cgroup", "0::/a/b/c\n");
  EXPECT_EQ(quota(), 0);
  put("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
  put("/sys/fs/cgroup/a/cpu.max", "350000 100000\n");
  EXPECT_EQ(quota(), 3.5);
  put("/sys/fs/cgroup/a/b/c/cpu.max", "600000 100000\n");
  EXPECT_EQ(quota(), 3.5);
  put("/sys/fs/cgroup/a/b/cpu.max", "25000 50000\n");
  EXPECT_EQ(quota(), 0.5);
  put("/sys/fs/cgroup/a/x/cpu.max", "1000 100000\n");  // not on the path
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(FakeRoot, MemoryLimitsOfBothVersions) {
  EXPECT_EQ(cgroup_memory_limit(root_), 0);
  put("/proc/self/mountinfo", kV2Mount);
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 0);
  put("/sys/fs/cgroup/a/memory.max", "1073741824\n");
  EXPECT_EQ(cgroup_memory_limit(root_), int64_t{1} << 30);

  put("/proc/self/mountinfo", "36 33 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  put("/proc/self/cgroup", "5:cpu:/x\n4:memory:/box\n");
  EXPECT_EQ(cgroup_memory_limit(root_), 0);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(cgroup_memory_limit(root_), 0);
  put("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(cgroup_memory_limit(root_), int64_t{1} << 29);
  put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1024\n");  // the group of another controller
  EXPECT_EQ(cgroup_memory_limit(root_), int64_t{1} << 29);
}

TEST_F(FakeRoot, V2InsideANamespace) {
  put("/proc/self/mountinfo", kV2Mount);
  put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  put("/sys/other/cpu.max", "1000 100000\n");  // no cgroup of ours
  for (const char* own : {"0::/\n", "0::/../../other\n", ""}) {
    put("/proc/self/cgroup", own);
    EXPECT_EQ(quota(), 2) << own;
  }
}

TEST_F(FakeRoot, V1TakesTheTightestQuotaAlongThePath) {
  put("/proc/self/mountinfo", kV1Mount);
  put("/proc/self/cgroup", "5:cpuset:/set\n4:cpu,cpuacct:/jobs/one\n0::/elsewhere\n");
  put_v1_quota("/sys/fs/cgroup/cpu,cpuacct", "-1");
  put_v1_quota("/sys/fs/cgroup/cpu,cpuacct/jobs", "800000");
  put_v1_quota("/sys/fs/cgroup/cpu,cpuacct/jobs/one", "-1");
  EXPECT_EQ(quota(), 8);
  put_v1_quota("/sys/fs/cgroup/cpu,cpuacct/jobs/one", "150000");
  EXPECT_EQ(quota(), 1.5);
  put_v1_quota("/sys/fs/cgroup/cpu,cpuacct/set", "1000");  // the path of another controller
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(FakeRoot, AContainersMountShowsPartOfTheTree) {
  put("/proc/self/mountinfo", "34 33 0:31 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  put("/proc/self/cgroup", "4:cpu:/docker/abc/inner\n");
  put_v1_quota("/sys/fs/cgroup/cpu", "400000");
  EXPECT_EQ(quota(), 4);
  put_v1_quota("/sys/fs/cgroup/cpu/inner", "100000");
  EXPECT_EQ(quota(), 1);
  put_v1_quota("/sys/fs/cgroup/cpu/def", "1000");
  put("/proc/self/cgroup", "4:cpu:/docker/abcdef\n");  // not below the mount
  EXPECT_EQ(quota(), 4);
}

TEST_F(FakeRoot, BothVersionsMountedAndABlankInThePath) {
  put("/proc/self/mountinfo", std::string(kV1Mount) + "43 33 0:40 / /my\\040groups/v2 rw - cgroup2 cgroup2 rw\n");
  put("/proc/self/cgroup", "4:cpu,cpuacct:/\n0::/\n");
  put_v1_quota("/sys/fs/cgroup/cpu,cpuacct", "700000");
  EXPECT_EQ(quota(), 7);
  put("/my groups/v2/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(FakeRoot, DamagedFilesMeanNoLimit) {
  put("/proc/self/mountinfo", std::string("x\n - \n1 2 3 - cgroup2\n") + kV2Mount);
  put("/proc/self/cgroup", "nonsense\n:\n::\n");
  for (const char* text : {"", "max", "100", "abc def", "100000 0", "-5 100000", "0 100000"}) {
    put("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(quota(), 0) << text;
  }
}

TEST_F(FakeRoot, HyperthreadsCountOnce) {
  for (int core = 0; core < 4; ++core) {
    std::string list = std::to_string(core) + "," + std::to_string(core + 4);
    put_siblings(core, list);
    put_siblings(core + 4, list);
  }
  EXPECT_EQ(choose(8).physical_cores, 4);
  EXPECT_EQ(choose(8).threads, 4);
  EXPECT_EQ(choose(6).threads, 4);
  EXPECT_EQ(count_physical_cores({0, 4}, root_), 1);
  EXPECT_EQ(count_physical_cores({1, 4}, root_), 2);
}

TEST_F(FakeRoot, TheSmallestOfTheThreeWins) {
  put("/proc/self/mountinfo", kV2Mount);
  put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(choose(8).threads, 3);  // rounded up
  EXPECT_EQ(choose(2).threads, 2);
  put("/sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(choose(8).threads, 1);
  EXPECT_EQ(choose(8).cgroup_quota, 0.1);
}

TEST_F(FakeRoot, TheEnvironmentOverridesUnlessItIsBad) {
  EXPECT_EQ(choose(4, "7").threads, 7);
  EXPECT_EQ(choose(4, "7").from_env, 7);
  EXPECT_EQ(choose(4, "1024").threads, 1024);
  for (const char* bad : {"", "0", "-1", "1025", "3x", " 3", "many", "99999999999999"}) {
    EXPECT_EQ(choose(4, bad).threads, 4) << bad;
    EXPECT_EQ(choose(4, bad).from_env, 0) << bad;
  }
}

TEST_F(FakeRoot, ReadsModelCachesAndGovernor) {
  put("/proc/cpuinfo", "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Fast CPU @ 3GHz\n");
  std::string cpu = "/sys/devices/system/cpu/cpu" + std::to_string(allowed_cpus().at(0));
  put(cpu + "/cache/index0/level", "1\n");
  put(cpu + "/cache/index0/type", "Data\n");
  put(cpu + "/cache/index0/size", "48K\n");
  put(cpu + "/cache/index0/shared_cpu_list", "0,64\n");
  put(cpu + "/cache/index1/level", "3\n");
  put(cpu + "/cache/index1/type", "Unified\n");
  put(cpu + "/cache/index1/size", "32M\n");
  put(cpu + "/cache/index1/shared_cpu_list", "0-15\n");
  put(cpu + "/cpufreq/scaling_governor", "powersave\n");
  CpuInfo info = cpu_info(root_);
  EXPECT_EQ(info.model, "Fast CPU @ 3GHz");
  ASSERT_EQ(info.caches.size(), 2u);
  EXPECT_EQ(info.caches[0].level, 1);
  EXPECT_EQ(info.caches[0].type, "Data");
  EXPECT_EQ(info.caches[0].bytes, 48 << 10);
  EXPECT_EQ(info.caches[0].shared_by, 2);
  EXPECT_EQ(info.caches[1].bytes, 32 << 20);
  EXPECT_EQ(info.caches[1].shared_by, 16);
  EXPECT_EQ(info.governor, "powersave");

  put("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
  EXPECT_EQ(cpu_info(root_).model, "Neoverse-V1");
  put("/proc/cpuinfo", "CPU implementer\t: 0x77\nCPU part\t: 0x123\n");
  EXPECT_EQ(cpu_info(root_).model, "ARM implementer 0x77 part 0x123");
  put("/proc/cpuinfo", "");
  EXPECT_EQ(cpu_info(root_).model, "unknown");
}

TEST(CpuInfo, ParsesCpuLists) {
  using List = std::vector<int>;
  EXPECT_EQ(parse_cpu_list("0-3,8"), (List{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), (List{5}));
  EXPECT_EQ(parse_cpu_list(""), (List{}));
  EXPECT_EQ(parse_cpu_list("2,x"), (List{2}));
  EXPECT_EQ(parse_cpu_list("1-"), (List{}));
  EXPECT_LE(parse_cpu_list("0-2147483646").size(), 1u << 16);
}

TEST(CpuInfo, SaysWhatIsFast) {
  auto lines = fast_here({"asimd", "bf16", "i8mm", "unknown"});
  EXPECT_NE(std::find(lines.begin(), lines.end(), "bf16 matrix instructions (BFMMLA)"), lines.end());
  EXPECT_NE(std::find(lines.begin(), lines.end(), "int8 matrix instructions (SMMLA)"), lines.end());
  EXPECT_EQ(lines.size(), 3u);
  EXPECT_TRUE(fast_here({}).empty());
  EXPECT_EQ(fast_here({"avx512f", "amx_bf16"}).size(), 2u);
}

TEST(CpuInfo, DescribesThisMachine) {
  CpuInfo info = cpu_info();
  EXPECT_FALSE(info.model.empty());
  EXPECT_GE(info.logical_cpus, 1);
  EXPECT_GE(info.physical_cores, 1);
  EXPECT_LE(info.physical_cores, info.logical_cpus);
#if defined(__aarch64__)
  EXPECT_NE(std::find(info.features.begin(), info.features.end(), "asimd"), info.features.end());
#elif defined(__x86_64__)
  EXPECT_NE(std::find(info.features.begin(), info.features.end(), "sse4_1"), info.features.end());
#endif
  ThreadChoice c = thread_choice();
  EXPECT_GE(c.threads, 1);
  EXPECT_EQ(c.affinity, info.logical_cpus);
}

// The kernel's own list must name every feature reported here, in the same words. It has no word for f16 tiles.
TEST(CpuInfo, FeaturesAgreeWithTheKernel) {
  std::ifstream in("/proc/cpuinfo");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  size_t at = std::min(text.find("\nFeatures"), text.find("\nflags"));
  if (at == text.npos) GTEST_SKIP() << "no feature line in /proc/cpuinfo";
  std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1) + " ";
  for (const std::string& f : cpu_features()) {
    if (f == "amx_fp16") continue;
    EXPECT_NE(line.find(" " + f + " "), line.npos) << f;
  }
}

}  // namespace
}  // namespace deft
