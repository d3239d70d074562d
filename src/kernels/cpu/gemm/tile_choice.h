// Tiles with what they need of the machine; see gemm_tile.h.
#pragma once

#include <span>

#include "kernels/cpu/gemm/gemm_tile.h"
#include "runtime/cpu_isa.h"

namespace deft::cpu {

consteval uint64_t needs(CpuFeature feature) { return feature.mask(); }

struct TileChoice {
  GemmTile tile;
  uint64_t features;  // all of these: needs("...") of each
};

// Tiles in C++ that run anywhere: the fallback of each instruction set, and the only ones for f64 on some.
std::span<const GemmTile> portable_tiles();

}  // namespace deft::cpu
