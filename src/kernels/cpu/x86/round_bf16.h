// Rounding to bf16 with AVX-512 BF16.
#pragma once

#include <cstddef>

#include "runtime/half.h"

namespace deft::cpu {

// to[i] = BFloat16(from[i]), 32 at a time; returns how many. It stops before 32 of which one is subnormal, because the
// instruction flushes those to zero. Takes half the time of integer arithmetic.
size_t round_bf16_512(const float* from, BFloat16* to, size_t n);

}  // namespace deft::cpu
