#include "kernels/cpu/gemm/gemm_tn_tiles.h"

#include <algorithm>
#include <utility>

#include "runtime/cpu_isa.h"

#if defined(__x86_64__)
extern "C" {
void deft_avx512_f32_columns_12x32(const deft::cpu::GemmTnTile* tile);
void deft_avx512_f32_columns_10x32(const deft::cpu::GemmTnTile* tile);
void deft_avx512_f32_columns_8x32(const deft::cpu::GemmTnTile* tile);
}
#endif

namespace deft::cpu {

namespace {

constexpr int64_t kBytes = sizeof(float);

void run_tile(const GemmTnTile& tile, int64_t rows) {
#if defined(__x86_64__)
  const auto run = rows == 12   ? deft_avx512_f32_columns_12x32
                   : rows == 10 ? deft_avx512_f32_columns_10x32
                                : deft_avx512_f32_columns_8x32;
  run(&tile);
#else
  (void)tile, (void)rows;
#endif
}

// Which tile prefetches which cache lines: as many as it has steps, tiles evenly spread, in memory order. In the order
// of columns, as tiles read them, prefetching gains little (64 x 256 of 25088 positions: 8.8 ms without, 8.3 so and 6.7
// in memory order).
class Pieces {
 public:
  Pieces(const GemmTnBlock& block, int64_t tiles)
      : block_(block), steps_(block.width * block.lines), tiles_(tiles), first_(pieces(0)) {
    all_ = std::min(first_ + pieces(1), tiles);
  }
  void set(int64_t tile, GemmTnTile& out) const {
    out.later = out.a, out.later_step = out.later_skip = 0;
    const int64_t piece = (tile * all_ + tiles_ - 1) / tiles_;
    if (piece >= all_ || piece * tiles_ / all_ != tile) return;
    const Later& later = block_.later[piece < first_ ? 0 : 1];
    const int64_t values = steps_ * GemmTnTiles::kLine + block_.lines * later.skip;
    out.later = later.first + (piece < first_ ? piece : piece - first_) * values;
    out.later_step = GemmTnTiles::kLine * kBytes, out.later_skip = later.skip * kBytes;
  }

 private:
  int64_t pieces(int i) const { return (block_.later[i].lines + steps_ - 1) / steps_; }
  const GemmTnBlock& block_;
  int64_t steps_, tiles_, first_, all_;
};

}  // namespace

TileHeights::TileHeights(int64_t m) : count_((m + 11) / 12) {
  const int64_t more = 12 * count_ - m, eights = std::min(count_, more / 4);
  tens_ = more % 4 >= 2 && eights < count_ ? 1 : 0;
  tall_ = count_ - eights - tens_;
}

bool GemmTnTiles::available() { return cpu_has("avx512f"); }

GemmTnTiles::GemmTnTiles(int64_t m, int64_t n, std::vector<GemmTnPart> parts, float* c, int64_t c_row)
    : heights_(m), panels_(n / kWide), parts_(std::move(parts)), c_(c), c_row_(c_row) {}

void GemmTnTiles::run(const GemmTnBlock& block, int64_t begin, int64_t end, bool add) const {
  const Pieces pieces(block, end - begin);
  GemmTnTile tile{.c_row = c_row_ * kBytes,
                  .add = add,
                  .width = block.width,
                  .lines = block.lines,
                  .a_row = block.a.row * kBytes,
                  .b_row = block.b.row * kBytes,
                  .a_skip = block.a.skip * kBytes,
                  .b_skip = block.b.skip * kBytes};
  for (int64_t t = begin; t < end; ++t) {
    const int64_t r = t % rows(), i = heights_.first(r), j = t / rows() % panels_ * kWide;
    const GemmTnPart& part = parts_[static_cast<size_t>(t / rows() / panels_)];
    tile.a = block.a.first + part.a + i;
    tile.b = block.b.first + part.b + j;
    tile.c = c_ + part.c + i * c_row_ + j;
    pieces.set(t - begin, tile);
    run_tile(tile, heights_[r]);
  }
}

}  // namespace deft::cpu
