// Convolutions of several taps whose positions are rows of tiles, read from copied lines of x (copied_lines.h): for few
// output channels, where packing takes a good part of the time. Each value is one chain over k, as by run_product().
// (Xeon, 3 x 3 taps, 64 channels of 56 x 56 positions: 105 GFLOP/s packed, 122 so; 128 of 28 x 28: 112 and 122. With
// 256 of 14 x 14 it would be 0.9 of the speed.)
#include "kernels/cpu/column_tiles.h"
#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/copied_lines.h"
#include "kernels/cpu/epilogue.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kMostRows = 12, kMostColumns = 64;       // of a tile
constexpr int64_t kFewChannels = 128, kFewPositions = 14;  // out, at most; of a line, at least
constexpr int64_t kGrain = 64 * 1024;                      // multiply-adds that pay for a lane

// The tiles that read b as `tile` does, and rows in place.
const GemmTile* tile_of_rows(const GemmTile& tile, int64_t rows) {
  for (const GemmTile& t : gemm_tiles(tile.panel)) {
    if (t.mr == rows && t.nr == tile.nr && t.run_rows && t.block_k == tile.block_k) return &t;
  }
  return nullptr;
}

// Positions of a line that a tile makes; `done`: how many of its first ones the tile before has made.
struct Row {
  int64_t x;
  const GemmTile* tile;
  int done = 0;
};
// Empty: there are no such tiles.
std::vector<Row> rows_of(const GemmTile& tile, int64_t width) {
  std::vector<Row> rows;
  int64_t end = 0;
  for (int64_t height : tile_heights(width)) {
    const GemmTile* t = tile_of_rows(tile, height);
    end += height;
    const int64_t beyond = std::max<int64_t>(0, end - width);
    if (!t || beyond > end - height) return {};
    rows.push_back({end - height - beyond, t, static_cast<int>(beyond)});
  }
  return rows;
}

// Values of k that follow each other in the copy and in a panel of b.
struct Piece {
  int64_t k, count, at;  // at: from the first pixel of the position on
};
std::vector<Piece> pieces_of(const ConvPass& s, const CopiedLines& lines, int64_t block_k) {
  const Window& w = s.phase.window;
  const int64_t chunk = s.chunk > 0 ? s.chunk : s.source.channels, taps = w.tap_count();
  std::vector<Piece> pieces;
  for (int64_t run = 0; run < s.source.channels / chunk * taps; ++run) {
    const int64_t tap = run % taps, at = lines.tap(tap / w.taps[2], tap % w.taps[2]) + run / taps * chunk;
    for (int64_t i = 0; i < chunk;) {
      const int64_t k = run * chunk + i, count = std::min(chunk - i, block_k - k % block_k);
      Piece* last = pieces.empty() || k % block_k == 0 ? nullptr : &pieces.back();
      if (last && last->at + last->count == at + i) {
        last->count += count;
      } else {
        pieces.push_back({k, count, at + i});
      }
      i += count;
    }
  }
  return pieces;
}

class LinesPass {
 public:
  LinesPass(const ConvPass& s, const Product& p, const PackedMatrix& b)
      : s_(s),
        p_(p),
        b_(b),
        lines_(s.phase.window, s.source.channels, 0, s.x),
        rows_(rows_of(*p.tile, s.phase.window.count[2])),
        pieces_(pieces_of(s, lines_, p.tile->block_k)) {}

  void run(int64_t line0, int64_t line1) const {
    const Workspace<float> copy(lines_.size(lines_.most()));
    for (int64_t line = line0, count = 0; line < line1; line += count) {
      count = lines_.count(line, line1);
      lines_.copy(line, count, copy.data());
      for (int64_t j = 0; j < p_.n; j += p_.tile->nr) {
        const int columns = static_cast<int>(std::min<int64_t>(p_.tile->nr, p_.n - j));
        ColumnTerms terms;
        column_terms(p_, j, columns, nullptr, terms);
        for (int64_t i = 0; i < count; ++i) run_line(line + i, copy.data() + i * lines_.line(), j, columns, terms);
      }
    }
  }

 private:
  void run_line(int64_t line, const float* copy, int64_t j, int columns, const ColumnTerms& terms) const {
    const int64_t width = s_.phase.window.count[2], nr = p_.tile->nr, block_k = p_.tile->block_k;
    alignas(64) float sums[kMostRows * kMostColumns + 32];
    int64_t offsets[kMostRows];
    for (const Row& row : rows_) {
      const GemmTile& t = *row.tile;
      for (const Piece& piece : pieces_) {
        const float* panel = static_cast<const float*>(b_.panels(j, piece.k / block_k * block_k));
        const float* b = panel + piece.k % block_k * nr;
        t.run_rows(piece.count, copy + row.x * lines_.step() + piece.at, b, sums, nr, piece.k > 0,
                   lines_.step() * static_cast<int64_t>(sizeof(float)), 0, b + piece.count * nr);
      }
      const int64_t i0 = line * width + row.x + row.done;
      const int rows = t.mr - row.done;
      for (int i = 0; i < rows; ++i) offsets[i] = (i0 + i) * p_.c_row;
      if (p_.row_offsets) (*p_.row_offsets)(i0, rows, offsets);
      store_tile(p_, {i0, j, rows, columns, static_cast<int>(nr), sums + row.done * nr, offsets}, terms);
    }
  }

  const ConvPass& s_;
  const Product& p_;
  const PackedMatrix& b_;
  CopiedLines lines_;
  std::vector<Row> rows_;
  std::vector<Piece> pieces_;
};

}  // namespace

bool lines_pay(const ConvPass& s) {
  const Window& w = s.phase.window;
  if (s.x_dtype != DType::f32 || s.y_dtype != DType::f32 || s.source.channels != s.source.all_channels) return false;
  if (w.tap_count() < 2 || w.taps[0] != 1 || w.size[0] != 1 || w.count[0] != 1) return false;
  if (s.tile->panel != Panel::f32 || s.tile->k_step != 1 || !s.tile->run_rows) return false;
  if (s.out_channels > kFewChannels || w.count[2] < kFewPositions) return false;
  return CopiedLines(w, s.source.channels, 0, s.x).near() && !rows_of(*s.tile, w.count[2]).empty();
}

void run_lines(const ConvPass& s, const Product& p) {
  std::unique_ptr<PackedMatrix> own;
  if (!p.packed_b) own = std::make_unique<PackedMatrix>(*p.tile, Side::b, *p.b, p.n, p.k);
  const LinesPass pass(s, p, own ? *own : *p.packed_b);
  const int64_t lines = s.n * s.phase.window.count[1];
  parallel_balanced(0, lines, std::max<int64_t>(1, kGrain * lines / (p.m * p.n * p.k)),
                    [&](int64_t begin, int64_t end) { pass.run(begin, end); });
}

}  // namespace deft::cpu::detail
