// Tiles of f32 values split into three of bf16 (Panel::split), see split_tiles.cpp.
#pragma once

#include "kernels/cpu/conv/line_tiles.h"

namespace deft::cpu {

// As GemmTile::run and run_ahead.
void run_split_32x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add);
void run_split_16x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add);
void run_split_ahead_32x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add,
                           const void* b_ahead);
void run_split_ahead_16x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add,
                           const void* b_ahead);

// Repairs NaN in a series of ConvTiles, whose c is `sums` with rows of 32, the first of which does not add: where a sum
// is NaN, the series is run again with whole values, and NaN sums are replaced.
bool has_nan(const float* sums, int rows, bool wide);  // wide: more than 16 columns
void add_whole_steps(const detail::ConvTile& tile, int rows, float* sums);
void replace_nan(const float* whole, int rows, float* sums);

}  // namespace deft::cpu
