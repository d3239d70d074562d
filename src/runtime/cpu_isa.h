// Instruction-set levels: what kernels may use of this CPU. DEFT_CPU_ISA=<name> lowers the level, to compare, to
// reproduce another machine's results, or to run under tools that do not know the newest instructions.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deft {

// The features kernels ask for, as cpu_features() spells them, of all architectures.
inline constexpr std::string_view kIsaFeatures[] = {
    "asimd",    "asimdhp",  "asimdfhm",    "asimddp",     "bf16",        "i8mm",     "sse4_1",   "sse4_2",
    "avx",      "avx2",     "fma",         "f16c",        "avx_vnni",    "avx512f",  "avx512dq", "avx512bw",
    "avx512vl", "amx_tile", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16"};

// One of them, found when compiling: a name that is not in the list is a compile error.
class CpuFeature {
 public:
  consteval CpuFeature(const char* name) {
    while (kIsaFeatures[bit_] != name) ++bit_;
  }
  constexpr uint64_t mask() const { return uint64_t{1} << bit_; }

 private:
  int bit_ = 0;
};

struct IsaLevel {
  const char* name;
  uint64_t features;  // what it adds to the levels below: bits of kIsaFeatures
};
inline constexpr int kIsaLevels = 9;  // most levels of an architecture
// Lowest first. `architecture` is "aarch64" or "x86-64"; anything else has one level without features.
std::span<const IsaLevel> isa_levels(std::string_view architecture);

// Why the level is what it is; printed by `deft info`.
struct IsaChoice {
  std::span<const IsaLevel> levels;
  int machine = 0;       // the highest level of which the machine has all features
  int level = 0;         // the one in use
  uint64_t usable = 0;   // the machine's features in the levels up to that one
  std::string from_env;  // DEFT_CPU_ISA; empty: not set
  std::string ignored;   // why from_env was not followed, one sentence; empty: it was
};
// `env` is the text of DEFT_CPU_ISA or nullptr.
IsaChoice choose_isa(std::string_view architecture, const std::vector<std::string>& features, const char* env);
// Of this process. The first call says on stderr where DEFT_CPU_ISA could not be followed.
const IsaChoice& isa_choice();
// The level in use: a number below kIsaLevels, and its name ("i8mm").
int isa_level();
const char* isa_level_name();

namespace detail {
inline constexpr uint64_t kIsaUnknown = uint64_t{1} << 63;
extern std::atomic<uint64_t> isa_features;
uint64_t find_isa_features();
}  // namespace detail

// The CPU has the feature, and the level in use includes it. A machine of a level need not have everything below it
// (i8mm without bf16), so ask for each feature that is used.
inline bool cpu_has(CpuFeature feature) {
  uint64_t features = detail::isa_features.load(std::memory_order_relaxed);
  if (features & detail::kIsaUnknown) [[unlikely]]
    features = detail::find_isa_features();
  return (features & feature.mask()) != 0;
}

// The same for a name known only at run time; false for one that is not in kIsaFeatures.
bool cpu_has_named(std::string_view feature);
template <class S>
requires(std::same_as<S, std::string> || std::same_as<S, std::string_view>) bool cpu_has(const S& feature) {
  return cpu_has_named(feature);
}

// For tests: lowers the level of the whole process while it lives; not to be used while kernels run. ValueError for a
// level that is unknown or above the one in use. Register tiles follow at once; Highway's kernels stay with what
// DEFT_CPU_ISA said at start.
class IsaGuard {
 public:
  explicit IsaGuard(std::string_view level);
  ~IsaGuard();
  IsaGuard(const IsaGuard&) = delete;
  IsaGuard& operator=(const IsaGuard&) = delete;

 private:
  uint64_t outer_features_;
  int outer_level_;  // -1: no guard around this one
};

}  // namespace deft
