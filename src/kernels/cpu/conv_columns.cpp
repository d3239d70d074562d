// Gradient of narrow weights of several taps, in tiles that read dy where it is. Of x, some lines with their padding
// are copied at a time, and every tap reads the copy; packing would copy them once for each tap. (64 channels of 56 x
// 56 positions, 3 x 3 taps: 98 GFLOP/s with packing, 126 so.)
#include <cstring>

#include "kernels/cpu/column_tiles.h"
#include "kernels/cpu/conv_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kSteps = 224, kFewSteps = 128;  // positions at a time, at most and at least
constexpr int64_t kCopyBytes = 512 << 10;         // of lines of x
constexpr int64_t kGap = ColumnTiles::kLine;  // between copied pixels, so that they spread over the first cache level

class ColumnsGradient {
 public:
  ColumnsGradient(const ConvCall& c, const Window& w, const float* dy, float* sums)
      : w_(w),
        x_(static_cast<const float*>(c.x)),
        dy_(dy),
        c_in_(c.c_in),
        c_out_(c.c_out),
        pixel_(c.c_in + kGap),
        pixels_((w.count[2] - 1) * w.step[2] + (w.taps[2] - 1) * w.tap_step[2] + 1),
        lines_(std::min(w.count[1], lines_at_a_time(w, pixel_ * pixels_))),
        tiles_(c.c_out, c.c_in, places(), sums) {}
  int64_t tiles() const { return tiles_.count(); }
  int64_t steps() const { return lines_ * w_.count[2]; }

  // Tiles [begin, end) over the lines [line0, line1) of (n, y).
  void run(int64_t line0, int64_t line1, int64_t begin, int64_t end) const {
    const Workspace<float> copy(read_by(lines_) * pixels_ * pixel_);
    for (int64_t line = line0, count = 0; line < line1; line += count) {
      count = lines_from(line, line1);
      copy_lines(line, count, copy.data());
      ColumnsBlock block{.width = w_.count[2], .lines = count, .a = dy_ + line * w_.count[2] * c_out_, .a_row = c_out_};
      block.b = copy.data(), block.b_row = w_.step[2] * pixel_;
      block.b_skip = (w_.step[1] * pixels_ - w_.count[2] * w_.step[2]) * pixel_;
      const int64_t next = line + count, next_count = lines_from(next, line1);
      block.later[0] = {dy_ + next * w_.count[2] * c_out_, next_count * w_.count[2] * c_out_ / ColumnTiles::kLine};
      block.later[1] = read_later(next, next_count);
      tiles_.run(block, begin, end, line > line0);
    }
  }

 private:
  static int64_t lines_at_a_time(const Window& w, int64_t line) {
    const int64_t bytes = w.step[1] * line * static_cast<int64_t>(sizeof(float));
    return std::max<int64_t>(1, std::min(kSteps / w.count[2], kCopyBytes / bytes));
  }
  // Lines of x that so many lines of dy read.
  int64_t read_by(int64_t lines) const { return (lines - 1) * w_.step[1] + (w_.taps[1] - 1) * w_.tap_step[1] + 1; }
  int64_t first_read(int64_t line) const { return line % w_.count[1] * w_.step[1] + w_.base[1]; }
  // Of one image.
  int64_t lines_from(int64_t line, int64_t end) const {
    return std::min({lines_, w_.count[1] - line % w_.count[1], end - line});
  }
  std::vector<int64_t> places() const {
    std::vector<int64_t> taps;
    for (int64_t y = 0; y < w_.taps[1]; ++y) {
      for (int64_t x = 0; x < w_.taps[2]; ++x) {
        taps.push_back((y * w_.tap_step[1] * pixels_ + x * w_.tap_step[2]) * pixel_);
      }
    }
    return taps;
  }

  Later read_later(int64_t line, int64_t count) const {
    if (count == 0) return {};
    const int64_t first = std::max<int64_t>(0, first_read(line)), values = w_.size[2] * c_in_;
    const int64_t end = std::min(w_.size[1], first_read(line) + read_by(count));
    return {x_ + (line / w_.count[1] * w_.size[1] + first) * values,
            std::max<int64_t>(0, end - first) * values / ColumnTiles::kLine};
  }

  void copy_lines(int64_t line, int64_t count, float* to) const {
    const int64_t n = line / w_.count[1], first = first_read(line);
    for (int64_t y = first; y < first + read_by(count); ++y) {
      const bool inside = y >= 0 && y < w_.size[1];
      const float* from = x_ + (n * w_.size[1] + y) * w_.size[2] * c_in_;
      for (int64_t x = w_.base[2]; x < w_.base[2] + pixels_; ++x, to += pixel_) {
        if (inside && x >= 0 && x < w_.size[2]) {
          std::memcpy(to, from + x * c_in_, static_cast<size_t>(c_in_) * sizeof(float));
        } else {
          std::fill_n(to, c_in_, 0.0f);
        }
      }
    }
  }

  const Window& w_;
  const float *x_, *dy_;
  int64_t c_in_, c_out_;
  int64_t pixel_, pixels_;  // values from one copied pixel to the next; copied pixels of a line
  int64_t lines_;           // of dy at a time
  ColumnTiles tiles_;
};

}  // namespace

bool columns_pay(const ConvCall& c, const Window& w) {
  if (c.dtype != DType::f32 || !c.channels_last || c.groups > 1 || w.tap_count() == 1) return false;
  if (w.taps[0] != 1 || w.size[0] != 1 || w.count[0] != 1) return false;
  // Rows of 512 values lie too far apart (7 x 7 positions: 24 instead of 18 ms), and a few positions at a time add to
  // the sums too often (256 channels, 14 x 14 positions, stride 2: 18.5 instead of 16.7).
  return c.c_out <= 256 && ColumnTiles::fit(c.c_out, c.c_in) &&
         ColumnsGradient(c, w, nullptr, nullptr).steps() >= kFewSteps;
}

void sum_columns(const ConvCall& c, const Window& w, int64_t parts, const float* dy, float* sums) {
  const int64_t lines = c.n * w.count[1], size = c.c_out * c.c_in * w.tap_count();
  const auto run = [&](int64_t part, int64_t lane, int64_t lanes) {
    const ColumnsGradient gradient(c, w, dy, sums + part * size);
    gradient.run(part * lines / parts, (part + 1) * lines / parts, lane * gradient.tiles() / lanes,
                 (lane + 1) * gradient.tiles() / lanes);
  };
  const int64_t lanes = num_threads();
  if (parts >= lanes) {
    return parallel_balanced(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) run(part, 0, 1);
    });
  }
  for (int64_t part = 0; part < parts; ++part) {
    parallel_for(0, lanes, 1, [&](int64_t begin, int64_t end) {
      for (int64_t lane = begin; lane < end; ++lane) run(part, lane, lanes);
    });
  }
}

}  // namespace deft::cpu::detail
