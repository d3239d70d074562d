#include "runtime/cpu_isa.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "runtime/cpu_info.h"

namespace deft {
namespace {

using Names = std::vector<std::string>;
const Names kNeoverseV1 = {"asimd", "atomics", "asimdhp", "asimddp", "sve", "asimdfhm", "i8mm", "bf16"};
const Names kSapphireRapids = {"sse4_1",      "sse4_2",      "avx",      "fma",      "f16c",     "avx2",
                               "avx_vnni",    "avx512f",     "avx512dq", "avx512bw", "avx512vl", "avx512_vnni",
                               "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"};
Names with(Names names, const char* more) {
  names.push_back(more);
  return names;
}

Names without(Names names, std::initializer_list<const char*> gone) {
  for (const char* name : gone) std::erase(names, name);
  return names;
}
std::string level(const IsaChoice& c) { return c.levels[static_cast<size_t>(c.level)].name; }
bool has(const IsaChoice& c, CpuFeature f) { return (c.usable & f.mask()) != 0; }

TEST(CpuIsa, TheMachinesLevelIsTheHighestItHasAllFeaturesOf) {
  EXPECT_EQ(level(choose_isa("aarch64", kNeoverseV1, nullptr)), "i8mm");
  EXPECT_EQ(level(choose_isa("aarch64", without(kNeoverseV1, {"i8mm"}), nullptr)), "bf16");
  EXPECT_EQ(level(choose_isa("aarch64", {"asimd", "asimdhp"}, nullptr)), "neon");
  EXPECT_EQ(level(choose_isa("x86-64", kSapphireRapids, nullptr)), "amx");
  EXPECT_EQ(level(choose_isa("x86-64", with(kSapphireRapids, "amx_fp16"), nullptr)), "amx_fp16");
  EXPECT_EQ(level(choose_isa("x86-64", without(kSapphireRapids, {"amx_tile"}), nullptr)), "fp16");
  EXPECT_EQ(level(choose_isa("x86-64", {"sse4_1", "sse4_2", "avx", "f16c"}, nullptr)), "sse4");
  EXPECT_EQ(level(choose_isa("x86-64", {"sse4_1", "sse4_2", "avx", "avx2", "f16c", "fma", "avx_vnni"}, nullptr)),
            "avx_vnni");
  EXPECT_EQ(level(choose_isa("x86-64", {}, nullptr)), "sse4");
  EXPECT_EQ(level(choose_isa("riscv", kNeoverseV1, nullptr)), "scalar");
}

TEST(CpuIsa, FeaturesCountOneByOne) {
  IsaChoice c = choose_isa("aarch64", without(kNeoverseV1, {"bf16", "asimdfhm"}), nullptr);
  EXPECT_EQ(level(c), "i8mm");
  EXPECT_TRUE(has(c, "i8mm") && has(c, "asimddp") && has(c, "asimdhp") && has(c, "asimd"));
  EXPECT_FALSE(has(c, "bf16") || has(c, "asimdfhm") || has(c, "avx2"));
  // Half of AVX-512 does not make the level, so none of it is used.
  c = choose_isa("x86-64", {"sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f"}, nullptr);
  EXPECT_EQ(level(c), "avx2");
  EXPECT_FALSE(has(c, "avx512f"));
}

TEST(CpuIsa, TheEnvironmentLowersTheLevel) {
  IsaChoice c = choose_isa("aarch64", kNeoverseV1, "dotprod");
  EXPECT_EQ(level(c), "dotprod");
  EXPECT_EQ(c.levels[static_cast<size_t>(c.machine)].name, std::string("i8mm"));
  EXPECT_EQ(c.from_env, "dotprod");
  EXPECT_EQ(c.ignored, "");
  EXPECT_TRUE(has(c, "asimddp") && has(c, "asimdhp"));
  EXPECT_FALSE(has(c, "bf16") || has(c, "i8mm"));
  c = choose_isa("aarch64", kNeoverseV1, "neon");
  EXPECT_EQ(c.usable, CpuFeature("asimd").mask());
  c = choose_isa("x86-64", kSapphireRapids, "avx_vnni");
  EXPECT_TRUE(has(c, "avx_vnni") && has(c, "avx2"));
  EXPECT_FALSE(has(c, "avx512f") || has(c, "avx512_vnni") || has(c, "amx_tile"));
  EXPECT_EQ(choose_isa("aarch64", kNeoverseV1, "").from_env, "");
}

TEST(CpuIsa, ALevelThatIsNotThereIsNotFollowed) {
  IsaChoice c = choose_isa("aarch64", {"asimd", "asimdhp", "asimdfhm"}, "i8mm");
  EXPECT_EQ(level(c), "fp16");
  EXPECT_EQ(c.ignored, "DEFT_CPU_ISA=i8mm is above this machine's level");
  c = choose_isa("aarch64", kNeoverseV1, "avx2");
  EXPECT_EQ(level(c), "i8mm");
  EXPECT_EQ(c.ignored, "DEFT_CPU_ISA=avx2 is not one of neon, fp16, dotprod, bf16, i8mm");
  EXPECT_TRUE(has(c, "i8mm"));
}

TEST(CpuIsa, EachFeatureIsInOneLevel) {
  uint64_t all = 0;
  for (const char* architecture : {"aarch64", "x86-64"}) {
    for (const IsaLevel& l : isa_levels(architecture)) {
      EXPECT_NE(l.features, 0u) << l.name;
      EXPECT_EQ(all & l.features, 0u) << l.name;
      all |= l.features;
    }
  }
  EXPECT_EQ(all, (uint64_t{1} << std::size(kIsaFeatures)) - 1);
}

TEST(CpuIsa, ThisMachineHasWhatItSays) {
  EXPECT_EQ(isa_level(), isa_choice().level);
  EXPECT_EQ(isa_level_name(), level(isa_choice()));
  EXPECT_FALSE(cpu_has(std::string("no such feature")));
  Names features = cpu_features();
  [[maybe_unused]] auto listed = [&](const char* f) {
    return std::find(features.begin(), features.end(), f) != features.end();
  };
  if (std::getenv("DEFT_CPU_ISA")) GTEST_SKIP() << "DEFT_CPU_ISA is set";
#if defined(__aarch64__)
  EXPECT_TRUE(cpu_has("asimd") && cpu_has(std::string("asimd")));
  EXPECT_EQ(cpu_has(std::string_view("i8mm")), listed("i8mm"));
  EXPECT_FALSE(cpu_has("avx2"));
  EXPECT_EQ(cpu_has("i8mm"), listed("i8mm"));
#elif defined(__x86_64__)
  EXPECT_FALSE(cpu_has("asimd"));
  EXPECT_EQ(cpu_has("sse4_1"), listed("sse4_1"));
#endif
}

TEST(CpuIsa, AGuardLowersTheLevelAndPutsItBack) {
  const IsaChoice& c = isa_choice();
  const int before = isa_level();
  const uint64_t features = detail::find_isa_features();
  {
    IsaGuard lowest(c.levels[0].name);
    EXPECT_EQ(isa_level(), 0);
    EXPECT_EQ(isa_level_name(), std::string(c.levels[0].name));
    EXPECT_EQ(detail::find_isa_features(), c.usable & c.levels[0].features);
    EXPECT_FALSE(cpu_has("i8mm") || cpu_has("asimddp") || cpu_has("avx2"));
    IsaGuard again(c.levels[0].name);
    EXPECT_THROW(IsaGuard(c.levels.back().name), ValueError);
    EXPECT_THROW(IsaGuard("none"), ValueError);
  }
  EXPECT_EQ(isa_level(), before);
  EXPECT_EQ(detail::find_isa_features(), features);
}

void ask_twice() {
  bool one = cpu_has("i8mm") || cpu_has("avx2"), two = cpu_has("i8mm") || cpu_has("avx2");
  fprintf(stderr, "level %s, %d %d\n", isa_level_name(), one, two);
  _exit(0);
}
TEST(CpuIsaDeathTest, TheProcessFollowsTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process: the level is found once, when it starts
  struct Environment {
    std::string before = std::getenv("DEFT_CPU_ISA") ? std::getenv("DEFT_CPU_ISA") : "";
    ~Environment() { before.empty() ? unsetenv("DEFT_CPU_ISA") : setenv("DEFT_CPU_ISA", before.c_str(), 1); }
  } environment;
  const std::string lowest = isa_levels(cpu_info().architecture)[0].name;
  setenv("DEFT_CPU_ISA", lowest.c_str(), 1);
  EXPECT_EXIT(ask_twice(), testing::ExitedWithCode(0), "^level " + lowest + ", 0 0\n$");
  setenv("DEFT_CPU_ISA", "sse9", 1);
  EXPECT_EXIT(ask_twice(), testing::ExitedWithCode(0),
              "^deft: DEFT_CPU_ISA=sse9 is not one of [^;\n]*; kernels use [a-z0-9_]*\nlevel [a-z0-9_]*, [01] [01]\n$");
}

}  // namespace
}  // namespace deft
