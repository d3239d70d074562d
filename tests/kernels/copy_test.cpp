#include "kernels/cpu/copy/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/strided_data.h"

namespace deft::cpu {
namespace {

using testing::Block;
using testing::get;
using testing::kEveryDType;
using testing::put;

// The conversion rules, written independently for values that every path must agree on.
double expected(double v, DType to) {
  switch (to) {
    case boolean:
      return v != 0;
    case f32:
      return static_cast<float>(v);
    case f64:
      return v;
    case bf16:
      return static_cast<float>(BFloat16(static_cast<float>(v)));
    case f16:
      return static_cast<float>(Half(static_cast<float>(v)));
    default:
      break;
  }
  if (std::isnan(v)) return 0;
  if (to == i8 || to == u8) {  // the low bits of the i64
    const auto whole = std::abs(v) < 0x1p63 ? static_cast<int64_t>(v) : 0;
    return to == i8 ? static_cast<double>(static_cast<int8_t>(whole))
                    : static_cast<double>(static_cast<uint8_t>(whole));
  }
  double low = to == i32 ? -0x1p31 : -0x1p63, high = to == i32 ? 0x1p31 - 1 : 0x1p63;
  return std::trunc(std::clamp(v, low, high));
}

TEST(Convert, EveryPairTailAndOffset) {
  for (DType from : kEveryDType) {
    for (DType to : kEveryDType) {
      for (int64_t n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 67}) {
        for (int64_t shift : {0, 1, 3}) {
          Block src(from, {n}, {1}, shift), dst(to, {n}, {1}, 2 * shift % 5);
          for (int64_t i = 0; i < n; ++i) src.set(i, (from == u8 || to == u8) ? i * 3 % 100 : i * 3 % 100 - 50);
          convert(src.data(), from, dst.data(), to, static_cast<size_t>(n));
          for (int64_t i = 0; i < n; ++i) ASSERT_EQ(dst.at(i), expected(src.at(i), to)) << name_of(from) << name_of(to);
          ASSERT_TRUE(dst.guards_intact());
        }
      }
    }
  }
}

TEST(Convert, FloatToIntegerSaturatesAndNanIsZero) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double values[] = {1.9,   -1.9,         127.5,        128,          -128.9, -129,   255.9,   256,
                           -0.5,  2147483647.0, 2147483648.0, 1e10,         -1e10,  0x1p63, -0x1p63, 1e30,
                           -1e30, kInf,         -kInf,        std::nan(""), 0.0,    -0.0};
  for (DType from : {f32, f64, bf16, f16}) {
    for (DType to : {i8, u8, i32, i64, boolean}) {
      Block src(from, {22}, {1}), dst(to, {22}, {1});
      for (int i = 0; i < 22; ++i) src.set(i, values[i]);
      convert(src.data(), from, dst.data(), to, 22);
      for (int i = 0; i < 22; ++i) {
        EXPECT_EQ(dst.at(i), expected(src.at(i), to)) << src.at(i) << " " << name_of(from) << " " << name_of(to);
      }
    }
  }
}

// Exhaustive over the 16-bit patterns: widening is exact, and widening then narrowing gives the bits back.
template <class T>
void check_half_round_trip(DType t) {
  std::vector<T> h(65536), back(65536);
  std::vector<float> f(65536);
  for (int i = 0; i < 65536; ++i) h[i].bits = static_cast<uint16_t>(i);
  convert(h.data(), t, f.data(), f32, h.size());
  convert(f.data(), f32, back.data(), t, h.size());
  for (int i = 0; i < 65536; ++i) {
    float want = static_cast<float>(h[i]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(f[i]) && std::isnan(static_cast<float>(back[i]))) << i;
    } else {
      ASSERT_EQ(f[i], want) << i;
      ASSERT_EQ(back[i].bits, h[i].bits) << i;
    }
  }
}
TEST(Convert, HalfRoundTrip) {
  check_half_round_trip<BFloat16>(bf16);
  check_half_round_trip<Half>(f16);
}

template <class T>
void check_half_rounding(DType t) {
  std::mt19937 rng(5);
  std::vector<float> f;
  for (int i = 0; i < 200000; ++i) f.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng())));
  for (int i = 0; i < 65536; ++i) {  // ties and their neighbours
    T h, next;
    h.bits = static_cast<uint16_t>(i);
    next.bits = static_cast<uint16_t>(i + 1);
    float middle = 0.5f * (static_cast<float>(h) + static_cast<float>(next));
    f.insert(f.end(), {middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)});
  }
  std::vector<T> got(f.size());
  convert(f.data(), f32, got.data(), t, f.size());
  for (size_t i = 0; i < f.size(); ++i) {
    if (std::isnan(f[i])) {
      ASSERT_TRUE(std::isnan(static_cast<float>(got[i])));
    } else {
      ASSERT_EQ(got[i].bits, T(f[i]).bits) << f[i];
    }
  }
}
TEST(Convert, HalfRoundsToNearestEven) {
  check_half_rounding<BFloat16>(bf16);
  check_half_rounding<Half>(f16);
}

void check_copy(Block& src, Block& dst, const std::vector<int64_t>& sizes, const std::string& what) {
  for (int64_t i = 0; i < src.total(); ++i) src.set(i, i % 101);
  copy_strided(src.operand(), dst.operand(), static_cast<int>(sizes.size()), sizes.data());
  for (int64_t i = 0; i < src.total(); ++i) ASSERT_EQ(dst.at(i), expected(src.at(i), dst.dtype())) << what << " " << i;
  ASSERT_TRUE(dst.guards_intact()) << what;
}

TEST(Copy, RandomViews) {
  std::mt19937 rng(11);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int64_t> sizes(rng() % 6);
    for (int64_t& s : sizes) s = rng() % 25 == 0 ? 0 : 1 + rng() % (sizes.size() > 3 ? 6 : 40);
    DType from = kEveryDType[rng() % 9], to = rng() % 2 ? from : kEveryDType[rng() % 9];
    Block src(from, sizes, testing::random_strides(sizes, rng, false), rng() % 3);
    Block dst(to, sizes, testing::random_strides(sizes, rng, true), rng() % 3);
    check_copy(src, dst, sizes, "trial " + std::to_string(trial));
  }
}

TEST(Copy, LayoutsAndLargeSizes) {
  for (int64_t channels : {1, 3, 4, 31, 64, 100}) {
    const std::vector<int64_t> sizes = {2, channels, 37, 41};
    const std::vector<int64_t> nchw = Block::row_major(sizes);
    const std::vector<int64_t> nhwc = {channels * 37 * 41, 1, channels * 41, channels};
    for (DType t : {f32, bf16, u8, f64}) {
      Block a(t, sizes, nchw), b(t, sizes, nhwc), c(f32, sizes, nhwc), d(t, sizes, nchw);
      check_copy(a, b, sizes, "nchw to nhwc");
      check_copy(b, d, sizes, "nhwc to nchw");
      check_copy(a, c, sizes, "nchw to nhwc f32");
    }
  }
  const std::vector<int64_t> big = {700, 900};
  Block a(f32, big, {900, 1}), b(f32, big, {1, 700}), c(f32, big, {900, 1}), d(i64, big, {901, 1});
  check_copy(a, b, big, "transpose");
  check_copy(a, c, big, "contiguous");
  check_copy(a, d, big, "convert with gaps");
}

// Both directions of every block shape: fewer rows or columns than a vector, tails, runs of any length, gaps.
TEST(Copy, TransposesOfEveryShape) {
  const int64_t lengths[] = {2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 70, 300};
  for (DType t : {u8, bf16, f32, f64}) {
    for (int64_t rows : lengths) {
      for (int64_t cols : lengths) {
        for (int64_t gap : {0, 3}) {
          const std::vector<int64_t> sizes = {rows, cols};
          Block src(t, sizes, {1, rows + gap}, 1), dst(t, sizes, {cols + gap, 1}, 2);
          Block spread(t, sizes, {2, 2 * rows + gap}), wide(f32, sizes, {cols, 1});
          check_copy(src, dst, sizes, "transpose");
          check_copy(spread, dst, sizes, "transpose with steps");
          check_copy(src, wide, sizes, "transpose to f32");
          if (HasFatalFailure()) return;
        }
      }
    }
    // Columns whose lines share a set of the caches, and rows too long for a buffer.
    for (int64_t cols : {16, 33, 70, 200, 1100}) {
      const std::vector<int64_t> sizes = {cols > 200 ? 70 : 300, cols};
      Block src(t, sizes, {1, 16384 / static_cast<int64_t>(size_of(t))}), dst(t, sizes, {cols, 1});
      check_copy(src, dst, sizes, "columns 16 KB apart");
    }
    for (int64_t run : {2, 3, 4, 5, 6, 8, 12, 16, 17, 40, 2000}) {
      const std::vector<int64_t> sizes = {9, 21, run};
      Block src(t, sizes, {run, 9 * run + 1, 1}, 1), dst(t, sizes, Block::row_major(sizes));
      check_copy(src, dst, sizes, "runs");
    }
  }
}

// A column of a very wide matrix, a broadcast one, one read backwards and one with every second element.
TEST(Copy, ExtremeStrides) {
  for (DType t : {u8, bf16, f32, f64}) {
    for (int64_t step : {0, -1, 2, -3, 70001}) {
      const std::vector<int64_t> sizes = {37, 3};
      Block src(t, sizes, {step, step ? 1 : 0}, 1), dst(t, sizes, {3, 1}), line(t, {37}, {step}), flat(t, {37}, {1}, 1);
      for (int64_t i = 0; i < 37; ++i) line.set(i, i % 101);
      const int64_t n = 37;
      copy_strided(line.operand(), flat.operand(), 1, &n);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(flat.at(i), line.at(i)) << step;
      ASSERT_TRUE(flat.guards_intact());
      for (int64_t i = 0; i < src.total(); ++i) src.set(i, i % 101);  // later ones win where elements are shared
      copy_strided(src.operand(), dst.operand(), 2, sizes.data());
      for (int64_t i = 0; i < src.total(); ++i) ASSERT_EQ(dst.at(i), src.at(i)) << step;
      ASSERT_TRUE(dst.guards_intact());
    }
  }
}

TEST(Fill, ContiguousAndStrided) {
  std::mt19937 rng(2);
  for (DType t : kEveryDType) {
    alignas(8) unsigned char value[8];
    put(value, t, 0, 1);
    for (int64_t n : {0, 1, 5, 300000}) {
      Block dst(t, {n}, {1}, 1);
      fill(dst.data(), t, n, value);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(dst.at(i), 1);
      ASSERT_TRUE(dst.guards_intact());
    }
    for (int trial = 0; trial < 50; ++trial) {
      const std::vector<int64_t> sizes = {static_cast<int64_t>(1 + rng() % 5), static_cast<int64_t>(1 + rng() % 30), 7};
      Block dst(t, sizes, testing::random_strides(sizes, rng, true));
      fill_strided(dst.operand(), 3, sizes.data(), value);
      for (int64_t i = 0; i < dst.total(); ++i) ASSERT_EQ(dst.at(i), 1);
      ASSERT_TRUE(dst.guards_intact());
    }
  }
}

}  // namespace
}  // namespace deft::cpu
