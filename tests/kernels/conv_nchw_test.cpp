// Panels of NCHW images, against reading one value at a time. Nothing beyond the panels is written.
#include <gtest/gtest.h>

#include <random>

#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/dense_util.h"

namespace deft::test {
namespace {

using namespace cpu;
using cpu::detail::Lines;
using cpu::detail::NchwOperand;
using cpu::detail::Source;
using cpu::detail::Window;

// Value `row` = (channel, tap) of position q = (n, position).
template <class T>
T value_at(const Window& w, const Source& s, const T* x, int64_t q, int64_t row) {
  int64_t rest_q = q, rest_tap = row % w.tap_count(), at[3];
  for (int d = 2; d >= 0; --d) {
    at[d] = rest_q % w.count[d] * w.step[d] + w.base[d] + rest_tap % w.taps[d] * w.tap_step[d];
    rest_q /= w.count[d], rest_tap /= w.taps[d];
  }
  for (int d = 0; d < 3; ++d) {
    if (at[d] < 0 || at[d] >= w.size[d]) return T(0.0f);
  }
  const int64_t plane = rest_q * s.all_channels + row / w.tap_count();
  return x[((plane * w.size[0] + at[0]) * w.size[1] + at[1]) * w.size[2] + at[2]];
}

struct Part {
  int64_t l0, lines, k0, k;
};

template <class T>
void check(const GemmTile& tile, Side side, const Window& w, const Source& s, int64_t n, Part part, Lines lines) {
  const auto x = filled<T>(n * s.all_channels * w.source(), 3);
  const NchwOperand operand(w, s, dtype_of<T>, x.data(), lines);
  const int64_t width = tile.width(side), padded = tile.padded_k(part.k);
  const int64_t panels = (part.lines + width - 1) / width;
  Guarded<T> out(panels * width * padded);
  operand.pack(tile, side, part.l0, part.lines, part.k0, part.k, out.data(), nullptr);
  out.check();
  for (int64_t l = 0; l < panels * width; ++l) {
    for (int64_t p = 0; p < padded; ++p) {
      const bool live = l < part.lines && p < part.k;
      const int64_t line = part.l0 + l, k = part.k0 + p;
      const bool by_position = lines == Lines::positions;
      const T expected = live ? value_at(w, s, x.data(), by_position ? line : k, by_position ? k : line) : T(0.0f);
      const T found = out[l / width * width * padded + p * width + l % width];
      ASSERT_EQ(as_double(found), as_double(expected)) << "line " << l << " k " << p;
    }
  }
}

template <class T>
void check_tiles(Panel panel) {
  std::mt19937 rng(7);
  const auto any = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(rng);
  };
  for (const GemmTile& tile : gemm_tiles(panel)) {
    for (Side side : {Side::a, Side::b}) {
      if (tile.group(side) != 1) continue;
      for (int i = 0; i < 60; ++i) {
        Window w;
        for (int d = 0; d < 3; ++d) {
          const bool flat = d == 0 && i % 2 == 0;
          w.count[d] = flat ? 1 : any(1, d == 2 ? 30 : 5);
          w.step[d] = any(1, 3);
          w.base[d] = any(-3, 2);
          w.taps[d] = flat ? 1 : any(1, 3);
          w.tap_step[d] = any(0, 1) ? any(1, 3) : -any(1, 2);
          w.size[d] = flat ? 1 : any(1, d == 2 ? 40 : 6);
        }
        const int64_t channels = any(1, 5), n = any(1, 3), all = n * w.positions(), depth = channels * w.tap_count();
        const int64_t width = tile.width(side);
        Part part{any(0, (all - 1) / width) * width, 0, any(0, depth - 1), 0};
        part.lines = any(1, all - part.l0), part.k = any(1, depth - part.k0);
        SCOPED_TRACE(testing::Message() << tile.name << " side " << static_cast<int>(side) << " case " << i);
        const Source s{channels, channels + any(0, 2), false};
        check<T>(tile, side, w, s, n, part, Lines::positions);
        part = {any(0, (depth - 1) / width) * width, 0, any(0, all - 1), 0};
        part.lines = any(1, depth - part.l0), part.k = any(1, all - part.k0);
        check<T>(tile, side, w, s, n, part, Lines::values);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ConvNchw, F32) { check_tiles<float>(Panel::f32); }
TEST(ConvNchw, F64) { check_tiles<double>(Panel::f64); }
TEST(ConvNchw, F16) { check_tiles<Half>(Panel::f16); }

// More panels than are written together.
TEST(ConvNchw, LargeImage) {
  const GemmTile& tile = gemm_tiles(Panel::f32)[0];
  const Window w{{1, 60, 61}, {1, 1, 1}, {0, -1, -1}, {1, 3, 3}, {1, 1, 1}, {1, 60, 61}};
  check<float>(tile, Side::b, w, {64, 64, false}, 1, {0, w.positions(), 0, 64 * 9}, Lines::positions);
}

}  // namespace
}  // namespace deft::test
