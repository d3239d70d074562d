#if defined(__x86_64__)

#include "kernels/cpu/x86/tiles.h"

#include "kernels/cpu/x86/split_tiles.h"

namespace deft::cpu {

namespace {

constexpr TileChoice avx512_f32(const char* name, int mr, decltype(GemmTile::run) run,
                                decltype(GemmTile::run_rows) run_rows, decltype(GemmTile::run_ahead) run_ahead) {
  GemmTile tile{name, Panel::f32, mr, 32, 1, 1, 1, 768, run, nullptr, nullptr, run_rows};
  tile.run_ahead = run_ahead;
  return {tile, needs("avx512f")};
}

// block_k: leaving the tiles more often costs more (2048 x 2048 x 2048 of bf16, one thread: 850 GFLOP/s with 1024, 1160
// with 2048; 4096 x 768 x 3072 with 4096 instead: 0.88 on 16 threads of an Emerald Rapids). AVX-512 f32 does not care.
constexpr TileChoice amx(const char* name, int mr, Panel panel, uint64_t features, decltype(GemmTile::run) run,
                         decltype(GemmTile::run_rows) run_rows = nullptr) {
  const int bytes = panel == Panel::bf16 || panel == Panel::f16 ? 2 : 1;
  GemmTile tile{name, panel, mr, 32, 64 / bytes, 4 / bytes, 64 / bytes, 4096 / bytes, run};
  tile.begin = deft_amx_begin, tile.end = deft_amx_end, tile.run_rows = run_rows;
  // From L2, rows in place are slower than panels. Packed and in place, GFLOP/s: 4096 x 768 x 768 on one thread 870 and
  // 750, 2048 x 2048 x 2048 on 16 threads 6,860 and 5,510, but 3136 x 64 x 256 on one 510 and 610, and 784 x 256 x 512
  // on 16 2,040 and 3,610.
  tile.pack_columns = 256, tile.pack_work = 64e6;
  return {tile, needs("amx_tile") | features};
}
// Note [Streams]. Packed and in place, GFLOP/s on one thread: 784 x 128 x 256 1,000 and 850, 49 x 256 x 1024 940 and
// 720, but 784 x 64 x 256 800 and 870, 49 x 256 x 256 860 and 1,000. Parts of 12 steps are as good, of 8 not. A k up to
// block_k gains (measured alternately with the block_k of the other tiles: bf16 4096 x 768 x 3072 1.2 to 1.3, 784 x 256
// x 2304 1.3 to 1.4, int8 784 x 256 x 4608 1.4), a longer one does not lose; twice the block_k of the others loses at k
// = 4096 (0.7).
constexpr TileChoice amx_stream(const char* name, Panel panel, uint64_t features, decltype(GemmTile::run) run,
                                decltype(GemmTile::run_ahead) run_ahead, decltype(GemmTile::run_rows) run_rows) {
  TileChoice choice = amx(name, 32, panel, features | needs("amx_fp16"), run, run_rows);
  choice.tile.run_ahead = run_ahead;
  choice.tile.block_k = choice.tile.block_k / 2 * 3;
  choice.tile.pack_columns = 128, choice.tile.pack_work = 5e6, choice.tile.part_steps = 16;
  return choice;
}

constexpr TileChoice split(const char* name, int mr, decltype(GemmTile::run) run,
                           decltype(GemmTile::run_ahead) run_ahead) {
  GemmTile tile{name, Panel::split, mr, 32, 32, 2, 32, 768, run};
  tile.begin = deft_amx_begin, tile.end = deft_amx_end, tile.run_ahead = run_ahead;
  return {tile, needs("amx_tile") | needs("amx_bf16") | needs("avx512bw") | needs("avx512dq")};
}

constexpr int kAmxTiles = 13;
constexpr TileChoice kTiles[] = {
    amx_stream("amx_bf16_stream_32x32", Panel::bf16, needs("amx_bf16"), deft_amx_bf16_stream_32x32,
               deft_amx_bf16_ahead_32x32, deft_amx_bf16_rows_32x32),
    amx("amx_bf16_32x32", 32, Panel::bf16, needs("amx_bf16"), deft_amx_bf16_32x32, deft_amx_bf16_rows_32x32),
    amx("amx_bf16_16x32", 16, Panel::bf16, needs("amx_bf16"), deft_amx_bf16_16x32),
    amx_stream("amx_f16_stream_32x32", Panel::f16, 0, deft_amx_f16_stream_32x32, deft_amx_f16_ahead_32x32,
               deft_amx_f16_rows_32x32),
    amx("amx_f16_16x32", 16, Panel::f16, needs("amx_fp16"), deft_amx_f16_16x32),
    amx_stream("amx_s8_stream_32x32", Panel::s8, needs("amx_int8"), deft_amx_s8_stream_32x32, deft_amx_s8_ahead_32x32,
               deft_amx_s8_rows_32x32),
    amx("amx_s8_32x32", 32, Panel::s8, needs("amx_int8"), deft_amx_s8_32x32, deft_amx_s8_rows_32x32),
    amx("amx_s8_16x32", 16, Panel::s8, needs("amx_int8"), deft_amx_s8_16x32),
    amx_stream("amx_u8s8_stream_32x32", Panel::u8s8, needs("amx_int8"), deft_amx_u8s8_stream_32x32,
               deft_amx_u8s8_ahead_32x32, deft_amx_u8s8_rows_32x32),
    amx("amx_u8s8_32x32", 32, Panel::u8s8, needs("amx_int8"), deft_amx_u8s8_32x32, deft_amx_u8s8_rows_32x32),
    amx("amx_u8s8_16x32", 16, Panel::u8s8, needs("amx_int8"), deft_amx_u8s8_16x32),
    split("amx_split_32x32", 32, run_split_32x32, run_split_ahead_32x32),
    split("amx_split_16x32", 16, run_split_16x32, run_split_ahead_16x32),

    avx512_f32("avx512_f32_12x32", 12, deft_avx512_f32_12x32, deft_avx512_f32_rows_12x32, deft_avx512_f32_ahead_12x32),
    avx512_f32("avx512_f32_10x32", 10, deft_avx512_f32_10x32, deft_avx512_f32_rows_10x32, deft_avx512_f32_ahead_10x32),
    avx512_f32("avx512_f32_8x32", 8, deft_avx512_f32_8x32, deft_avx512_f32_rows_8x32, deft_avx512_f32_ahead_8x32),
    avx512_f32("avx512_f32_4x32", 4, deft_avx512_f32_4x32, deft_avx512_f32_rows_4x32, deft_avx512_f32_ahead_4x32),
    {{"avx512_f64_12x16", Panel::f64, 12, 16, 1, 1, 1, 256, deft_avx512_f64_12x16}, needs("avx512f")},
    {{"avx512_bf16_12x32", Panel::bf16, 12, 32, 2, 2, 2, 1024, deft_avx512_bf16_12x32}, needs("avx512_bf16")},
    {{"avx512_bf16_4x32", Panel::bf16, 4, 32, 2, 2, 2, 1024, deft_avx512_bf16_4x32}, needs("avx512_bf16")},
    {{"vnni_u8s8_12x32", Panel::u8s8, 12, 32, 4, 4, 4, 2048, deft_vnni_u8s8_12x32}, needs("avx512_vnni")},
    {{"vnni_u8s8_4x32", Panel::u8s8, 4, 32, 4, 4, 4, 2048, deft_vnni_u8s8_4x32}, needs("avx512_vnni")},

    {{"avxvnni_u8s8_6x16", Panel::u8s8, 6, 16, 4, 4, 4, 2048, deft_avxvnni_u8s8_6x16}, needs("avx_vnni")},
    {{"avx2_f32_6x16", Panel::f32, 6, 16, 1, 1, 1, 768, deft_avx2_f32_6x16}, needs("avx2") | needs("fma")},
    {{"avx2_f32_4x16", Panel::f32, 4, 16, 1, 1, 1, 768, deft_avx2_f32_4x16}, needs("avx2") | needs("fma")},
    {{"avx2_f64_6x8", Panel::f64, 6, 8, 1, 1, 1, 256, deft_avx2_f64_6x8}, needs("avx2") | needs("fma")},
    {{"avx2_s8_6x8", Panel::s8, 6, 8, 4, 4, 8, 2048, deft_avx2_s8_6x8}, needs("avx2")},
    {{"avx2_u8s8_6x8", Panel::u8s8, 6, 8, 4, 4, 8, 2048, deft_avx2_u8s8_6x8}, needs("avx2")},
};

}  // namespace

std::span<const TileChoice> x86_tiles() {
  std::span<const TileChoice> all = kTiles;
  return cpu_has("amx_tile") && amx_permitted() ? all : all.subspan(kAmxTiles);
}

}  // namespace deft::cpu

#endif
