#include "runtime/cpu_info.h"

#include <algorithm>
#include <string_view>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace deft {

#if defined(__aarch64__)

std::vector<std::string> cpu_features() {
  struct Bit {
    const char* name;
    int bit;
  };
  // Numbers of the kernel's asm/hwcap.h, which older systems have only in part.
  static constexpr Bit kFirst[] = {{"asimd", 1}, {"atomics", 8},  {"fphp", 9}, {"asimdhp", 10}, {"asimdrdm", 12},
                                   {"fcma", 14}, {"asimddp", 20}, {"sve", 22}, {"asimdfhm", 23}};
  static constexpr Bit kSecond[] = {{"sve2", 1},  {"svei8mm", 9}, {"svef32mm", 10}, {"svebf16", 12},
                                    {"i8mm", 13}, {"bf16", 14},   {"sme", 23},      {"sme2", 37}};
  uint64_t first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  std::vector<std::string> names;
  for (Bit b : kFirst) {
    if (first >> b.bit & 1) names.emplace_back(b.name);
  }
  for (Bit b : kSecond) {
    if (second >> b.bit & 1) names.emplace_back(b.name);
  }
  return names;
}

#elif defined(__x86_64__)

namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Registers cpuid(uint32_t leaf, uint32_t sub) {
  Registers r;
  __get_cpuid_count(leaf, sub, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}
// Register sets the operating system saves (XCR0).
uint64_t enabled_state() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

}  // namespace

std::vector<std::string> cpu_features() {
  Registers one = cpuid(1, 0), seven = cpuid(7, 0), more = cpuid(7, 1);
  uint64_t state = one.ecx >> 27 & 1 ? enabled_state() : 0;
  bool ymm = (state & 0x6) == 0x6, zmm = ymm && (state & 0xe0) == 0xe0, tiles = (state >> 17 & 3) == 3;
  struct Bit {
    const char* name;
    uint32_t word;
    int bit;
    bool usable;
  };
  const Bit bits[] = {
      {"sse4_1", one.ecx, 19, true},      {"sse4_2", one.ecx, 20, true},       {"avx", one.ecx, 28, ymm},
      {"fma", one.ecx, 12, ymm},          {"f16c", one.ecx, 29, ymm},          {"avx2", seven.ebx, 5, ymm},
      {"avx_vnni", more.eax, 4, ymm},     {"avx512f", seven.ebx, 16, zmm},     {"avx512dq", seven.ebx, 17, zmm},
      {"avx512bw", seven.ebx, 30, zmm},   {"avx512vl", seven.ebx, 31, zmm},    {"avx512_vnni", seven.ecx, 11, zmm},
      {"avx512_bf16", more.eax, 5, zmm},  {"avx512_fp16", seven.edx, 23, zmm}, {"amx_tile", seven.edx, 24, tiles},
      {"amx_bf16", seven.edx, 22, tiles}, {"amx_int8", seven.edx, 25, tiles},  {"amx_fp16", more.eax, 21, tiles},
  };
  std::vector<std::string> names;
  for (const Bit& b : bits) {
    if (b.usable && (b.word >> b.bit & 1)) names.emplace_back(b.name);
  }
  return names;
}

#else

std::vector<std::string> cpu_features() { return {}; }

#endif

std::vector<std::string> fast_here(const std::vector<std::string>& features) {
  struct Line {
    std::string_view feature, text;
  };
  static constexpr Line kLines[] = {
      {"asimd", "128-bit SIMD (NEON)"},
      {"asimdhp", "f16 arithmetic"},
      {"asimddp", "int8 dot products (SDOT)"},
      {"bf16", "bf16 matrix instructions (BFMMLA)"},
      {"i8mm", "int8 matrix instructions (SMMLA)"},
      {"sve", "scalable vectors (SVE)"},
      {"sme", "matrix tiles (SME)"},
      {"avx2", "256-bit SIMD (AVX2)"},
      {"avx512f", "512-bit SIMD (AVX-512)"},
      {"avx_vnni", "int8 dot products (AVX-VNNI)"},
      {"avx512_vnni", "int8 dot products (AVX-512 VNNI)"},
      {"avx512_bf16", "bf16 dot products (AVX-512 BF16)"},
      {"avx512_fp16", "f16 arithmetic (AVX-512 FP16)"},
      {"amx_bf16", "bf16 matrix tiles (AMX), for large f32 matmuls too"},
      {"amx_int8", "int8 matrix tiles (AMX)"},
      {"amx_fp16", "f16 matrix tiles (AMX)"},
  };
  std::vector<std::string> lines;
  for (const Line& line : kLines) {
    if (std::find(features.begin(), features.end(), line.feature) != features.end()) lines.emplace_back(line.text);
  }
  return lines;
}

}  // namespace deft
