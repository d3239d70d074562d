// Packing of lines whose values of k are contiguous: a panel from one pointer per line. Used for matrices and for the
// windows of convolutions, whose lines begin anywhere.
#pragma once

#include "kernels/cpu/gemm/gemm_tile.h"

namespace deft::cpu {

inline constexpr int kMostLines = 64;  // of a panel

// Zeros for lines that do not exist or lie in the padding of an image.
inline constexpr int64_t kZeroLineBytes = 16384;
extern const unsigned char kZeroLine[kZeroLineBytes];

// Packs `k` values of each of four lines into units of one group each; out_step bytes lie between groups.
using PackLines = void (*)(const void* const* lines, int count, int64_t k, void* out, int64_t out_step);
// Packs `bytes` bytes of every line of a panel; `ahead` as in PanelRows.
using PackPairs = void (*)(const void* const* lines, int64_t bytes, int64_t ahead, void* out);

class PanelRows {
 public:
  PanelRows(const GemmTile& tile, Side side, DType from);
  // Whether there is a fast kernel for this pair of types.
  bool known() const { return pack_ != nullptr; }
  // Lines `line` elements apart from `first`; those beyond `live` are zeros. `more`: another panel with the same
  // distance follows and is prefetched while this one is packed.
  void set(const void* first, int64_t line, int64_t live, bool more = false);
  void set_line(int64_t l, const void* at) { lines_[l] = at; }
  const void* line(int64_t l) const { return lines_[l]; }

  // Packs the next k values of all lines to the panel at out; the last group is filled with zeros. The line pointers do
  // not move. out may begin at any group of a panel; k is at most kZeroLineBytes / 8 where a line is kZeroLine.
  void pack(int64_t k, void* out) const;

 private:
  void pack_part(int64_t from, int64_t k, void* out) const;

  PackLines pack_;
  PackPairs pairs_ = nullptr;  // for groups of eight bytes and lines of whole pairs of groups
  // All lines in groups of four bytes, without an incomplete last group; returns the bytes packed of each line.
  int64_t (*words_)(const void* const* lines, int width, int64_t bytes, int64_t ahead, void* out) = nullptr;
  int width_, group_;
  int64_t group_bytes_, value_bytes_;  // packed group; source value
  int64_t ahead_ = 0;                  // bytes from a line to the same line of the next panel; 0: unknown
  const void* lines_[kMostLines];
};

}  // namespace deft::cpu
