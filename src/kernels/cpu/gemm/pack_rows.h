// Packing of lines whose values of k follow each other in memory: a panel from one pointer per line. Used for matrices
// and for the windows of convolutions, whose lines begin anywhere.
#pragma once

#include "kernels/cpu/gemm/gemm_tile.h"

namespace deft::cpu {

inline constexpr int kMostLines = 64;  // of a panel

// Zeros to point a line at that is not there (or lies in the padding of an image).
inline constexpr int64_t kZeroLineBytes = 16384;
extern const unsigned char kZeroLine[kZeroLineBytes];

// `k` values of each of four lines to units of one group each; out_step bytes lie between groups.
using PackLines = void (*)(const void* const* lines, int count, int64_t k, void* out, int64_t out_step);
// All lines of a panel, so many bytes of each; `ahead` as in PanelRows.
using PackPairs = void (*)(const void* const* lines, int64_t bytes, int64_t ahead, void* out);

class PanelRows {
 public:
  PanelRows(const GemmTile& tile, Side side, DType from);
  // Whether there is a fast way for this pair of types.
  bool known() const { return pack_ != nullptr; }
  // Lines `line` elements apart from `first`; those beyond `live` are zeros. `more`: another panel of such lines
  // follows, which is prefetched while this one is packed.
  void set(const void* first, int64_t line, int64_t live, bool more = false);
  void set_line(int64_t l, const void* at) { lines_[l] = at; }
  const void* line(int64_t l) const { return lines_[l]; }

  // The next k values of all lines, to the panel at out; the last group is filled with zeros. Lines are not moved on.
  // out may begin at any group of a panel; k is at most kZeroLineBytes / 8 where a line is kZeroLine.
  void pack(int64_t k, void* out) const;

 private:
  void pack_part(int64_t from, int64_t k, void* out) const;

  PackLines pack_;
  PackPairs pairs_ = nullptr;  // where groups have eight bytes and lines are whole pairs of them
  // All lines of groups of four bytes, but a last part of a group; returns how many bytes that is.
  int64_t (*words_)(const void* const* lines, int width, int64_t bytes, int64_t ahead, void* out) = nullptr;
  int width_, group_;
  int64_t group_bytes_, value_bytes_;  // packed group; source value
  int64_t ahead_ = 0;                  // bytes from a line to the same line of the next panel; 0: unknown
  const void* lines_[kMostLines];
};

}  // namespace deft::cpu
