// Convolutions of several taps on f32 tiles whose rows are positions of padded rows of x (padded_lines.h): for few
// output channels, where packing takes much of the time. Each value is one chain over k, as by run_blocked_gemm().
// (Xeon, 3 x 3 taps, 64 channels of 56 x 56 positions: 105 GFLOP/s packed, 122 here; 128 of 28 x 28: 112 and 122. 256
// of 14 x 14 would run at 0.9 of the packed speed.)
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/conv/line_tiles.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/gemm_tn_tiles.h"
#include "runtime/cpu_isa.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kMostRows = 12, kWide = 32;              // of a tile
constexpr int64_t kFewChannels = 128, kFewPositions = 14;  // output channels, at most; positions of a row, at least
constexpr int64_t kGrain = 64 * 1024;                      // multiply-adds that pay for a thread
constexpr int64_t kBytes = sizeof(float);

#if defined(__x86_64__)
extern "C" {
void deft_avx512_f32_lines_12x32(const ConvTile* tile);
void deft_avx512_f32_lines_10x32(const ConvTile* tile);
void deft_avx512_f32_lines_8x32(const ConvTile* tile);
}
#endif

void run_tile(const ConvTile& tile, int64_t rows) {
#if defined(__x86_64__)
  const auto run = rows == 12   ? deft_avx512_f32_lines_12x32
                   : rows == 10 ? deft_avx512_f32_lines_10x32
                                : deft_avx512_f32_lines_8x32;
  run(&tile);
#else
  (void)tile, (void)rows;
#endif
}

class PaddedRowsPass {
 public:
  PaddedRowsPass(const ConvPass& s, const BlockedGemm& p, const PackedMatrix& b)
      : s_(s),
        p_(p),
        b_(b),
        padded_(s.phase.window, s.source, s.x_dtype, s.x),
        heights_(s.phase.window.count[2]),
        blocks_(s, padded_) {}

  void run(int64_t row0, int64_t row1) const {
    const Workspace<char> copy(padded_.size());
    for (int64_t row = row0, count = 0; row < row1; row += count) {
      count = padded_.count(row, row1);
      padded_.copy(row, count, copy.data());
      for (int64_t j = 0; j < p_.n; j += kWide) {
        ColumnTerms terms;
        column_terms(p_, j, std::min(kWide, p_.n - j), nullptr, terms);
        for (int64_t i = 0; i < count; ++i) run_row(row + i, copy.data() + i * padded_.row_step(), j, terms);
      }
    }
  }

 private:
  void run_row(int64_t row, const char* copy, int64_t j, const ColumnTerms& terms) const {
    alignas(64) float sums[kMostRows * kWide + 32];  // and room to read a little beyond
    int64_t offsets[kMostRows];
    const int64_t width = s_.phase.window.count[2];
    for (int64_t r = 0; r < heights_.count(); ++r) {
      // A tile that would run beyond the row begins earlier; `done` of its rows are stored already.
      const int64_t height = heights_[r], x = std::min(heights_.first(r), width - height);
      const int64_t done = heights_.first(r) - x, rows = height - done, i0 = row * width + x + done;
      for (const ConvBlocks::Block& block : blocks_) {
        const char* a = copy + x * padded_.step() + block.at;
        run_tile({a, b_.panels(j, block.k), sums, kWide * kBytes, block.k > 0, padded_.step(), blocks_.pieces(block),
                  block.count},
                 height);
      }
      for (int64_t i = 0; i < rows; ++i) offsets[i] = (i0 + i) * p_.c_row;
      if (p_.row_offsets) (*p_.row_offsets)(i0, rows, offsets);
      const int columns = static_cast<int>(std::min(kWide, p_.n - j));
      store_tile(p_, {i0, j, static_cast<int>(rows), columns, kWide, sums + done * kWide, offsets}, terms);
    }
  }

  const ConvPass& s_;
  const BlockedGemm& p_;
  const PackedMatrix& b_;
  PaddedRows padded_;
  TileHeights heights_;
  ConvBlocks blocks_;
};

}  // namespace

bool padded_rows_pay(const ConvPass& s) {
  const Window& w = s.phase.window;
  if (s.x_dtype != DType::f32 || s.y_dtype != DType::f32 || s.source.channels != s.source.all_channels) return false;
  if (w.tap_count() < 2 || w.taps[0] != 1 || w.size[0] != 1 || w.count[0] != 1) return false;
  if (!cpu_has("avx512f") || s.tile->panel != Panel::f32 || s.tile->nr != kWide || s.tile->k_step != 1) return false;
  if (s.out_channels > kFewChannels || w.count[2] < kFewPositions) return false;
  return PaddedRows(w, s.source, s.x_dtype, s.x).near();
}

void run_padded_rows(const ConvPass& s, const BlockedGemm& p) {
  std::unique_ptr<PackedMatrix> own;
  if (!p.packed_b) own = std::make_unique<PackedMatrix>(*p.tile, Side::b, *p.b, p.n, p.k);
  const PaddedRowsPass pass(s, p, own ? *own : *p.packed_b);
  const int64_t lines = s.n * s.phase.window.count[1];
  parallel_balanced(0, lines, std::max<int64_t>(1, kGrain * lines / (p.m * p.n * p.k)),
                    [&](int64_t begin, int64_t end) { pass.run(begin, end); });
}

}  // namespace deft::cpu::detail
