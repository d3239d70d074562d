// Register tiles of convolutions on padded rows (padded_lines.h): tile rows are positions, whose values of k lie in
// pieces.
#pragma once

#include "kernels/cpu/conv/padded_lines.h"

namespace deft::cpu::detail {

// Contiguous steps of k in the copy, and the bytes from their end to the next piece.
struct Piece {
  int64_t count, skip;
};

// The argument of x86/lines_tiles.S, x86/amx_lines_tiles.S and x86/amx_split_tiles.S. Steps in bytes.
struct ConvTile {
  const void *a, *b;
  void* c;
  int64_t c_row, add, a_row;
  const Piece* pieces;
  int64_t count;
  int64_t a_step = 64;  // of AMX: from a step of k to the next
  // For split values only: what is prefetched of b, and the distance between parts of a value.
  const void* b_ahead = nullptr;
  int64_t a_part = 64;
};

// The AMX tile of more than 16 rows (tall) and more than 16 columns (wide), else of up to 16.
using RunConvTile = void (*)(const ConvTile* tile);
RunConvTile amx_conv_tile(Panel panel, bool tall, bool wide);

// The layout of taps in a copy: pixels as whole steps of the tile, pixels padded to whole steps, or rows of taps.
enum class TapLayout : uint8_t { whole, padded, joined };

// All of k: the blocks of the packed b, each with its pieces. Built for every call, so without a heap allocation.
class ConvBlocks {
 public:
  struct Block {
    int64_t k, at;         // at: offset of its first value from the first pixel of a position
    int64_t first, count;  // pieces
  };
  ConvBlocks(const ConvPass& s, const PaddedRows& lines, TapLayout form = TapLayout::whole);
  const Block* begin() const { return blocks_.data(); }
  const Block* end() const { return blocks_.data() + count_; }
  const Piece* pieces(const Block& block) const { return pieces_.data() + block.first; }

 private:
  Workspace<Block> blocks_;
  Workspace<Piece> pieces_;
  int64_t count_ = 0;
};

}  // namespace deft::cpu::detail
