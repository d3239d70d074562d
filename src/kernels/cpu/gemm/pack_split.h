// Panels of f32 values as three of bf16 each (Note [Split f32] in kernels/cpu/x86/split_tiles.cpp).
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu {

// As PanelSource::pack, for tiles of Panel::split, from whatever packs as f32.
void pack_split(const PanelSource& from, const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0,
                int64_t k, void* out);

// Steps of 32 values one after the other, 64 bytes for each of their parts; zeros up to whole steps.
void split_values(const float* from, int64_t count, void* to);
// Panels of b from rows of k, `row` values apart, of 32 lines each.
void split_rows(const float* rows, int64_t row, int64_t k, void* to);

}  // namespace deft::cpu
