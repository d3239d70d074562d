// Register tiles of c = a^T b, where k is the outermost dim of both, as in weight gradients: rows of a and b are read
// in place, nothing is packed. f32, on machines with AVX-512.
#pragma once

#include <cstdint>
#include <vector>

namespace deft::cpu {

// The argument of x86/gemm_tn_tiles.S. Steps in bytes.
struct GemmTnTile {
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  int64_t c_row = 0, add = 0;
  int64_t width = 0, lines = 0;
  int64_t a_row = 0, b_row = 0, a_skip = 0, b_skip = 0;
  const float* later = nullptr;
  int64_t later_step = 0, later_skip = 0;
};

// Cache lines to prefetch. `skip`: values left out after each `width` of them (of the block below).
struct Later {
  const float* first = nullptr;
  int64_t lines = 0, skip = 0;
};

// A block of k: `lines` runs of `width` steps each.
struct GemmTnBlock {
  struct Side {
    const float* first = nullptr;
    int64_t row = 0, skip = 0;  // from step to step; left out at the end of a run
  };
  int64_t width = 0, lines = 0;
  Side a = {}, b = {};
  Later later[2] = {};  // prefetched while the block is multiplied
};

// One of the GEMMs of a block: where its a, b and c begin.
struct GemmTnPart {
  int64_t a = 0, b = 0, c = 0;
};

// m as the fewest tiles of twelve rows, of which one is lowered to ten and the last ones to eight. Sometimes a few rows
// more than m.
class TileHeights {
 public:
  explicit TileHeights(int64_t m);
  int64_t count() const { return count_; }
  int64_t operator[](int64_t i) const { return i < tall_ ? 12 : i < tall_ + tens_ ? 10 : 8; }
  int64_t first(int64_t i) const {  // row of tile i
    return i <= tall_ ? 12 * i : 12 * tall_ + 10 * tens_ + 8 * (i - tall_ - tens_);
  }
  int64_t rows() const { return first(count_); }

 private:
  int64_t count_, tall_, tens_;
};

// m x n values for each part. Rows of a are read, and rows of c written, up to rows_of(m).
class GemmTnTiles {
 public:
  static bool available();
  static int64_t rows_of(int64_t m) { return TileHeights(m).rows(); }  // m, or a little more
  static constexpr int64_t kWide = 32;                                 // n is a multiple
  static constexpr int64_t kLine = 16;                                 // values of a cache line

  GemmTnTiles(int64_t m, int64_t n, std::vector<GemmTnPart> parts, float* c, int64_t c_row);
  int64_t count() const { return static_cast<int64_t>(parts_.size()) * rows() * panels_; }
  int64_t rows() const { return heights_.count(); }  // tiles below each other, in the same columns
  // Tiles [begin, end) over a block of k. add: adds to c, else overwrites it.
  void run(const GemmTnBlock& block, int64_t begin, int64_t end, bool add) const;

 private:
  TileHeights heights_;
  int64_t panels_;
  std::vector<GemmTnPart> parts_;
  float* c_;
  int64_t c_row_;
};

}  // namespace deft::cpu
