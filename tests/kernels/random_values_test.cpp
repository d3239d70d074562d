// Values made of random words: uniform ones bit for bit, normal ones as near as two libraries' log, cos and sin.
#include "kernels/cpu/elementwise/random_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "kernels/cpu/elementwise/philox.h"

namespace deft::cpu {
namespace {

std::vector<uint32_t> random_words(int64_t n) {
  std::vector<uint32_t> words(static_cast<size_t>(n));
  philox_words({11, 12}, 0, n / 4, words.data());
  return words;
}

// All pairs of words around multiples of an eighth of a turn, where quarters change and results are near zero.
std::vector<uint32_t> special_words() {
  std::vector<uint32_t> edges, words;
  for (uint32_t eighth = 0; eighth < 8; ++eighth) {
    for (uint32_t i = 0; i < 4; ++i) edges.push_back((eighth << 29) + i - 2);
  }
  for (uint32_t a : edges) {
    for (uint32_t b : edges) words.insert(words.end(), {a, b});
  }
  return words;
}

struct Pair {
  double first, second;
};
Pair box_muller(uint32_t a, uint32_t b) {
  const double u = (a + 0.5) * 0x1p-32, angle = 2 * std::numbers::pi * (b + 0.5) * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

template <class T>
std::vector<T> normals(const std::vector<uint32_t>& words) {
  std::vector<T> z(words.size());
  normal_values(words.data(), static_cast<int64_t>(words.size()), 0, 1, z.data());
  return z;
}

// In units of 2^-53 log is within 4 (docs/guide/vector_math.md), the root then within 3, cosine and sine within 6, the
// product within 1 of their sum; the formula with <cmath> is within 4.
void check_doubles(const std::vector<uint32_t>& words) {
  const std::vector<double> z = normals<double>(words);
  for (size_t i = 0; i < z.size(); i += 2) {
    const Pair want = box_muller(words[i], words[i + 1]);
    ASSERT_NEAR(z[i], want.first, 14 * 0x1p-53 * std::fabs(want.first)) << words[i] << " " << words[i + 1];
    ASSERT_NEAR(z[i + 1], want.second, 14 * 0x1p-53 * std::fabs(want.second)) << words[i] << " " << words[i + 1];
  }
}
TEST(RandomValues, NormalDoublesFollowTheFormula) {
  check_doubles(random_words(1 << 20));
  check_doubles(special_words());
}

// The number of values that differ; none by more than one step.
int64_t count_others(const std::vector<uint32_t>& words) {
  const std::vector<float> z = normals<float>(words);
  int64_t others = 0;
  const auto check = [&](float got, double want) {
    const float rounded = static_cast<float>(want);
    if (got == rounded) return;
    ++others;
    EXPECT_EQ(std::nextafter(got, rounded), rounded);
  };
  for (size_t i = 0; i < z.size(); i += 2) {
    const Pair want = box_muller(words[i], words[i + 1]);
    check(z[i], want.first);
    check(z[i + 1], want.second);
  }
  return others;
}
TEST(RandomValues, NormalFloatsFollowTheFormula) {
  EXPECT_LE(count_others(random_words(1 << 20)), (1 << 20) / 10000);
  EXPECT_LE(count_others(special_words()), 1);
}

TEST(RandomValues, ScaledNormalsHaveBothRoundings) {
  const std::vector<uint32_t> words = random_words(4096);
  const std::vector<double> z = normals<double>(words);
  for (double mean : {0.1, -1e-3, 1e10}) {
    std::vector<double> scaled(z.size());
    normal_values(words.data(), 4096, mean, 0.3, scaled.data());
    for (size_t i = 0; i < z.size(); ++i) {
      volatile double product = 0.3 * z[i];
      ASSERT_EQ(scaled[i], product + mean);
    }
  }
}

TEST(RandomValues, NormalsOutOfRangeAreInfinite) {
  const std::vector<uint32_t> words = random_words(1024);
  std::vector<float> z(1024), huge(1024);
  normal_values(words.data(), 1024, 0, 1, z.data());
  normal_values(words.data(), 1024, 0, 1e60, huge.data());
  for (size_t i = 0; i < z.size(); ++i) ASSERT_EQ(huge[i], std::copysign(std::numeric_limits<float>::infinity(), z[i]));
}

template <class T>
void check_uniform(double low, double high) {
  const std::vector<uint32_t> words = random_words(4096);
  const T end = static_cast<T>(high);
  std::vector<T> values(words.size());
  uniform_values(words.data(), 4096, low, high, end, values.data());
  for (size_t i = 0; i < words.size(); ++i) {
    volatile double product = uniform_from_bits(words[i]) * (high - low);
    const T want = static_cast<T>(product + low);
    ASSERT_EQ(values[i], want < end ? want : static_cast<T>(low)) << low << " " << high << " " << words[i];
  }
}
TEST(RandomValues, UniformsAreTheFormula) {
  for (auto [low, high] : {std::pair{0.0, 1.0}, {-0.3, 0.7}, {1e-3, 1e7}, {1.0, 1.0000001}, {-1e300, 1e300}}) {
    check_uniform<float>(low, high);
    check_uniform<double>(low, high);
  }
}

// Every value is the one that a run of another length gives, and nothing is written behind the end.
template <class T>
void check_lengths() {
  const std::vector<uint32_t> words = random_words(64);
  std::vector<T> z(64), u(64);
  normal_values(words.data(), 64, 0.5, 2, z.data());
  uniform_values(words.data(), 64, -1, 3, T(3), u.data());
  for (int64_t n = 0; n < 64; ++n) {
    for (int64_t first : {0, 2, 14}) {
      const int64_t count = std::min<int64_t>(n, 63 - first);
      std::vector<T> out(static_cast<size_t>(count) + 1, T(77));
      normal_values(words.data() + first, count, 0.5, 2, out.data());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], z[static_cast<size_t>(first + i)]);
      EXPECT_EQ(out.back(), T(77));
      uniform_values(words.data() + first, count, -1, 3, T(3), out.data());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], u[static_cast<size_t>(first + i)]);
      EXPECT_EQ(out.back(), T(77));
    }
  }
}
TEST(RandomValues, LengthsDoNotMatter) {
  check_lengths<float>();
  check_lengths<double>();
}

}  // namespace
}  // namespace deft::cpu
