// One row times a small matrix in panels (GEMV), against sums in double.
#include "kernels/cpu/gemm/gemv_panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/parallel.h"

namespace deft::test {
namespace {

using cpu::Activation;
using cpu::GemvPanels;

constexpr float kFence = -12345.0f;

std::vector<float> random_values(int64_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = normal(rng);
  return v;
}

struct Case {
  int64_t n, k;
  bool transposed, bias, residual;
  Activation activation;
};

void check(const Case& c, std::mt19937& rng) {
  SCOPED_TRACE(testing::Message() << c.n << " x " << c.k << (c.transposed ? " transposed" : "") << ", activation "
                                  << static_cast<int>(c.activation));
  const std::vector<float> w = random_values(c.n * c.k, rng), x = random_values(c.k, rng);
  const std::vector<float> bias = random_values(c.n, rng), residual = random_values(c.n, rng);
  const int64_t line = c.transposed ? 1 : c.k, step = c.transposed ? c.n : 1;
  const GemvPanels panels(w.data(), c.n, c.k, line, step);
  std::vector<float> y(static_cast<size_t>(c.n) + 16, kFence);
  cpu::multiply_row(x.data(), panels, c.bias ? bias.data() : nullptr, c.residual ? residual.data() : nullptr,
                    c.activation, y.data());
  for (int64_t j = 0; j < c.n; ++j) {
    const auto at = static_cast<size_t>(j);
    double sum = (c.bias ? bias[at] : 0) + (c.residual ? residual[at] : 0), size = std::fabs(sum);
    for (int64_t p = 0; p < c.k; ++p) {
      const double product = double{w[static_cast<size_t>(j * line + p * step)]} * x[static_cast<size_t>(p)];
      sum += product, size += std::fabs(product);
    }
    const double wanted = c.activation == Activation::relu   ? std::max(sum, 0.0)
                          : c.activation == Activation::tanh ? std::tanh(sum)
                                                             : sum;
    // Each value goes through at most k + 2 roundings; tanh adds a few of its own.
    const double bound = (static_cast<double>(c.k) + 8) * std::numeric_limits<float>::epsilon() * (size + 1);
    EXPECT_TRUE(std::fabs(y[at] - wanted) <= bound) << j << ": " << y[at] << " instead of " << wanted;
  }
  for (size_t j = static_cast<size_t>(c.n); j < y.size(); ++j) EXPECT_EQ(y[j], kFence) << "written beyond the end";
}

TEST(GemvPanels, AllSizes) {
  std::mt19937 rng(3);
  for (int64_t n : {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 130, 200})
    for (int64_t k : {1, 2, 3, 4, 5, 7, 8, 16, 63, 64, 130})
      check({n, k, (n + k) % 2 == 0, k % 3 != 0, n % 3 != 0, n % 2 ? Activation::none : Activation::relu}, rng);
  check({40, 50, false, true, true, Activation::tanh}, rng);
}

TEST(GemvPanels, SameBitsForAnyNumberOfThreads) {
  std::mt19937 rng(5);
  const int64_t n = 2048 + 40, k = 500;
  const std::vector<float> w = random_values(n * k, rng), x = random_values(k, rng);
  const GemvPanels panels(w.data(), n, k, k, 1);
  const int before = num_threads();
  std::vector<float> first, y(static_cast<size_t>(n));
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    cpu::multiply_row(x.data(), panels, nullptr, nullptr, Activation::none, y.data());
    if (first.empty()) first = y;
    EXPECT_EQ(first, y) << threads << " threads";
  }
  set_num_threads(before);
}

TEST(GemvPanels, WritesOverTheResidual) {
  std::mt19937 rng(4);
  const std::vector<float> w = random_values(37 * 20, rng), x = random_values(20, rng), r = random_values(37, rng);
  const GemvPanels panels(w.data(), 37, 20, 20, 1);
  std::vector<float> apart(37), over = r;
  cpu::multiply_row(x.data(), panels, nullptr, r.data(), Activation::none, apart.data());
  cpu::multiply_row(x.data(), panels, nullptr, over.data(), Activation::none, over.data());
  EXPECT_EQ(apart, over);
}

}  // namespace
}  // namespace deft::test
