// How threads share a GEMM: which thread computes which part of c, and who packs what.
#pragma once

#include "kernels/cpu/gemm/blocked_gemm.h"

namespace deft::cpu::detail {

inline constexpr int64_t kThreadWork = 64 * 1024;  // multiply-adds that pay for a thread

// The matrix a if it needs no packing: of the panel's own type, contiguous over k, and the tile reads rows in place.
// Else null.
const StridedMatrix* rows_in_place(const BlockedGemm& p);

// The grid of threads over rows and columns of c.
struct Grid {
  int64_t rows, cols;
};
// As many threads as pay off, with as little packing for each as possible.
Grid choose_grid(const BlockedGemm& p);

// Whether threads that read the same lines of an operand pack them together instead of each for itself.
bool shares(const BlockedGemm& p, Side side, Grid grid);

// How each thread's rectangle is cut for parallel_balanced: along the side where less is read again for each piece,
// provided the operand of that side needs no packing.
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
  // The i-th piece: half of the span, a quarter, and so on; the last is as long as the one before. Short pieces at the
  // end are traded between threads, long ones are run in one go: eight equal pieces cost up to 10 %.
  Span piece(int64_t i, int64_t count) const {
    const int64_t from = end - ((end - begin) >> i);
    return {from, i + 1 == count ? end : end - ((end - begin) >> (i + 1))};
  }
};

}  // namespace deft::cpu::detail
