// Draws are functions of (seed, draw, index): reproducible, and the same for any number of threads and any strides.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

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

TEST(Random, StridesDoNotMatter) {
  manual_seed(5);
  Tensor plain = empty({4, 6});
  uniform_(plain);
  manual_seed(5);
  Tensor turned = empty({6, 4}).t();
  uniform_(turned);
  EXPECT_EQ(plain.to_vector<float>(), turned.to_vector<float>());
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
