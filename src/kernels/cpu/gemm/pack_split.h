// Panels of f32 values split into three of bf16 each (Note [Split f32] in kernels/cpu/x86/split_tiles.cpp).
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu {

// PanelSource::pack for tiles of Panel::split, from any source that packs f32.
void pack_split(const PanelSource& from, const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0,
                int64_t k, void* out);

// Splits values into steps of 32, one after the other, 64 bytes for each part; zeros up to whole steps.
void split_values(const float* from, int64_t count, void* to);
// Panels of b, 32 columns each, from rows of k that are `row` values apart.
void split_rows(const float* rows, int64_t row, int64_t k, void* to);

}  // namespace deft::cpu
