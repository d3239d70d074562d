#include "kernels/cpu/column_tiles.h"

#include <algorithm>
#include <utility>

#include "runtime/cpu_isa.h"

#if defined(__x86_64__)
extern "C" {
void deft_avx512_f32_columns_12x32(const deft::cpu::ColumnsTile* tile);
void deft_avx512_f32_columns_8x32(const deft::cpu::ColumnsTile* tile);
}
#endif

namespace deft::cpu {

namespace {

constexpr int64_t kTall = 12, kLow = 8;  // rows of the two tiles
constexpr int64_t kBytes = sizeof(float);

void run_tile(const ColumnsTile& tile, bool tall) {
#if defined(__x86_64__)
  tall ? deft_avx512_f32_columns_12x32(&tile) : deft_avx512_f32_columns_8x32(&tile);
#else
  (void)tile, (void)tall;
#endif
}

// Which tile brings which lines near: as many lines as it has steps, tiles evenly spread. In the order of memory: by
// columns, as tiles read them, they come hardly sooner than without (64 x 256 of 25088 positions: 8.8 ms without, 8.3
// and 6.7 with).
class Pieces {
 public:
  Pieces(const ColumnsBlock& block, int64_t tiles)
      : block_(block), steps_(block.width * block.lines), tiles_(tiles), first_(pieces(0)) {
    all_ = std::min(first_ + pieces(1), tiles);
  }
  void set(int64_t tile, ColumnsTile& out) const {
    out.later = out.a, out.later_step = out.later_skip = 0;
    const int64_t piece = (tile * all_ + tiles_ - 1) / tiles_;
    if (piece >= all_ || piece * tiles_ / all_ != tile) return;
    const Later& later = block_.later[piece < first_ ? 0 : 1];
    const int64_t values = steps_ * ColumnTiles::kLine + block_.lines * later.skip;
    out.later = later.first + (piece < first_ ? piece : piece - first_) * values;
    out.later_step = ColumnTiles::kLine * kBytes, out.later_skip = later.skip * kBytes;
  }

 private:
  int64_t pieces(int i) const { return (block_.later[i].lines + steps_ - 1) / steps_; }
  const ColumnsBlock& block_;
  int64_t steps_, tiles_, first_, all_;
};

// m as tiles of twelve rows and at most two of eight.
int64_t tall_tiles(int64_t m) { return m % kTall == 4 ? m / kTall - 1 : m / kTall; }

}  // namespace

bool ColumnTiles::fit(int64_t m, int64_t n) {
  return cpu_has("avx512f") && m % 4 == 0 && m >= kLow && n % kWide == 0 && n > 0;
}

ColumnTiles::ColumnTiles(int64_t m, int64_t n, std::vector<int64_t> taps, float* c)
    : m_(m),
      n_(n),
      tall_(tall_tiles(m)),
      rows_(tall_ + (m - tall_ * kTall) / kLow),
      panels_(n / kWide),
      taps_(std::move(taps)),
      c_(c) {}

void ColumnTiles::run(const ColumnsBlock& block, int64_t begin, int64_t end, bool add) const {
  const Pieces pieces(block, end - begin);
  const int64_t c_row = static_cast<int64_t>(taps_.size()) * n_;
  ColumnsTile tile{.c_row = c_row * kBytes,
                   .add = add,
                   .width = block.width,
                   .lines = block.lines,
                   .a_row = block.a_row * kBytes,
                   .b_row = block.b_row * kBytes,
                   .b_skip = block.b_skip * kBytes};
  for (int64_t t = begin; t < end; ++t) {
    const int64_t r = t % rows_, j = t / rows_ % panels_ * kWide, tap = t / rows_ / panels_;
    const int64_t i = r < tall_ ? r * kTall : tall_ * kTall + (r - tall_) * kLow;
    tile.a = block.a + i;
    tile.b = block.b + taps_[static_cast<size_t>(tap)] + j;
    tile.c = c_ + i * c_row + tap * n_ + j;
    pieces.set(t - begin, tile);
    run_tile(tile, r < tall_);
  }
}

}  // namespace deft::cpu
