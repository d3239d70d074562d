// Highway's dispatch follows the instruction-set level (runtime/cpu_isa.h). On aarch64 it has one target, plain NEON.
#include "kernels/cpu/simd/targets.h"

#if defined(__x86_64__)
#include <cstdlib>

#include "hwy/targets.h"
#include "runtime/cpu_isa.h"

namespace deft::cpu {

const bool kTargetsFollowIsa = true;

namespace {

// Before other static initialisers, which may run kernels: dispatch is settled by the first of them. Lower bits are
// better targets.
[[gnu::constructor(101)]] void follow_isa() {
  if (!std::getenv("DEFT_CPU_ISA")) return;  // Highway finds the same features
  if (!cpu_has("avx2")) {
    hwy::DisableTargets(HWY_SSE4 - 1);
  } else if (!cpu_has("avx512f")) {
    hwy::DisableTargets(HWY_AVX2 - 1);
  }
}

}  // namespace

const bool kConvertsBf16 = cpu_has("avx512_bf16");

}  // namespace deft::cpu
#elif defined(__aarch64__)
#include "runtime/cpu_isa.h"

namespace deft::cpu {
const bool kConvertsBf16 = cpu_has("bf16");
}  // namespace deft::cpu
#endif
