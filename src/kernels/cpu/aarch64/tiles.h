// The register tiles of this folder.
#pragma once

#include "kernels/cpu/gemm/gemm_tile.h"

extern "C" {
#define DEFT_TILE(name) void name(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add)
DEFT_TILE(deft_neon_f32_8x8);
DEFT_TILE(deft_neon_f32_7x8);
DEFT_TILE(deft_neon_f32_4x8);
DEFT_TILE(deft_fhm_f16_8x12);
DEFT_TILE(deft_bf16_8x12);
DEFT_TILE(deft_bf16_12x8);
DEFT_TILE(deft_dot_s8_8x12);
DEFT_TILE(deft_i8mm_s8_8x12);
DEFT_TILE(deft_i8mm_s8_12x8);
DEFT_TILE(deft_i8mm_u8s8_8x12);
DEFT_TILE(deft_i8mm_u8s8_12x8);
DEFT_TILE(deft_bf16_4x12);
DEFT_TILE(deft_i8mm_s8_4x8);
DEFT_TILE(deft_i8mm_u8s8_4x8);
#undef DEFT_TILE
#define DEFT_TILE(name)                                                                     \
  void name(int64_t steps, const void* a, const void* b, const deft::cpu::ByteTerms* terms, \
            const deft::cpu::ByteRange* range, void* c, int64_t c_row, int64_t count)
DEFT_TILE(deft_i8mm_s8_12x8_bytes);
DEFT_TILE(deft_i8mm_u8s8_12x8_bytes);
DEFT_TILE(deft_i8mm_s8_4x8_bytes);
DEFT_TILE(deft_i8mm_u8s8_4x8_bytes);
#undef DEFT_TILE
}
