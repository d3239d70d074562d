// Gradients of narrow weights of several taps, on tiles that read dy in place. Some rows of x at a time are copied with
// their padding, and every tap reads the copy; packing would copy them once for each tap. (Xeon, 64 channels of 56 x 56
// positions, 3 x 3 taps: 98 GFLOP/s with packing, 126 here.)
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/conv/padded_lines.h"
#include "kernels/cpu/gemm/gemm_tn_tiles.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kFewSteps = 128;            // positions at a time, at least
constexpr int64_t kGap = GemmTnTiles::kLine;  // between copied pixels, so that they spread over L1
constexpr int64_t kFewChannels = 32;
constexpr int64_t kBytes = sizeof(float);
constexpr int64_t kTasks = 2;  // for each of several threads, which may trade them

// Either all values of a tap are columns of tiles, or, with few channels, all values under a kernel row, which are
// contiguous, are rows of tiles, and columns are the channels of dy.
enum class Form : uint8_t { none, taps, rows };

Source source_of(const ConvCall& c) { return {c.c_in, c.c_in, true}; }

Form form_of(const ConvCall& c, const Window& w) {
  if (!GemmTnTiles::available() || c.dtype != DType::f32 || !c.channels_last || c.groups > 1) return Form::none;
  if (w.tap_count() == 1 || w.taps[0] != 1 || w.size[0] != 1 || w.count[0] != 1) return Form::none;
  // With few positions at a time, sums are read and written too often (256 channels, 14 x 14 positions, stride 2: 18.5
  // ms, packed 16.7).
  const PaddedRows lines(w, source_of(c), c.dtype, nullptr, {.gap = kGap});
  if (!lines.near() || lines.most() * w.count[2] < kFewSteps) return Form::none;
  const auto wide = [](int64_t n) { return n > 0 && n % GemmTnTiles::kWide == 0; };
  // Rows of 512 values lie too far apart (7 x 7 positions: 24 ms, packed 18).
  if (wide(c.c_in) && c.c_out <= 256 && GemmTnTiles::rows_of(c.c_out) == c.c_out) return Form::taps;
  const int64_t run = w.taps[2] * c.c_in;
  const bool full = 5 * run >= 4 * GemmTnTiles::rows_of(run);
  return c.c_in < kFewChannels && w.tap_step[2] == 1 && full && wide(c.c_out) ? Form::rows : Form::none;
}

class ColumnsGradient {
 public:
  // sums: [output channel][tap][input channel]; Form::rows: [row of the kernel][rows_of(tap, input channel)][output
  // channel].
  ColumnsGradient(const ConvCall& c, const Window& w, Form form, const float* dy, float* sums)
      : form_(form),
        dy_(dy),
        width_(w.count[2]),
        c_out_(c.c_out),
        padded_(w, source_of(c), c.dtype, c.x, {.gap = form == Form::taps ? kGap : 0}),
        tiles_(form == Form::taps ? c.c_out : w.taps[2] * c.c_in, form == Form::taps ? c.c_in : c.c_out, parts(c, w),
               sums, form == Form::taps ? c.c_in * w.tap_count() : c.c_out) {}
  int64_t tiles() const { return tiles_.count(); }

  // Tiles [begin, end) over rows [row0, row1) of dy.
  void run(int64_t row0, int64_t row1, int64_t begin, int64_t end) const {
    const Workspace<float> copy(padded_.size() / kBytes + GemmTnTiles::kLine);  // tiles read a little beyond
    for (int64_t row = row0, count = 0; row < row1; row += count) {
      count = padded_.count(row, row1);
      padded_.copy(row, count, copy.data());
      GemmTnBlock block{.width = width_, .lines = count};
      const GemmTnBlock::Side of_dy{dy_ + row * width_ * c_out_, c_out_};
      const GemmTnBlock::Side of_x{copy.data(), padded_.step() / kBytes,
                                   (padded_.row_step() - width_ * padded_.step()) / kBytes};
      block.a = form_ == Form::taps ? of_dy : of_x, block.b = form_ == Form::taps ? of_x : of_dy;
      const int64_t next = row + count, next_count = padded_.count(next, row1);
      block.later[0] = {dy_ + next * width_ * c_out_, next_count * width_ * c_out_ / GemmTnTiles::kLine};
      block.later[1] = read_later(next, next_count);
      tiles_.run(block, begin, end, row > row0);
    }
  }

 private:
  Later read_later(int64_t row, int64_t count) const {
    const PaddedRows::Range range = padded_.read(row, count);
    return {reinterpret_cast<const float*>(range.first), range.bytes / kBytes / GemmTnTiles::kLine};
  }
  std::vector<GemmTnPart> parts(const ConvCall& c, const Window& w) const {
    std::vector<GemmTnPart> all;
    for (int64_t y = 0; y < w.taps[1]; ++y) {
      const int64_t rows = GemmTnTiles::rows_of(w.taps[2] * c.c_in);
      if (form_ == Form::rows) all.push_back({.a = padded_.tap(y, 0) / kBytes, .c = y * rows * c.c_out});
      for (int64_t x = 0; form_ == Form::taps && x < w.taps[2]; ++x) {
        all.push_back({.b = padded_.tap(y, x) / kBytes, .c = (y * w.taps[2] + x) * c.c_in});
      }
    }
    return all;
  }

  Form form_;
  const float* dy_;
  int64_t width_, c_out_;
  PaddedRows padded_;
  GemmTnTiles tiles_;
};

// Transposes part of the sums to [output channel][tap][input channel].
void transpose_sums(const ConvCall& c, const Window& w, const float* from, float* to) {
  const int64_t run = w.taps[2] * c.c_in, rows = GemmTnTiles::rows_of(run);
  for (int64_t y = 0; y < w.taps[1]; ++y) {
    for (int64_t i = 0; i < run; ++i, from += c.c_out) {
      for (int64_t o = 0; o < c.c_out; ++o) to[(o * w.taps[1] + y) * run + i] = from[o];
    }
    from += (rows - run) * c.c_out;
  }
}

}  // namespace

bool weight_tn_pays(const ConvCall& c, const Window& w) { return form_of(c, w) != Form::none; }

void sum_weight_tn(const ConvCall& c, const Window& w, int64_t parts, const float* dy, float* sums) {
  const Form form = form_of(c, w);
  const int64_t lines = c.n * w.count[1], size = c.c_out * c.c_in * w.tap_count();
  const int64_t padded = form == Form::taps ? 0 : w.taps[1] * GemmTnTiles::rows_of(w.taps[2] * c.c_in) * c.c_out;
  const Workspace<float> own(parts * padded);
  // Parts of the positions, and with more threads than parts, of the tiles: each thread copies few rows for many tiles.
  const int64_t groups = num_threads() == 1 ? 1 : (kTasks * num_threads() + parts - 1) / parts;
  parallel_balanced(0, parts * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task / groups, group = task % groups;
      const ColumnsGradient gradient(c, w, form, dy, padded ? own.data() + part * padded : sums + part * size);
      gradient.run(part * lines / parts, (part + 1) * lines / parts, group * gradient.tiles() / groups,
                   (group + 1) * gradient.tiles() / groups);
    }
  });
  if (padded == 0) return;
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) transpose_sums(c, w, own.data() + part * padded, sums + part * size);
  });
}

}  // namespace deft::cpu::detail
