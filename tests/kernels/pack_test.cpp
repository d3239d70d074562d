#include "kernels/cpu/gemm/pack.h"

#include <set>

#include "base/error.h"
#include "kernels/cpu/gemm/pack_rows.h"
#include "kernels/engine_util.h"

namespace deft::test {
namespace {

// Three parts of bf16: for a, one step of each line after the other; for b, all lines of a pair of k, for each part.
// The third part of an infinity is NaN.
double split_value(const GemmTile& tile, Side side, const void* panels, int64_t l, int64_t p, int64_t padded) {
  const int64_t width = tile.width(side), step = tile.k_step, in_step = p % step, of_panel = l % width;
  const int64_t first = 3 * (l / width * width * padded + p / step * step * width);
  const bool left = side == Side::a;
  const int64_t at =
      first + (left ? 3 * of_panel * step + in_step : (in_step / 2 * 3 * width + of_panel) * 2 + in_step % 2);
  const int64_t part = left ? step : width * 2;
  const double sum = read(DType::bf16, panels, at) + read(DType::bf16, panels, at + part);
  return std::isinf(sum) ? sum : sum + read(DType::bf16, panels, at + 2 * part);
}

double panel_value(const GemmTile& tile, Side side, const void* panels, int64_t l, int64_t p, int64_t padded) {
  if (tile.panel == Panel::split) return split_value(tile, side, panels, l, p, padded);
  const int64_t width = tile.width(side), group = tile.group(side);
  const int64_t i = l / width * width * padded + p / group * group * width + l % width * group + p % group;
  constexpr DType types[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::i8};
  const bool is_unsigned = tile.panel == Panel::u8s8 && side == Side::a;
  return read(is_unsigned ? DType::u8 : types[static_cast<size_t>(tile.panel)], panels, i);
}

struct Case {
  DType dtype;
  int kind;
  int64_t lines, k, l0 = 0, k0 = 0;
  Fill fill = Fill::real;
};

bool matches(double found, double expected, Panel panel) {
  if (std::isnan(expected)) return std::isnan(found);
  // x86 rounds to bf16 without subnormals.
  if (panel == Panel::bf16 && std::abs(expected) < 0x1p-126 && found == 0) return true;
  const bool signs = panel != Panel::split;  // parts of -0.0 add up to 0.0
  return found == expected && (!signs || std::signbit(found) == std::signbit(expected));
}

// All that is written, against Note [Panels]. Lines beyond the matrix hold what zero becomes.
void check_panels(const GemmTile& tile, Side side, const Case& x, const Matrix& m, const void* panels) {
  const int64_t width = tile.width(side), padded = tile.padded_k(x.k);
  for (int64_t l = 0; l < (x.lines + width - 1) / width * width; ++l) {
    for (int64_t p = 0; p < padded; ++p) {
      const double found = panel_value(tile, side, panels, l, p, padded);
      if (l >= x.lines && p < x.k && found == packed(tile.panel, side, x.dtype, 0)) continue;
      const double expected = l < x.lines && p < x.k ? packed(tile.panel, side, x.dtype, m.at(x.l0 + l, x.k0 + p)) : 0;
      if (matches(found, expected, tile.panel)) continue;
      ADD_FAILURE() << "line " << l << " k " << p << ": found " << found << ", expected " << expected;
      return;
    }
  }
}

void check(const GemmTile& tile, Side side, const Case& x, std::mt19937& rng) {
  SCOPED_TRACE(testing::Message() << "side " << static_cast<int>(side) << " from " << name_of(x.dtype) << " layout "
                                  << x.kind << " lines " << x.lines << " k " << x.k << " from " << x.l0 << ", "
                                  << x.k0);
  const Matrix m(x.dtype, x.l0 + x.lines, x.k0 + x.k, x.kind, x.fill, rng);
  const auto bytes = static_cast<size_t>(cpu::packed_bytes(tile, side, x.lines, x.k));
  constexpr size_t kFront = 64;
  Fenced memory(bytes + kFront);
  unsigned char* out = memory.take(bytes);
  std::memset(out - kFront, 0xA5, bytes + kFront);
  std::vector<int32_t> sums(static_cast<size_t>(x.lines) + 1, 7);
  cpu::pack(tile, side, m.strided(), x.l0, x.lines, x.k0, x.k, out, is_bytes(tile.panel) ? sums.data() : nullptr);
  check_panels(tile, side, x, m, out);
  for (size_t i = 1; i <= kFront; ++i) ASSERT_EQ(out[-static_cast<int64_t>(i)], 0xA5) << "written before the panels";
  for (int64_t l = 0; is_bytes(tile.panel) && l <= x.lines; ++l) {
    double sum = 7;
    for (int64_t p = 0; l < x.lines && p < x.k; ++p) sum += packed(tile.panel, side, x.dtype, m.at(x.l0 + l, x.k0 + p));
    ASSERT_EQ(sums[static_cast<size_t>(l)], sum) << "sum of line " << l;
  }
}

void check_side(const GemmTile& tile, Side side) {
  std::mt19937 rng(1);
  const int64_t w = tile.width(side), g = tile.group(side), step = tile.k_step;
  const std::set<int64_t> all_lines{1, w - 1, w, w + 1, 2 * w + 3};
  const std::set<int64_t> all_k{1, g, g + 1, step + 1, 4 * step, 16 * g + step - 1};
  for (DType dtype : sources(tile.panel)) {
    for (int kind = 0; kind < kLayouts; ++kind) {
      for (int64_t lines : all_lines) {
        for (int64_t k : all_k) {
          if (lines == 0) continue;
          check(tile, side, {dtype, kind, lines, k, 0, 0, Fill::special}, rng);
          if (testing::Test::HasFailure()) return;
        }
      }
      check(tile, side, {dtype, kind, w + 1, step + 3, 3, 5}, rng);
      check(tile, side, {dtype, kind, 6 * w + 1, 2 * step, 1, 3}, rng);
    }
  }
}

TEST(Pack, FollowsThePanelFormat) {
  for_each_level([] {
    for_each_tile([](const GemmTile& tile) {
      check_side(tile, Side::a);
      check_side(tile, Side::b);
    });
  });
}

// Longer than kZeroLine, which stands for missing lines, and than any piece that is converted at once.
TEST(Pack, LongLines) {
  for_each_tile([](const GemmTile& tile) {
    std::mt19937 rng(2);
    for (DType dtype : sources(tile.panel)) {
      const int64_t line = cpu::kZeroLineBytes / static_cast<int64_t>(size_of(dtype));
      for (int64_t k : {int64_t{257}, int64_t{515}, tile.block_k, line, line + 1}) {
        check(tile, Side::a, {dtype, 0, tile.mr + 1, k}, rng);
        check(tile, Side::b, {dtype, 1, tile.nr - 1, k}, rng);
      }
    }
  });
}

TEST(Pack, WritesNothingForNothing) {
  for_each_tile([](const GemmTile& tile) {
    const unsigned char value[8] = {};
    unsigned char out = 0xA5;
    EXPECT_EQ(cpu::packed_bytes(tile, Side::a, 0, 5), 0);
    EXPECT_EQ(cpu::packed_bytes(tile, Side::a, 5, 0), 0);
    for (const auto& [lines, k] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
      cpu::pack(tile, Side::a, {sources(tile.panel)[0], value, 0, 0}, 0, lines, 0, k, &out);
      cpu::pack(tile, Side::b, {sources(tile.panel)[0], value, 0, 1}, 0, lines, 0, k, &out);
    }
    EXPECT_EQ(out, 0xA5);
  });
}

TEST(Pack, RefusesTypesThePanelCannotHold) {
  for_each_tile([](const GemmTile& tile) {
    const std::vector<DType> fitting = sources(tile.panel);
    const unsigned char value[8] = {};
    std::vector<unsigned char> out(static_cast<size_t>(cpu::packed_bytes(tile, Side::a, 1, 1)));
    for (DType dtype :
         {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i8, DType::u8, DType::i32, DType::i64}) {
      if (std::find(fitting.begin(), fitting.end(), dtype) != fitting.end()) continue;
      EXPECT_THROW(cpu::pack(tile, Side::a, {dtype, value, 1, 1}, 0, 1, 0, 1, out.data()), DTypeError)
          << name_of(dtype);
    }
  });
}

// Fast packing of lines that begin anywhere gives the bytes of pack().
TEST(Pack, RowsOfTheirOwn) {
  for_each_tile([](const GemmTile& tile) {
    std::mt19937 rng(3);
    for (Side side : {Side::a, Side::b}) {
      for (DType dtype : sources(tile.panel)) {
        cpu::PanelRows rows(tile, side, dtype);
        if (!rows.known()) continue;
        const int64_t width = tile.width(side), k = 5 * tile.k_step, size = static_cast<int64_t>(size_of(dtype));
        ASSERT_LE(width, cpu::kMostLines);
        const Matrix m(dtype, width, k, 2, Fill::real, rng);
        const cpu::StridedMatrix s = m.strided();
        for (int64_t l = 0; l < width; ++l) rows.set_line(l, static_cast<const char*>(s.in) + l * s.line * size);
        const auto bytes = static_cast<size_t>(cpu::packed_bytes(tile, side, width, k));
        std::vector<unsigned char> found(bytes), expected(bytes);
        rows.pack(k, found.data());
        cpu::pack(tile, side, s, 0, width, 0, k, expected.data());
        EXPECT_EQ(found, expected) << name_of(dtype) << " side " << static_cast<int>(side);
      }
    }
  });
}

}  // namespace
}  // namespace deft::test
