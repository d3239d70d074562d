// The SIMD targets Deft is built for. Include before any Highway header.
// x86-64: SSE4, AVX2, AVX3 (AVX-512) over a scalar baseline; aarch64: NEON. SVE vectors have no compile-time size, so
// they cannot be members of a class such as Vec<T>.
#pragma once

#ifdef HWY_DISABLED_TARGETS
#error "include kernels/cpu/simd/targets.h before Highway"
#endif
#ifndef DEFT_UNUSED_TARGETS
#define DEFT_UNUSED_TARGETS 0  // DEFT_SIMD_TARGETS=native names those of other machines
#endif
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_AVX3_DL | (DEFT_UNUSED_TARGETS))

#if defined(__x86_64__)
namespace deft::cpu {
// In isa_targets.cpp, which a static library would leave out if nobody referred to it.
extern const bool kTargetsFollowIsa;
[[gnu::used]] static const bool* const link_isa_targets = &kTargetsFollowIsa;
}  // namespace deft::cpu
#endif
#if defined(__x86_64__) || defined(__aarch64__)
namespace deft::cpu {
// The CPU has VCVTNE2PS2BF16 or BFCVTN: one instruction for what takes ten otherwise. False until static initialisation
// has come to it. To be tested before a function of its own is called that uses it (on x86-64, where
// tests/tools/isa_levels_test.py looks for it elsewhere): GCC moves asm above a test.
extern const bool kConvertsBf16;
}  // namespace deft::cpu
#endif
