// The register tiles of this folder.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm/tile_choice.h"

extern "C" {
#define DEFT_TILE(name) void name(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add)
DEFT_TILE(deft_avx2_f32_6x16);
DEFT_TILE(deft_avx2_f32_4x16);
DEFT_TILE(deft_avx2_f64_6x8);
DEFT_TILE(deft_avx2_s8_6x8);
DEFT_TILE(deft_avx2_u8s8_6x8);
DEFT_TILE(deft_avxvnni_u8s8_6x16);
DEFT_TILE(deft_avx512_f32_12x32);
DEFT_TILE(deft_avx512_f32_10x32);
DEFT_TILE(deft_avx512_f32_8x32);
DEFT_TILE(deft_avx512_f32_4x32);
DEFT_TILE(deft_avx512_f64_12x16);
DEFT_TILE(deft_avx512_bf16_12x32);
DEFT_TILE(deft_avx512_bf16_4x32);
DEFT_TILE(deft_vnni_u8s8_12x32);
DEFT_TILE(deft_vnni_u8s8_4x32);
DEFT_TILE(deft_amx_bf16_32x32);
DEFT_TILE(deft_amx_bf16_16x32);
DEFT_TILE(deft_amx_f16_16x32);
DEFT_TILE(deft_amx_s8_32x32);
DEFT_TILE(deft_amx_s8_16x32);
DEFT_TILE(deft_amx_u8s8_32x32);
DEFT_TILE(deft_amx_u8s8_16x32);
DEFT_TILE(deft_amx_bf16_stream_32x32);
DEFT_TILE(deft_amx_f16_stream_32x32);
DEFT_TILE(deft_amx_s8_stream_32x32);
DEFT_TILE(deft_amx_u8s8_stream_32x32);
#undef DEFT_TILE
#define DEFT_AHEAD_TILE(name) \
  void name(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add, const void* b_ahead)
DEFT_AHEAD_TILE(deft_avx512_f32_ahead_12x32);
DEFT_AHEAD_TILE(deft_avx512_f32_ahead_10x32);
DEFT_AHEAD_TILE(deft_avx512_f32_ahead_8x32);
DEFT_AHEAD_TILE(deft_avx512_f32_ahead_4x32);
DEFT_AHEAD_TILE(deft_amx_bf16_ahead_32x32);
DEFT_AHEAD_TILE(deft_amx_f16_ahead_32x32);
DEFT_AHEAD_TILE(deft_amx_s8_ahead_32x32);
DEFT_AHEAD_TILE(deft_amx_u8s8_ahead_32x32);
#undef DEFT_AHEAD_TILE
#define DEFT_ROWS_TILE(name)                                                                              \
  void name(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add, int64_t a_row, \
            int64_t ahead, const void* b_ahead)
DEFT_ROWS_TILE(deft_avx512_f32_rows_12x32);
DEFT_ROWS_TILE(deft_avx512_f32_rows_10x32);
DEFT_ROWS_TILE(deft_avx512_f32_rows_8x32);
DEFT_ROWS_TILE(deft_avx512_f32_rows_4x32);
DEFT_ROWS_TILE(deft_amx_bf16_rows_32x32);
DEFT_ROWS_TILE(deft_amx_f16_rows_32x32);
DEFT_ROWS_TILE(deft_amx_s8_rows_32x32);
DEFT_ROWS_TILE(deft_amx_u8s8_rows_32x32);
#undef DEFT_ROWS_TILE
void deft_amx_begin();  // shapes the eight tile registers of this thread
void deft_amx_end();
}

namespace deft::cpu {

// All tiles, best first within a panel type. AMX tiles only where the system lets this process use AMX.
std::span<const TileChoice> x86_tiles();

// Asks the system for the tile registers, once per process: their 8 KB are saved only for processes that ask.
bool amx_permitted();

}  // namespace deft::cpu
