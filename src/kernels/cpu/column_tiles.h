// Register tiles of c = a turned times b, where k is the outermost dim of both, as in gradients of weights: rows of a
// and of b are read where they are, nothing is packed. f32, on machines with AVX-512.
#pragma once

#include <cstdint>
#include <vector>

namespace deft::cpu {

// What x86/columns_tiles.S reads. Steps in bytes.
struct ColumnsTile {
  const float *a = nullptr, *b = nullptr;
  float* c = nullptr;
  int64_t c_row = 0, add = 0;
  int64_t width = 0, lines = 0;
  int64_t a_row = 0, b_row = 0, b_skip = 0;
  const float* later = nullptr;
  int64_t later_step = 0, later_skip = 0;
};

// Cache lines that will be needed soon. `skip`: values left out after each `width` of them (of the block below).
struct Later {
  const float* first = nullptr;
  int64_t lines = 0, skip = 0;
};

// A piece of k: `lines` of `width` steps each.
struct ColumnsBlock {
  int64_t width = 0, lines = 0;
  const float* a = nullptr;  // a row for each step
  int64_t a_row = 0;
  const float* b = nullptr;  // the same; b_skip: from the end of a line to the next one
  int64_t b_row = 0, b_skip = 0;
  Later later[2] = {};  // brought near while it is multiplied
};

// c has m rows of n values for each tap. Taps are places in b where a product begins.
class ColumnTiles {
 public:
  static bool fit(int64_t m, int64_t n);  // and whether this machine has them
  ColumnTiles(int64_t m, int64_t n, std::vector<int64_t> taps, float* c);
  int64_t count() const { return static_cast<int64_t>(taps_.size()) * panels_ * rows_; }
  int64_t rows() const { return rows_; }  // tiles of the same columns, which follow each other
  // Tiles [begin, end) over a piece of k. add: to what c has, else to zero.
  void run(const ColumnsBlock& block, int64_t begin, int64_t end, bool add) const;

  static constexpr int64_t kWide = 32;  // columns of a tile
  static constexpr int64_t kLine = 16;  // values of a cache line

 private:
  int64_t m_, n_, tall_, rows_, panels_;
  std::vector<int64_t> taps_;
  float* c_;
};

}  // namespace deft::cpu
