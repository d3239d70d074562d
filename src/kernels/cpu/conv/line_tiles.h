// Products of copied lines (padded_lines.h): rows of tiles are positions, whose values of k lie in pieces.
#pragma once

#include "kernels/cpu/conv/padded_lines.h"

namespace deft::cpu::detail {

// Steps of k that follow each other in the copy, and the bytes from their end to the next ones.
struct Piece {
  int64_t count, skip;
};

// What x86/lines_tiles.S, x86/amx_lines_tiles.S and x86/amx_split_tiles.S read. Steps in bytes.
struct ConvTile {
  const void *a, *b;
  void* c;
  int64_t c_row, add, a_row;
  const Piece* pieces;
  int64_t count;
  int64_t a_step = 64;  // of AMX: from a step of k to the next
  // For split values only: what is read of b later, from part to part of a value.
  const void* b_ahead = nullptr;
  int64_t a_part = 64;
};

// The AMX tile of more than 16 rows (tall), of more than 16 columns (wide), or of up to 16 of them.
using RunConvTile = void (*)(const ConvTile* tile);
RunConvTile amx_conv_tile(Panel panel, bool tall, bool wide);

// How taps lie in a copy: pixels as whole steps of the tile, pixels with zeros behind them up to such, or rows of taps.
enum class TapLayout : uint8_t { whole, padded, joined };

// All of k: blocks as b is packed, each with its pieces. Without a heap: this is made for every call.
class ConvBlocks {
 public:
  struct Block {
    int64_t k, at;         // at: where its first value lies, from the first pixel of a position on
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
