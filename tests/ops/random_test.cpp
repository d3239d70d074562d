// Draws are functions of (seed, draw, index): reproducible, and the same for any number of threads and any strides.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "deft/deft.h"

namespace deft {
namespace {

struct Moments {
  double mean = 0, var = 0;
};
Moments moments(const Tensor& t) {
  std::vector<double> v = t.to_vector<double>();
  Moments m;
  for (double x : v) m.mean += x / static_cast<double>(v.size());
  for (double x : v) m.var += (x - m.mean) * (x - m.mean) / static_cast<double>(v.size());
  return m;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.numel() == b.numel() &&
         std::memcmp(a.data_ptr(), b.data_ptr(), static_cast<size_t>(a.numel()) * a.element_size()) == 0;
}

TEST(Random, SeedRepeats) {
  manual_seed(42);
  Tensor a = randn({1000}), b = randn({1000});
  manual_seed(42);
  Tensor c = randn({1000});
  EXPECT_TRUE(same_bytes(a, c));
  EXPECT_FALSE(same_bytes(a, b));
}

TEST(Random, SameForAnyThreadCount) {
  int before = num_threads();
  auto draw = [] {
    manual_seed(1);
    return std::vector<Tensor>{rand({100003}), randn({100003}), randint(-5, 17, {100003}),
                               dropout(ones({100003}), 0.3)};
  };
  set_num_threads(1);
  auto one = draw();
  set_num_threads(3);
  auto three = draw();
  set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(same_bytes(one[i], three[i])) << i;
}

TEST(Random, PrefixDoesNotDependOnLength) {
  manual_seed(5);
  Tensor small = rand({10});
  manual_seed(5);
  Tensor large = rand({1000});
  EXPECT_EQ(small.to_vector<float>(), large.narrow(0, 0, 10).to_vector<float>());
}

// The tail of a tensor is made as its middle is.
TEST(Random, LengthDoesNotMatter) {
  constexpr int64_t n = 2100;
  for (DType t : {f32, f64, bf16, f16}) {
    auto draw = [&](int64_t length) {
      manual_seed(5);
      return std::vector<Tensor>{rand({length}, t), randn({length}, t), randint(-5, 100, {length}, t)};
    };
    const std::vector<Tensor> large = draw(n);
    for (int64_t length : {0, 1, 2, 3, 5, 7, 15, 31, 33, 1023, 1024, 1025, 2047}) {
      const std::vector<Tensor> small = draw(length);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(same_bytes(small[i], large[i].narrow(0, 0, length))) << name_of(t) << length << " " << i;
    }
  }
}

TEST(Random, StridesDoNotMatter) {
  for (void (*fill)(Tensor&) : {+[](Tensor& t) { uniform_(t); }, +[](Tensor& t) { normal_(t); }}) {
    manual_seed(5);
    Tensor plain = empty({4, 6});
    fill(plain);
    manual_seed(5);
    Tensor transposed = empty({6, 4}).t();
    fill(transposed);
    EXPECT_EQ(plain.to_vector<float>(), transposed.to_vector<float>());
  }
}

// Narrow types round what float gets; uniform numbers that would round to the end are at the other one.
TEST(Random, NarrowTypesRoundFloats) {
  for (DType t : {bf16, f16}) {
    manual_seed(6);
    const Tensor u = rand({5000}), z = randn({5000});
    manual_seed(6);
    const std::vector<float> narrow = rand({5000}, t).to_vector<float>(), want = u.to(t).to_vector<float>();
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(narrow[i], want[i] < 1 ? want[i] : 0) << name_of(t);
    EXPECT_TRUE(same_bytes(randn({5000}, t), z.to(t))) << name_of(t);
  }
}

// Bounds: six standard errors of the estimate.
TEST(Random, Moments) {
  manual_seed(0);
  constexpr int64_t n = 200000;
  double root = std::sqrt(static_cast<double>(n));
  Moments u = moments(rand({n}));
  EXPECT_NEAR(u.mean, 0.5, 6 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(u.var, 1.0 / 12, 6 * std::sqrt(1.0 / 180) / root);
  Moments z = moments(randn({n}));
  EXPECT_NEAR(z.mean, 0, 6 / root);
  EXPECT_NEAR(z.var, 1, 6 * std::sqrt(2.0) / root);
  Moments d = moments(dropout(ones({n}), 0.3));
  EXPECT_NEAR(d.mean, 1, 6 * std::sqrt(0.3 / 0.7) / root);
  Moments b = moments(bernoulli(full({n}, 0.2)));
  EXPECT_NEAR(b.mean, 0.2, 6 * 0.4 / root);
}

TEST(Random, UniformStaysBelowItsEnd) {
  for (DType t : {f32, f64, bf16, f16}) {
    manual_seed(3);
    std::vector<double> v = rand({50000}, t).to_vector<double>();
    for (double x : v) ASSERT_TRUE(x >= 0 && x < 1) << name_of(t);
  }
}

TEST(Random, RandintCoversItsRange) {
  manual_seed(2);
  std::vector<int64_t> v = randint(-3, 4, {5000}).to_vector<int64_t>();
  EXPECT_EQ(std::set<int64_t>(v.begin(), v.end()), (std::set<int64_t>{-3, -2, -1, 0, 1, 2, 3}));
  EXPECT_THROW(randint(3, 3, {2}), ValueError);
}

uint64_t below(uint64_t range, const std::array<uint32_t, 4>& w) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(uint64_t{w[0]} << 32 | w[1]) * range >> 64);
}

// Element i has Philox block i to itself.
TEST(Random, RandintIsItsFormula) {
  for (auto [low, high] : {std::pair<int64_t, int64_t>{0, 2}, {-3, 1000003}, {INT64_MIN, INT64_MAX}}) {
    manual_seed(9);
    const PhiloxState draw = rng_state();
    const std::vector<int64_t> v = randint(low, high, {3001}).to_vector<int64_t>();
    for (size_t i = 0; i < v.size(); ++i) {
      const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
      ASSERT_EQ(v[i], static_cast<int64_t>(static_cast<uint64_t>(low) + below(range, philox(draw, i)))) << i;
    }
  }
}

TEST(Random, RandpermSwapsFromTheEnd) {
  for (int64_t n : {1, 2, 255, 256, 257, 258, 3000}) {
    manual_seed(2);
    const PhiloxState draw = rng_state();
    std::vector<int64_t> want(static_cast<size_t>(n));
    for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<int64_t>(i);
    for (size_t i = want.size() - 1; i > 0; --i) std::swap(want[i], want[below(i + 1, philox(draw, i))]);
    EXPECT_EQ(randperm(n).to_vector<int64_t>(), want);
  }
}

TEST(Random, RandpermIsAPermutation) {
  manual_seed(2);
  std::vector<int64_t> v = randperm(1000).to_vector<int64_t>();
  EXPECT_EQ(std::set<int64_t>(v.begin(), v.end()).size(), 1000u);
  EXPECT_NE(v[0] * 1000 + v[1], 1);
  EXPECT_EQ(randperm(0).numel(), 0);
}

TEST(Random, FactoriesHonourRequiresGradUnderNoGrad) {
  NoGradGuard guard;
  EXPECT_TRUE(randn({3}, with_grad()).requires_grad());
  EXPECT_FALSE(randn({3}).requires_grad());
  EXPECT_EQ(randn({3}).version(), 0u);
}

TEST(Random, DropoutSavesNothing) {
  Tensor x = ones({1000}, with_grad());
  int64_t before = graph_stats().saved_bytes;
  Tensor y = dropout(x, 0.5);
  EXPECT_EQ(graph_stats().saved_bytes, before);
  y.sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), y.to_vector<float>());  // the same mask, the same scale
}

TEST(Random, EvalDropoutIsTheInput) {
  Tensor x = ones({10});
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
}

}  // namespace
}  // namespace deft
