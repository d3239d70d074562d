// PackedLinear beyond its samples: the weight's version, the compute type, gradients refused, threads.
#include "ops/packed_linear.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/grad_mode.h"
#include "deft/deft.h"

namespace deft {
namespace {

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a.to(DType::f64) - b.to(DType::f64)).abs().amax().item<double>();
}

TEST(PackedLinear, FollowsTheWeight) {
  NoGradGuard guard;
  Tensor w = randn({24, 40}), x = randn({5, 40});
  PackedLinear f(w);
  EXPECT_EQ(f.packed_bytes(), 0);
  EXPECT_LT(largest_difference(f(x), linear(x, w)), 1e-4);
  EXPECT_GT(f.packed_bytes(), 0);
  w.mul_(2);
  EXPECT_LT(largest_difference(f(x), linear(x, w)), 1e-4);
  Tensor view = w.select(0, 3);
  view.fill_(0);
  EXPECT_EQ(f(x).select(1, 3).abs().amax().item<float>(), 0);
}

TEST(PackedLinear, TransposedWeight) {
  NoGradGuard guard;
  Tensor w = randn({40, 24}).t(), x = randn({3, 40});
  EXPECT_LT(largest_difference(PackedLinear(w)(x), linear(x, w)), 1e-4);
}

TEST(PackedLinear, ComputesInBf16) {
  NoGradGuard guard;
  Tensor w = randn({64, 256}), x = randn({33, 256});
  PackedLinear f(w, {}, DType::bf16);
  Tensor y = f(x), exact = linear(x.to(DType::bf16).to(DType::f64), w.to(DType::bf16).to(DType::f64));
  EXPECT_EQ(y.dtype(), DType::f32);
  // Products of rounded inputs, summed in f32: either exactly rounded inputs, or none rounded where the CPU cannot.
  double rounded = largest_difference(y, exact), full = largest_difference(y, linear(x, w));
  EXPECT_LT(std::min(rounded, full), 2e-3);
}

// Few rows go other ways than many, some of them from the weight as it lies.
TEST(PackedLinear, FewRowsOfEveryType) {
  NoGradGuard guard;
  for (DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const double tolerance = type == DType::f64 ? 1e-12 : type == DType::f32 ? 2e-5 : type == DType::f16 ? 1e-2 : 6e-2;
    for (int64_t m = 1; m <= 6; ++m) {
      for (int64_t n : {1, 50, 200}) {
        for (int64_t k : {5, 64, 1030}) {
          Tensor w = (randn({n, k}) * 0.1).to(type), x = randn({m, k}).to(type), bias = randn({n}).to(type);
          Tensor residual = randn({m, n}).to(type);
          Tensor exact = linear(x.to(DType::f64), w.to(DType::f64), bias.to(DType::f64));
          PackedLinear f(w, bias);
          EXPECT_LT(largest_difference(f(x), exact), tolerance) << m << " " << n << " " << k;
          exact = (exact + residual.to(DType::f64)).relu();
          EXPECT_LT(largest_difference(f(x, FusedActivation::relu, residual), exact), tolerance)
              << m << " " << n << " " << k;
        }
      }
    }
  }
}

TEST(PackedLinear, RefusesGradients) {
  Tensor w = randn({4, 4}), x = randn({2, 4});
  w.requires_grad_();
  Tensor y = PackedLinear(w)(x);
  EXPECT_THROW(y.sum().backward(), Error);
}

TEST(PackedLinear, Threads) {
  NoGradGuard guard;
  Tensor w = randn({200, 300}), x = randn({50, 300});
  PackedLinear f(w);
  Tensor expected = linear(x, w);
  std::vector<double> errors(4, 1e9);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < errors.size(); ++i) {
    threads.emplace_back([&, i] {
      NoGradGuard inner;
      errors[i] = largest_difference(f(x), expected);
    });
  }
  for (std::thread& t : threads) t.join();
  for (double e : errors) EXPECT_LT(e, 1e-3);
}

TEST(PackedLinear, BadTypes) {
  Tensor w = randn({4, 4});
  EXPECT_THROW(PackedLinear(w.to(DType::f64), {}, DType::bf16), DTypeError);
  EXPECT_THROW(PackedLinear(w.to(DType::i32)), DTypeError);
  EXPECT_THROW(PackedLinear(randn({4})), ShapeError);
}

}  // namespace
}  // namespace deft
