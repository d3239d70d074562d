// How threads share a product: who computes which part of c, and who packs what.
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu::detail {

inline constexpr int64_t kThreadWork = 64 * 1024;  // multiply-adds that pay for a thread

// Rows of a that need no packing: of the panel's own type, contiguous over k, for a tile that reads them in place.
const StridedMatrix* rows_in_place(const BlockedGemm& p);

// Threads over the rows and columns of c.
struct Grid {
  int64_t rows, cols;
};
// As many as pay off, each packing as little as possible.
Grid choose_grid(const BlockedGemm& p);

// Whether threads that read the same lines of a side pack them together, and not each for itself.
bool shares(const BlockedGemm& p, Side side, Grid grid);

// How each thread's rectangle is cut for parallel_balanced: across the side of which less is read again for each piece,
// where that side needs no packing.
struct Pieces {
  int64_t count = 1;
  bool of_rows = true;
};
Pieces choose_pieces(const BlockedGemm& p, Grid grid);

struct Span {
  int64_t begin, end;
  Span part(int64_t i, int64_t count) const {
    return {begin + (end - begin) * i / count, begin + (end - begin) * (i + 1) / count};
  }
  // The i-th piece: half of it, a quarter, and so on; the last is as long as the one before. What is traded at the end
  // is short, and what all threads do for themselves in one go is long: eight pieces of one size cost up to 10 %.
  Span piece(int64_t i, int64_t count) const {
    const int64_t from = end - ((end - begin) >> i);
    return {from, i + 1 == count ? end : end - ((end - begin) >> (i + 1))};
  }
};

}  // namespace deft::cpu::detail
