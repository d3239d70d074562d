#include "kernels/cpu/gemm/gemm_partition.h"

#include <algorithm>

#include "kernels/cpu/gemm/pack.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {

namespace {

// A thread packs for itself at most kOwnBytes, multiplied with fewer than kManyLines lines, where packing together
// would cost each thread at least half as much or save less than kLessBytes.
constexpr int64_t kOwnBytes = 2 << 20, kLessBytes = 40 << 10, kManyLines = 1024;
constexpr double kPieceWork = 512 * 1024;            // multiply-adds that pay for a piece that threads may trade,
constexpr int64_t kPieceTiles = 2, kMostPieces = 4;  // tiles across a piece, pieces per thread

double work_of(const BlockedGemm& p) {
  return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}
int usable_threads() { return in_parallel_region() ? 1 : num_threads(); }

// The cost of what threads read beyond their own values of c, as multiply-adds per step of k: moving a value costs
// about 32, and more from the core that packed it. 128 x 768 x 768 of bytes on 16 threads with AMX takes 47 us with a
// grid of 2 x 8 threads that share b, 35 with 1 x 16, though some of those get twice as much.
double cost_of_moves(const BlockedGemm& p, Grid grid, double tall, double wide) {
  // Packed rows of b come in whole cache lines.
  if (p.b && p.tile->begin) wide = std::max(wide, 64.0 / static_cast<double>(size_of(p.tile->panel)));
  double cost = 32 * (tall + wide);
  if (shares(p, Side::b, grid)) {
    cost += 48 * wide;
  } else if (p.b && p.tile->begin) {
    cost += 16 * wide;
  }
  if (p.tile->begin && shares(p, Side::a, grid)) cost += 48 * tall;
  return cost;
}

}  // namespace

const StridedMatrix* rows_in_place(const BlockedGemm& p) {
  const StridedMatrix* a = p.tile->run_rows && p.a && !p.packed_a ? p.a->strided() : nullptr;
  if (!a || a->step != 1 || p.k % p.tile->k_step != 0) return nullptr;
  if (p.n >= p.tile->pack_columns && work_of(p) >= p.tile->pack_work * usable_threads()) return nullptr;
  switch (p.tile->panel) {
    case Panel::f32:
      return a->dtype == DType::f32 ? a : nullptr;
    case Panel::f16:
      return a->dtype == DType::f16 ? a : nullptr;
    case Panel::bf16:
      return a->dtype == DType::bf16 ? a : nullptr;
    case Panel::s8:
      return a->dtype == DType::i8 ? a : nullptr;
    case Panel::u8s8:
      return a->dtype == DType::u8 ? a : nullptr;
    default:
      return nullptr;
  }
}

// With AMX a core packs for itself in less time than it takes to wait for others and to read what they wrote. Shared
// and separate packing, bf16: 784 x 256 x 512 on 2 threads 0.23 and 0.13 ms, on 16 0.085 and 0.068, 128 x 768 x 768 on
// 16 0.058 and 0.049. But 1024 x 768 x 768 on 16, where each would pack three times as much, 0.28 and 0.32.
bool shares(const BlockedGemm& p, Side side, Grid grid) {
  const bool left = side == Side::a;
  const PanelSource* from = left ? p.a : p.b;
  if (!from || (left ? grid.cols : grid.rows) < 2 || (left && rows_in_place(p))) return false;
  const GemmTile& t = *p.tile;
  const int64_t multiplied = left ? p.n / grid.cols : p.m / grid.rows;  // lines of the other operand
  if (!t.begin || !from->strided() || multiplied >= kManyLines) return true;
  const int64_t width = t.width(side), panels = ((left ? p.m : p.n) + width - 1) / width;
  const int64_t parts = left ? grid.rows : grid.cols, threads = grid.rows * grid.cols;
  const int64_t own = (panels + parts - 1) / parts, together = (panels + threads - 1) / threads;
  const int64_t bytes = packed_bytes(t, side, width, p.k);
  return own * bytes > kOwnBytes || (own - 2 * together) * bytes > kLessBytes;
}

Grid choose_grid(const BlockedGemm& p) {
  const GemmTile& t = *p.tile;
  const int64_t row_tiles = (p.m + t.mr - 1) / t.mr, col_tiles = (p.n + t.nr - 1) / t.nr;
  const int64_t threads =
      std::min<int64_t>(usable_threads(), static_cast<int64_t>(std::min(work_of(p) / kThreadWork, 1024.0)) + 1);
  Grid best{1, 1};
  double best_cost = 1e300;
  for (int64_t r = 1; r <= std::min(threads, row_tiles); ++r) {
    const int64_t c = std::min(threads / r, col_tiles);
    const double tall = static_cast<double>((row_tiles + r - 1) / r * t.mr);
    const double wide = static_cast<double>((col_tiles + c - 1) / c * t.nr);
    const double cost = tall * wide + cost_of_moves(p, {r, c}, tall, wide);
    if (cost < best_cost) best_cost = cost, best = {r, c};
  }
  return best;
}

Pieces choose_pieces(const BlockedGemm& p, Grid grid) {
  const int64_t threads = grid.rows * grid.cols, tall = p.m / grid.rows, wide = p.n / grid.cols;
  if (threads == 1) return {};
  const bool rows = p.packed_b, columns = p.packed_a || rows_in_place(p);
  const bool of_rows = rows && (!columns || tall >= wide);
  if (!of_rows && !columns) return {};
  const int64_t tiles = of_rows ? tall / p.tile->mr : wide / p.tile->nr;
  const double work = static_cast<double>(tall) * static_cast<double>(wide) * static_cast<double>(p.k);
  Pieces pieces{1, of_rows};
  while (pieces.count < kMostPieces && tiles >> pieces.count >= kPieceTiles &&
         work / static_cast<double>(1 << pieces.count) >= kPieceWork) {
    ++pieces.count;
  }
  return pieces;
}

}  // namespace deft::cpu::detail
