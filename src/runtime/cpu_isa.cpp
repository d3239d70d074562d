#include "runtime/cpu_isa.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/note.h"
#include "runtime/cpu_info.h"

namespace deft {

namespace {

constexpr uint64_t bits(std::initializer_list<CpuFeature> features) {
  uint64_t all = 0;
  for (CpuFeature f : features) all |= f.mask();
  return all;
}

constexpr IsaLevel kArm[] = {{"neon", bits({"asimd"})},
                             {"fp16", bits({"asimdhp", "asimdfhm"})},
                             {"dotprod", bits({"asimddp"})},
                             {"bf16", bits({"bf16"})},
                             {"i8mm", bits({"i8mm"})}};
// avx_vnni stands below avx512: it is what CPUs without AVX-512 have, and servers can play one.
constexpr IsaLevel kX86[] = {
    {"sse4", bits({"sse4_1", "sse4_2"})}, {"avx2", bits({"avx", "avx2", "fma", "f16c"})},
    {"avx_vnni", bits({"avx_vnni"})},     {"avx512", bits({"avx512f", "avx512dq", "avx512bw", "avx512vl"})},
    {"vnni", bits({"avx512_vnni"})},      {"bf16", bits({"avx512_bf16"})},
    {"fp16", bits({"avx512_fp16"})},      {"amx", bits({"amx_tile", "amx_bf16", "amx_int8"})},
    {"amx_fp16", bits({"amx_fp16"})}};
constexpr IsaLevel kOther[] = {{"scalar", 0}};
static_assert(std::size(kArm) <= kIsaLevels && std::size(kX86) <= kIsaLevels && std::size(kIsaFeatures) < 63);

#if defined(__aarch64__)
constexpr std::string_view kHere = "aarch64";
#elif defined(__x86_64__)
constexpr std::string_view kHere = "x86-64";
#else
constexpr std::string_view kHere = "";
#endif

uint64_t bits_of(const std::vector<std::string>& names) {
  uint64_t all = 0;
  for (size_t i = 0; i < std::size(kIsaFeatures); ++i) {
    if (std::find(names.begin(), names.end(), kIsaFeatures[i]) != names.end()) all |= uint64_t{1} << i;
  }
  return all;
}
uint64_t features_up_to(std::span<const IsaLevel> levels, int last) {
  uint64_t all = 0;
  for (int i = 0; i <= last; ++i) all |= levels[static_cast<size_t>(i)].features;
  return all;
}
int find_level(std::span<const IsaLevel> levels, std::string_view name) {
  for (size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].name == name) return static_cast<int>(i);
  }
  return -1;
}
std::string names_of(std::span<const IsaLevel> levels) {
  std::string text;
  for (const IsaLevel& level : levels) text += (text.empty() ? "" : ", ") + std::string(level.name);
  return text;
}

const IsaLevel& level_of(const IsaChoice& c) { return c.levels[static_cast<size_t>(c.level)]; }

constinit std::atomic<int> guarded_level{-1};  // of the innermost IsaGuard

}  // namespace

constinit std::atomic<uint64_t> detail::isa_features{kIsaUnknown};

std::span<const IsaLevel> isa_levels(std::string_view architecture) {
  if (architecture == "aarch64") return kArm;
  if (architecture == "x86-64") return kX86;
  return kOther;
}

IsaChoice choose_isa(std::string_view architecture, const std::vector<std::string>& features, const char* env) {
  IsaChoice c;
  c.levels = isa_levels(architecture);
  const uint64_t have = bits_of(features);
  for (size_t i = 0; i < c.levels.size(); ++i) {
    if ((have & c.levels[i].features) == c.levels[i].features) c.machine = static_cast<int>(i);
  }
  c.level = c.machine;
  if (env && *env) {
    c.from_env = env;
    const int wanted = find_level(c.levels, env);
    if (wanted < 0) {
      c.ignored = fmt::format("DEFT_CPU_ISA={} is not one of {}", env, names_of(c.levels));
    } else if (wanted > c.machine) {
      c.ignored = fmt::format("DEFT_CPU_ISA={} is above this machine's level", env);
    } else {
      c.level = wanted;
    }
  }
  c.usable = have & features_up_to(c.levels, c.level);
  return c;
}

const IsaChoice& isa_choice() {
  // Never destroyed: threads may outlive static destruction.
  static const auto* choice = new IsaChoice(choose_isa(kHere, cpu_features(), std::getenv("DEFT_CPU_ISA")));
  [[maybe_unused]] static const bool said = [] {
    if (!choice->ignored.empty()) {
      print_note("deft: {}; kernels use {}\n", choice->ignored, level_of(*choice).name);
    }
    return true;
  }();
  return *choice;
}

int isa_level() {
  const int lowered = guarded_level.load(std::memory_order_relaxed);
  return lowered >= 0 ? lowered : isa_choice().level;
}
const char* isa_level_name() { return isa_choice().levels[static_cast<size_t>(isa_level())].name; }

uint64_t detail::find_isa_features() {
  uint64_t expected = kIsaUnknown;
  isa_features.compare_exchange_strong(expected, isa_choice().usable, std::memory_order_relaxed);
  return isa_features.load(std::memory_order_relaxed);
}

bool cpu_has_named(std::string_view feature) {
  for (size_t i = 0; i < std::size(kIsaFeatures); ++i) {
    if (kIsaFeatures[i] == feature) return detail::find_isa_features() >> i & 1;
  }
  return false;
}

IsaGuard::IsaGuard(std::string_view level)
    : outer_features_(detail::find_isa_features()), outer_level_(guarded_level.load(std::memory_order_relaxed)) {
  const IsaChoice& c = isa_choice();
  const int wanted = find_level(c.levels, level), most = isa_level();
  DEFT_CHECK(wanted >= 0 && wanted <= most, ValueError,
             "IsaGuard: found level '{}', expected one of {}; pass one of these", level,
             names_of(c.levels.first(static_cast<size_t>(most) + 1)));
  guarded_level.store(wanted, std::memory_order_relaxed);
  detail::isa_features.store(outer_features_ & features_up_to(c.levels, wanted), std::memory_order_relaxed);
}
IsaGuard::~IsaGuard() {
  guarded_level.store(outer_level_, std::memory_order_relaxed);
  detail::isa_features.store(outer_features_, std::memory_order_relaxed);
}

}  // namespace deft
