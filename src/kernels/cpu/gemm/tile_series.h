// A series of runs of a tile on this thread.
#pragma once

#include "kernels/cpu/gemm/gemm_tile.h"

namespace deft::cpu::detail {

// begin() and end() of the tile, also when something throws between them.
struct TileSeries {
  explicit TileSeries(const GemmTile& t) : tile(t) {
    if (tile.begin) tile.begin();
  }
  ~TileSeries() {
    if (tile.end) tile.end();
  }
  TileSeries(const TileSeries&) = delete;
  TileSeries& operator=(const TileSeries&) = delete;
  const GemmTile& tile;
};

}  // namespace deft::cpu::detail
