// Convolutions of several taps on AMX tiles, whose rows are output positions and which read padded rows of x
// (padded_lines.h) in place. The padded rows are contiguous, so a tile may run over the end of one; results for the
// padding between two are dropped. Where channels are not whole steps of k, the taps of a kernel row are joined, or
// pixels padded with zeros, in the copy and in the weight. Sums are those of run_blocked_gemm().
#include <cstring>

#include "kernels/cpu/conv/line_tiles.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/gemm/tile_series.h"
#include "kernels/cpu/x86/split_tiles.h"
#include "runtime/cpu_isa.h"
#include "runtime/numerics.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {

#if defined(__x86_64__)

extern "C" {
#define DEFT_TILES(type)                                    \
  void deft_amx_##type##_lines_32x32(const ConvTile* tile); \
  void deft_amx_##type##_lines_32x16(const ConvTile* tile); \
  void deft_amx_##type##_lines_16x32(const ConvTile* tile); \
  void deft_amx_##type##_lines_16x16(const ConvTile* tile)
DEFT_TILES(bf16);
DEFT_TILES(s8);
DEFT_TILES(u8s8);
DEFT_TILES(bf16_stream);
DEFT_TILES(f16_stream);
DEFT_TILES(s8_stream);
DEFT_TILES(u8s8_stream);
DEFT_TILES(split);
DEFT_TILES(rough);
#undef DEFT_TILES
}

RunConvTile amx_conv_tile(Panel panel, bool tall, bool wide) {
#define DEFT_TILES(type)                                                                         \
  {                                                                                              \
    deft_amx_##type##_lines_16x16, deft_amx_##type##_lines_16x32, deft_amx_##type##_lines_32x16, \
        deft_amx_##type##_lines_32x32                                                            \
  }
  static constexpr RunConvTile kBf16[][4] = {DEFT_TILES(bf16), DEFT_TILES(bf16_stream)};
  static constexpr RunConvTile kSigned[][4] = {DEFT_TILES(s8), DEFT_TILES(s8_stream)};
  static constexpr RunConvTile kUnsigned[][4] = {DEFT_TILES(u8s8), DEFT_TILES(u8s8_stream)};
  static constexpr RunConvTile kF16[] = DEFT_TILES(f16_stream);
  static constexpr RunConvTile kSplit[][4] = {DEFT_TILES(split), DEFT_TILES(rough)};
#undef DEFT_TILES
  const size_t form = 2 * tall + wide;
  const bool streams = cpu_has("amx_fp16");
  if (panel == Panel::bf16) return kBf16[streams][form];
  if (panel == Panel::f16) return kF16[form];
  if (panel == Panel::split) return kSplit[allow_tf32()][form];
  return panel == Panel::s8 ? kSigned[streams][form] : kUnsigned[streams][form];
}

namespace {

constexpr int64_t kRows = 32, kColumns = 32, kHalf = 16;  // of a tile; half of either
constexpr int64_t kLine = 64;                             // bytes: a step of k, a cache line;
constexpr int64_t kSplitStep = 3 * kLine;                 // a step of split values
constexpr int64_t kPositions = 512;                       // of a copy, at most
constexpr int64_t kNearBytes = 768 << 10;                 // of b that stays in L2,
constexpr int64_t kCopyBytes = 512 << 10;                 // and of copies that stream by
constexpr int64_t kMostBands = 8;
// A b in memory is read sequentially by run_blocked_gemm(), which is better for few positions (512 channels on 7 x 7:
// 0.36 ms, here 0.46).
constexpr int64_t kFarBytes = 2 << 20, kManyPositions = 256;
constexpr int64_t kGrain = 512 * 1024;  // multiply-adds that pay for a thread
constexpr int64_t kFewPositions = 64;   // of a thread, at least
constexpr int64_t kPartsPerThread = 4;  // where there are many rows: threads may trade parts

int64_t taps_joined(const ConvPass& s) {
  return JoinedWeight::taps_joined(*s.tile, s.x_dtype, s.source.channels, s.phase.window.taps);
}
TapLayout form_of_taps(const ConvPass& s) {
  const int64_t joined = taps_joined(s);
  return joined == 0 ? TapLayout::whole : joined == 1 ? TapLayout::padded : TapLayout::joined;
}

PaddedForm form_of(const ConvPass& s) {
  PaddedForm form{.zero = s.x_zero, .apart = true, .positions = kPositions};
  const TapLayout taps = form_of_taps(s);
  if (taps == TapLayout::joined) form.joined = s.tile->k_step * static_cast<int64_t>(size_of(s.x_dtype));
  form.split = s.tile->panel == Panel::split;
  if (taps == TapLayout::padded && !form.split) form.gap = s.tile->padded_k(s.source.channels) - s.source.channels;
  return form;
}

class AmxPass {
 public:
  AmxPass(const ConvPass& s, const BlockedGemm& p, const PackedMatrix& b)
      : p_(p),
        b_(b),
        tile_(*s.tile),
        width_(s.phase.window.count[2]),
        padded_(s.phase.window, s.source, s.x_dtype, s.x, form_of(s)),
        blocks_(s, padded_, form_of_taps(s)),
        split_(tile_.panel == Panel::split),
        zeros_(form_of_taps(s) != TapLayout::whole && !split_),
        copy_size_(padded_.size()) {
    const int64_t panel_bytes = kColumns * tile_.padded_k(p.k) * size_of(tile_.panel);
    chunk_ = std::max<int64_t>(1, kNearBytes / panel_bytes) * kColumns;
    most_bands_ = p.n <= chunk_ ? 1 : std::clamp<int64_t>(kCopyBytes / copy_size_, 1, kMostBands);
  }

  // Output rows [row0, row1) by columns [j0, j1); j0 begins a panel.
  void run(int64_t row0, int64_t row1, int64_t j0, int64_t j1) const {
    // Room for tiles that read beyond the last position.
    const Workspace<char> copies(most_bands_ * copy_size_ + kRows * padded_.step() + kSplitStep);
    if (zeros_) std::memset(copies.data(), 0, static_cast<size_t>(most_bands_ * copy_size_));
    const Workspace<ColumnTerms> terms((j1 - j0 + kColumns - 1) / kColumns);
    for (int64_t j = j0; j < j1; j += kColumns) {
      const int32_t* sums = b_.sums();
      column_terms(p_, j, std::min(kColumns, j1 - j), sums ? sums + j : nullptr, terms[(j - j0) / kColumns]);
    }
    const TileSeries series(tile_);
    Band bands[kMostBands];
    for (int64_t line = row0; line < row1;) {
      int64_t count = 0;
      for (; count < most_bands_ && line < row1; ++count) {
        bands[count] = {line, padded_.count(line, row1), copies.data() + count * copy_size_};
        padded_.copy(line, bands[count].lines, bands[count].copy);
        line += bands[count].lines;
      }
      for (int64_t j = j0; j < j1; j += chunk_) {
        for (int64_t i = 0; i < count; ++i) {
          run_band(bands[i], j, std::min(j1, j + chunk_), terms.data() + (j - j0) / kColumns);
        }
      }
    }
  }

 private:
  // Output rows of one image.
  struct Band {
    int64_t line, lines;
    char* copy;
  };
  // The rows of a tile that are stored, contiguous in y: the first is tile row `row` and output position i0.
  struct Run {
    int64_t row, count, i0;
  };

  void run_band(const Band& band, int64_t j0, int64_t j1, const ColumnTerms* terms) const {
    const int64_t end = (band.lines - 1) * padded_.pixels() + width_;
    for (int64_t q = 0; q < end; q += kRows) run_rows(band, q, std::min(kRows, end - q), j0, j1, terms);
  }

  void run_rows(const Band& band, int64_t q, int64_t count, int64_t j0, int64_t j1, const ColumnTerms* terms) const {
    alignas(64) float sums[kRows * kColumns + 32];  // and room to read a little beyond
    int64_t offsets[kRows];
    Run runs[kRows];
    const int64_t run_count = find_runs(band, q, count, runs);
    for (int64_t i = 0; i < run_count; ++i) find_offsets(runs[i], offsets + runs[i].row);
    for (int64_t j = j0; j < j1; j += kColumns, ++terms) {
      const auto columns = static_cast<int>(std::min(kColumns, j1 - j));
      const RunConvTile run_tile = amx_conv_tile(tile_.panel, count > kHalf, columns > kHalf);
      for (const ConvBlocks::Block& block : blocks_) {
        const ConvTile tile = tile_of(band, q, j, block, sums);
        run_tile(&tile);
      }
      const auto rows = static_cast<int>(count);
      if (split_ && has_nan(sums, rows, columns > kHalf)) find_again(band, q, rows, j, sums);
      for (int64_t i = 0; i < run_count; ++i) {
        const Run& r = runs[i];
        store_tile(p_,
                   {r.i0, j, static_cast<int>(r.count), columns, kColumns, sums + r.row * kColumns, offsets + r.row},
                   *terms);
      }
    }
  }
  ConvTile tile_of(const Band& band, int64_t q, int64_t j, const ConvBlocks::Block& block, float* sums) const {
    return {band.copy + q * padded_.step() + block.at,
            b_.panels(j, block.k),
            sums,
            kColumns * static_cast<int64_t>(sizeof(float)),
            block.k > 0,
            padded_.step(),
            blocks_.pieces(block),
            block.count,
            split_ ? kSplitStep : kLine};
  }
  void find_again(const Band& band, int64_t q, int count, int64_t j, float* sums) const {
    alignas(64) float whole[kRows * kColumns] = {};
    for (const ConvBlocks::Block& block : blocks_) add_whole_steps(tile_of(band, q, j, block, sums), count, whole);
    replace_nan(whole, count, sums);
  }
  int64_t find_runs(const Band& band, int64_t q, int64_t count, Run* runs) const {
    int64_t found = 0;
    const int64_t pitch = padded_.pixels();
    for (int64_t i = q; i < q + count;) {
      const int64_t line = i / pitch, x = i % pitch, end = std::min(q + count, (line + 1) * pitch);
      const int64_t live = std::min(end - i, width_ - x);
      if (live > 0) runs[found++] = {i - q, live, (band.line + line) * width_ + x};
      i = end;
    }
    return found;
  }
  void find_offsets(const Run& r, int64_t* offsets) const {
    if (p_.row_offsets) return (*p_.row_offsets)(r.i0, r.count, offsets);
    for (int64_t i = 0; i < r.count; ++i) offsets[i] = (r.i0 + i) * p_.c_row;
  }

  const BlockedGemm& p_;
  const PackedMatrix& b_;
  const GemmTile& tile_;
  int64_t width_;
  PaddedRows padded_;
  ConvBlocks blocks_;
  bool split_;              // whether values are split
  bool zeros_;              // whether copies pad pixels with zeros
  int64_t copy_size_;       // of a band
  int64_t chunk_;           // columns at a time
  int64_t most_bands_ = 1;  // at a time
};

std::unique_ptr<PackedMatrix> pack_b(const BlockedGemm& p, const PanelSource& b) {
  return std::make_unique<PackedMatrix>(*p.tile, Side::b, b, p.n, p.k, p.epilogue.a_zero != 0);
}

struct Grid {
  int64_t lines, columns;
};
Grid choose_grid(const ConvPass& s, const BlockedGemm& p) {
  const double work = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const int64_t threads =
      in_parallel_region() ? 1 : std::min<int64_t>(num_threads(), static_cast<int64_t>(work / kGrain) + 1);
  const Window& w = s.phase.window;
  const int64_t lines = s.n * w.count[0] * w.count[1], panels = (p.n + kColumns - 1) / kColumns;
  if (threads == 1) return {1, 1};
  if (p.m >= 2 * kPartsPerThread * threads * kFewPositions) return {std::min(lines, kPartsPerThread * threads), 1};
  Grid best{1, 1};
  int64_t best_cost = INT64_MAX;
  for (int64_t r = 1; r <= std::min(threads, std::max<int64_t>(1, p.m / kFewPositions)); ++r) {
    const int64_t c = std::min(threads / r, panels);
    const int64_t cost = (lines + r - 1) / r * w.count[2] * ((panels + c - 1) / c * kColumns + kColumns);
    if (cost < best_cost) best_cost = cost, best = {std::min(r, lines), c};
  }
  return best;
}

}  // namespace

bool has_amx(Panel panel) { return !gemm_tiles(panel).empty() && gemm_tiles(panel)[0].begin; }

bool amx_pays(const ConvPass& s) {
  const Window& w = s.phase.window;
  if (!s.tile->begin || !reads_copies(*s.tile, s.x_dtype) || s.source.channels == 0) return false;
  if (w.tap_count() < 2 || w.taps[0] != 1) return false;
  if (taps_joined(s) > 0) return true;  // the weight is packed for joined taps
  const int64_t b_bytes = s.out_channels * s.source.channels * w.tap_count() * size_of(s.tile->panel);
  if (b_bytes > kFarBytes && s.n * w.positions() < kManyPositions) return false;
  return PaddedRows(w, s.source, s.x_dtype, s.x, form_of(s)).near();
}

void run_amx(const ConvPass& s, const BlockedGemm& problem) {
  const Window& w = s.phase.window;
  BlockedGemm p = problem;
  std::unique_ptr<PackedMatrix> own;
  if (const int64_t joined = taps_joined(s); joined > 0) {
    const int64_t run = joined * s.source.channels;
    p.k = p.k / run * p.tile->padded_k(run);
    if (!p.packed_b) own = pack_b(p, JoinedWeight(*p.b, *p.tile, run));
  } else if (!p.packed_b) {
    own = pack_b(p, *p.b);
  }
  const AmxPass pass(s, p, own ? *own : *p.packed_b);
  const Grid grid = choose_grid(s, p);
  const int64_t lines = s.n * w.count[0] * w.count[1], panels = (p.n + kColumns - 1) / kColumns;
  parallel_balanced(0, grid.lines * grid.columns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = i / grid.columns, c = i % grid.columns;
      pass.run(lines * r / grid.lines, lines * (r + 1) / grid.lines, panels * c / grid.columns * kColumns,
               std::min(p.n, panels * (c + 1) / grid.columns * kColumns));
    }
  });
}

#else

bool has_amx(Panel) { return false; }
bool amx_pays(const ConvPass&) { return false; }
void run_amx(const ConvPass&, const BlockedGemm&) {}

#endif

}  // namespace deft::cpu::detail
