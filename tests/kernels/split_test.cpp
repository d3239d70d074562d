// f32 GEMMs whose values are split into three of bf16 (Note [Split f32]). On machines without tiles for that, the same
// calls run on other kernels.
#include <cfloat>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_tile.h"
#include "kernels/dense_util.h"
#include "runtime/cpu_isa.h"
#include "runtime/numerics.h"

namespace deft::test {
namespace {

using cpu::Panel;

struct SplitGuard {
  explicit SplitGuard(bool on) : before(split_f32()) { set_split_f32(on); }
  ~SplitGuard() { set_split_f32(before); }
  bool before;
};

struct Tf32Guard {
  Tf32Guard() : before(allow_tf32()) { set_allow_tf32(true); }
  ~Tf32Guard() { set_allow_tf32(before); }
  bool before;
};

// c = a b with rows of a and columns of b contiguous over k.
std::vector<float> multiply(int64_t m, int64_t n, int64_t k, const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> c(static_cast<size_t>(m * n));
  cpu::gemm({DType::f32, m, n, k, a.data(), k, 1, b.data(), 1, k, c.data(), n, 1, false, nullptr});
  return c;
}
std::vector<float> normals(int64_t count, uint32_t seed, float scale) {
  std::mt19937 gen(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(static_cast<size_t>(count));
  for (float& x : v) x = scale * normal(gen);
  return v;
}

// The largest error over the sum of absolute products.
double worst_error(int64_t m, int64_t n, int64_t k, const std::vector<float>& a, const std::vector<float>& b) {
  const std::vector<float> c = multiply(m, n, k, a, b);
  double worst = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < k; ++p) {
        const double x = static_cast<double>(a[static_cast<size_t>(i * k + p)]) * b[static_cast<size_t>(j * k + p)];
        sum += x, size += std::abs(x);
      }
      worst = std::max(worst, std::abs(c[static_cast<size_t>(i * n + j)] - sum) / size);
    }
  }
  return worst;
}

// Six multiplications of parts lose 2^-26; 16 pairs are summed before each of six additions to a sum. A chain of fused
// multiply-adds may lose k times 2^-24.
TEST(Split, ErrorsAreThoseOfF32) {
  for (const float scale : {1.0f, 0x1p-45f, 0x1p60f}) {
    const int64_t m = 64, n = 96, k = 1600;
    const auto a = normals(m * k, 1, scale), b = normals(n * k, 2, scale);
    EXPECT_LE(worst_error(m, n, k, a, b), (6.0 * k / 32 + 17) * 0x1p-24) << scale;
    const double split = worst_error(m, n, k, a, b);
    const SplitGuard off(false);
    EXPECT_LE(split, 1.5 * worst_error(m, n, k, a, b)) << scale;
  }
}

// Values of few bits that need all parts: every bit of a multiplication counts, sums are exact.
TEST(Split, KeepsAllBitsOfAValue) {
  const int64_t m = 48, n = 64, k = 128;
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < m; ++i) a[static_cast<size_t>(i * k + i)] = static_cast<float>(0xabcdef - 2 * i);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t p = 0; p < k; ++p) b[static_cast<size_t>(j * k + p)] = p % 2 ? 1.0f : -0x1p-70f;
  }
  const auto c = multiply(m, n, k, a, b);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const float expected = static_cast<float>(0xabcdef - 2 * i) * (i % 2 ? 1.0f : -0x1p-70f);
      ASSERT_EQ(c[static_cast<size_t>(i * n + j)], expected) << i << ", " << j;
    }
  }
}

// The omitted parts are far below the last bit of a result: parts are rounded, not cut off.
TEST(Split, OneProductIsOffByLessThanABit) {
  const int64_t m = 64, n = 64, k = 128;
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k));
  std::mt19937 gen(9);
  std::uniform_real_distribution<float> draw(1.0f, 2.0f);
  for (float& x : b) x = draw(gen);
  for (int64_t i = 0; i < m; ++i) a[static_cast<size_t>(i * k + 2 * i)] = draw(gen);
  const auto c = multiply(m, n, k, a, b);
  double squares = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double exact =
          static_cast<double>(a[static_cast<size_t>(i * k + 2 * i)]) * b[static_cast<size_t>(j * k + 2 * i)];
      squares += std::pow(c[static_cast<size_t>(i * n + j)] / exact - 1, 2);
    }
  }
  EXPECT_LE(std::sqrt(squares / static_cast<double>(m * n)), 0.9 * 0x1p-24);
}

TEST(Split, SpecialValuesAreThoseOfF32) {
  constexpr float odd[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, FLT_MIN, 1e15f, 1.0f};
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const int64_t m = 70, n = 90, k = 100 + 50 * seed;
    auto a = normals(m * k, seed, 1), b = normals(n * k, seed + 100, 1);
    std::mt19937 gen(seed);
    for (int i = 0; i < 12; ++i) {
      a[gen() % a.size()] = odd[gen() % std::size(odd)];
      b[gen() % b.size()] = odd[gen() % std::size(odd)];
    }
    const auto found = multiply(m, n, k, a, b);
    const SplitGuard off(false);
    const auto expected = multiply(m, n, k, a, b);
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(found[i])) << seed << " at " << i << ": found " << found[i];
      } else if (std::isinf(expected[i])) {
        ASSERT_EQ(found[i], expected[i]) << seed << " at " << i;
      } else {
        ASSERT_NEAR(found[i], expected[i], 1e-4f + 1e-4f * std::abs(expected[i])) << seed << " at " << i;
      }
    }
  }
}

TEST(Split, LargestNumbersStayFinite) {
  const int64_t m = 64, n = 64, k = 128;
  std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < m; ++i) a[static_cast<size_t>(i * k + i)] = i % 2 ? FLT_MAX : -FLT_MAX;
  for (float& x : b) x = 0.75f;
  const auto c = multiply(m, n, k, a, b);
  for (size_t i = 0; i < c.size(); ++i) {
    ASSERT_EQ(c[i], (i / static_cast<size_t>(n) % 2 ? 0.75f : -0.75f) * FLT_MAX) << i;
  }
}

// An element does not depend on other rows and columns: tiles of other heights give the same bits, a NaN beside it
// changes nothing.
TEST(Split, ElementsAreTheirOwn) {
  const int64_t m = 77, n = 64, k = 896;
  auto a = normals(m * k, 3, 1);
  const auto b = normals(n * k, 4, 1);
  const auto all = multiply(m, n, k, a, b);
  for (int64_t rows : {33, 48, 64}) {
    const auto some = multiply(rows, n, k, a, b);
    for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i], all[i]) << rows << " rows, at " << i;
  }
  a[static_cast<size_t>(40 * k + 7)] = NAN;
  const auto spoilt = multiply(m, n, k, a, b);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i / static_cast<size_t>(n) == 40) {
      ASSERT_TRUE(std::isnan(spoilt[i])) << i;
    } else {
      ASSERT_EQ(spoilt[i], all[i]) << i;
    }
  }
}

// Two parts have 16 bits: the third part, and the second times the second, are lost.
TEST(Split, TwoPartsAreEnoughWhereTf32IsAllowed) {
  const int64_t m = 64, n = 96, k = 800;
  auto a = normals(m * k, 7, 1);
  const auto b = normals(n * k, 8, 1);
  const Tf32Guard allowed;
  EXPECT_LE(worst_error(m, n, k, a, b), 4 * 0x1p-17);
  a[5] = INFINITY, a[static_cast<size_t>(k + 9)] = NAN;
  const auto c = multiply(m, n, k, a, b);
  for (int64_t i = 0; i < m * n; ++i) {
    const float x = c[static_cast<size_t>(i)];
    if (i >= 2 * n) {
      ASSERT_TRUE(std::isfinite(x)) << i;
    } else if (i >= n) {
      ASSERT_TRUE(std::isnan(x)) << i;
    } else {
      ASSERT_EQ(x, std::copysign(INFINITY, b[static_cast<size_t>(i * k + 5)])) << i;
    }
  }
}

TEST(Split, CanBeTurnedOff) {
  const int64_t m = 64, n = 64, k = 256;
  const auto a = normals(m * k, 5, 1), b = normals(n * k, 6, 1);
  const SplitGuard off(false);
  EXPECT_EQ(cpu::panel_for(DType::f32, m, n, k), Panel::f32);
  const auto found = multiply(m, n, k, a, b);
  for (int64_t i = 0; i < m * n; ++i) {
    float chain = 0;
    for (int64_t p = 0; p < k; ++p) {
      chain = std::fma(a[static_cast<size_t>(i / n * k + p)], b[static_cast<size_t>(i % n * k + p)], chain);
    }
    if (cpu_has("avx512f")) {
      ASSERT_EQ(found[static_cast<size_t>(i)], chain) << i;
    } else {
      ASSERT_NEAR(found[static_cast<size_t>(i)], chain, 1e-4) << i;
    }
  }
}

TEST(Split, IsForLargeProducts) {
  const SplitGuard on(true);
  const Panel large = cpu::gemm_tiles(Panel::split).empty() ? Panel::f32 : Panel::split;
  EXPECT_EQ(cpu::panel_for(DType::f32, 1024, 1024, 1024), large);
  EXPECT_EQ(cpu::panel_for(DType::f32, 32, 768, 96), cpu::splits_fast() ? large : Panel::f32);
  for (const auto& [m, n, k] : {std::tuple{1, 768, 768}, {31, 768, 768}, {768, 8, 768}, {512, 512, 64}, {33, 33, 97}}) {
    EXPECT_EQ(cpu::panel_for(DType::f32, m, n, k), Panel::f32) << m << "x" << n << "x" << k;
    EXPECT_EQ(cpu::panel_for(DType::f32, n, m, k), Panel::f32) << m << "x" << n << "x" << k;
  }
  EXPECT_EQ(cpu::panel_for(DType::f64, 128, 768, 768), Panel::f64);
}

}  // namespace
}  // namespace deft::test
