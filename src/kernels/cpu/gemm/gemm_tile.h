// Register tiles: the innermost loops of all GEMMs, in assembly, one set per instruction set.
//
// Note [Panels]: a tile reads both operands from packed panels. A panel holds `width` lines (a: mr rows; b: nr columns)
// over all of k as [k / group][width][group]: the next `group` values of k of each line in turn. Lines beyond the
// matrix, and k up to the next multiple of k_step, are zeros. The panels of a matrix are contiguous.
//
// Note [One chain]: element (i, j) of a GEMM of f32, f64, or f16 by FMLAL, is one chain of fused multiply-adds in order
// of k, whatever the tile; so the choice of tile, of blocks of rows and columns, and of threads never changes a result.
// (Large f32 GEMMs on AMX are sums of parts instead, Note [Split f32]: an element still depends only on its row, its
// column and whether the GEMM is one of those.) Matrix instructions (BFMMLA, VDPBF16PS, TDPBF16PS, TDPFP16PS) sum
// groups of k as their instruction set says.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "runtime/dtype.h"

namespace deft::cpu {

// The contents of panels. s8: a and b signed bytes. u8s8: a unsigned, b signed. split: f32 values as three of bf16,
// which follow each other step by step (Note [Split f32] in kernels/cpu/x86/split_tiles.cpp).
enum class Panel : uint8_t { f32, f64, f16, bf16, s8, u8s8, split };
enum class Side : uint8_t { a, b };  // a: lines are rows, b: lines are columns

// The terms of eight columns for a tile that requantises: column c is at places 4 (c / 2) + c % 2 and two further on,
// the order in which matrix instructions leave sums. The sums begin with `start`.
struct alignas(64) ByteTerms {
  float scale[16], bias[16];
  int32_t start[16];
};
// The range of output bytes. `least` and `most` have the zero point subtracted and `unit` = 1.5 * 2^23 added: a sum
// plus `unit` is rounded to an integer, ties to even, and its low byte is the result.
struct ByteRange {
  float unit[4], least[4], most[4];
  uint8_t zero[16];
};

struct GemmTile {
  const char* name;  // "neon_f32_8x8"
  Panel panel;
  int mr, nr;
  int a_group, b_group;  // Note [Panels]
  int k_step;            // a multiple of both groups
  int64_t block_k;       // longest k of one run, a multiple of k_step; longer sums are split there
  // c (+)= a panel times b panel, mr x nr values of f32 (f64 for f64, int32 for bytes), rows c_row elements apart.
  // steps = padded k / k_step, at least 1.
  void (*run)(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add);
  // Called on the running thread before the first and after the last of a series of runs; null except for AMX.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
  // run() on whole tiles of rows in place: k contiguous, rows a_row bytes apart; may be null. Prefetches the rows
  // `ahead` bytes further on (0: they are in cache already) and b from b_ahead on.
  void (*run_rows)(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add, int64_t a_row,
                   int64_t ahead, const void* b_ahead) = nullptr;
  bool portable = false;  // C++, several times slower: for machines without another tile
  // run() from bytes to bytes: c = sums * scale + bias, rounded, for `count` panels of b one after the other, each with
  // its ByteTerms. c_row in bytes; nr is 8. May be null.
  void (*requantize)(int64_t steps, const void* a, const void* b, const ByteTerms* terms, const ByteRange* range,
                     void* c, int64_t c_row, int64_t count) = nullptr;
  // run() that prefetches b from b_ahead on; may be null.
  void (*run_ahead)(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add,
                    const void* b_ahead) = nullptr;
  // Rows are read in place below pack_columns columns or pack_work multiply-adds per thread; above both, packing pays
  // off.
  int64_t pack_columns = std::numeric_limits<int64_t>::max();
  double pack_work = 0;
  // The steps for which a panel of b stays in L1 beside a stream of a: longer runs are cut into parts of about that
  // size, with sums in a buffer between them. 0: no parts.
  int64_t part_steps = 0;

  int width(Side side) const { return side == Side::a ? mr : nr; }
  int group(Side side) const { return side == Side::a ? a_group : b_group; }
  int64_t padded_k(int64_t k) const { return (k + k_step - 1) / k_step * k_step; }
};

int64_t size_of(Panel panel);  // bytes of one packed value

// Tiles this machine can run at its instruction-set level (runtime/cpu_isa.h), best first. Never empty for f32, f64 and
// s8; empty for other types where the instructions are missing.
std::span<const GemmTile> gemm_tiles(Panel panel);

// The tile that wastes the least on an m x n result; m = 0: many rows, as for weights packed in advance. The panel type
// must have a tile.
const GemmTile& best_tile(Panel panel, int64_t m, int64_t n);

// The tile that requantises the last few rows after whole tiles of `tile`; null: none.
const GemmTile* tail_tile(const GemmTile& tile);

// The tile for m rows among those that read a b packed for `packed`.
const GemmTile& tile_for_rows(const GemmTile& packed, int64_t m);

// The panel type of a GEMM of this dtype on this machine: bf16 and f16 widen to f32 panels where the machine has no
// instructions for them.
Panel panel_for(DType dtype);

// The same for an m x n result of sums over k: a large f32 GEMM uses split panels where there are tiles for them
// (runtime/numerics.h). Depends on sizes only, and not on the order of m and n.
Panel panel_for(DType dtype, int64_t m, int64_t n, int64_t k);
// Whether AMX is so much faster than AVX-512 that split values pay off wherever whole tiles are used: on CPUs that have
// AMX-FP16 (Granite Rapids, one thread and two: GEMMs of 128 x 768 x 768 and more 1.5 to 2.3x as fast, 3 x 3
// convolutions 1.1 to 2.7x). On earlier CPUs only large GEMMs gain (Emerald Rapids: 1024 x 1024 x 1024 and more 1.2 to
// 1.7x on one thread and 1.04 to 1.36x on 16, convolutions of several taps 0.5 to 1.1x), unless TF32 is allowed.
bool splits_fast();

}  // namespace deft::cpu
