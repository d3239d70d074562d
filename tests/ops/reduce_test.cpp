// What samples cannot say about reductions: ties, kinks, NaN, result types, empty inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "core/engine.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/cumulative.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace deft {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

Tensor leaf(std::vector<double> v) { return tensor(v).requires_grad_(); }
Values values_of(const Tensor& t) { return t.to_vector<double>(); }
Values grad_of(const Tensor& y, const Tensor& x) { return grad({y.sum()}, {x})[0].to_vector<double>(); }

TEST(Reduce, EqualExtremesShareTheGradient) {
  Tensor x = leaf({1, 3, 3, 2, 3});
  EXPECT_EQ(grad_of(amax(x), x), (Values{0, 1 / 3.0, 1 / 3.0, 0, 1 / 3.0}));
  Tensor z = leaf({2, -1, -1, 4});
  EXPECT_EQ(grad_of(amin(z), z), (Values{0, 0.5, 0.5, 0}));
  EXPECT_EQ(grad_of(norm(z, kInf), z), (Values{0, 0, 0, 1}));
}

// Ties in every place that is reduced over: first, last, middle, several dims, and dims with others between them.
TEST(Reduce, ExtremesShareTheGradient) {
  for (DType t : {DType::f32, DType::f64, DType::bf16}) {
    Tensor x =
        (arange(0, 3 * 300 * 5 * 4, 1, {DType::f64}) * 7).remainder(11).view({3, 300, 5, 4}).to(t).requires_grad_();
    for (std::vector<int64_t> dims :
         {std::vector<int64_t>{0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {2, 3}, {0, 2}, {0, 1, 2, 3}}) {
      Tensor y = amax(x, dims, true),
             g = (arange(0, y.numel(), 1, {DType::f64}).remainder(5) + 1).view(y.sizes()).to(t);
      x.zero_grad();
      y.backward(g);
      Tensor hit = x.detach().eq(y.detach()).to(DType::f64);
      Tensor share = (g.to(DType::f64) / hit.sum(dims, true)).to(t).to(DType::f64);
      EXPECT_EQ(values_of(x.grad()), values_of(share * hit)) << to_string(Shape(IntList(dims))) << " " << name_of(t);
      EXPECT_EQ(grad_of(amin(-x, dims, true).mul(-1), x), grad_of(amax(x, dims, true), x));
    }
  }
}
TEST(Reduce, NanExtremesGetTheGradient) {
  Tensor x = tensor<double>({1, NAN, 3, 4, 5, 5}).view({2, 3}).requires_grad_();
  EXPECT_EQ(grad_of(amax(x, {1}), x), (Values{0, 1, 0, 0, 0.5, 0.5}));
  EXPECT_EQ(grad_of(amin(x, {1}), x), (Values{0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(grad_of(max(x), x), (Values{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(grad_of(min(x), x), (Values{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(grad_of(amax(x, {0}), x), (Values{0, 1, 0, 1, 0, 1})) << "in columns";
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    Tensor many = full({300}, kInf, t);
    many.narrow(0, 7, 2).fill_(NAN);
    many.narrow(0, 9, 1).fill_(-NAN);
    many.requires_grad_();
    EXPECT_EQ(grad_of(amax(many).to(f64) * 3, many), grad_of(amin(many).to(f64) * 3, many));
    Values g = grad_of(amax(many).to(f64) * 3, many);
    for (size_t i = 0; i < g.size(); ++i) EXPECT_EQ(g[i], i >= 7 && i < 10 ? 1 : 0) << i;
  }
  Tensor zeros = leaf({-0.0, -1, 0.0});
  EXPECT_EQ(grad_of(amax(zeros), zeros), (Values{0.5, 0, 0.5})) << "both zeros are the largest";
}

// Not 0 times that gradient.
TEST(Reduce, WhatIsNotTheExtremeGetsNothingOfAGradientThatIsNan) {
  for (double g : {double{NAN}, kInf}) {
    Tensor x = tensor<double>({1, 3, 2, 3}).view({2, 2}).requires_grad_();
    auto others = [&](const Tensor& y) {
      const Values dx = values_of(grad({y}, {x}, {full(y.sizes(), g, f64)})[0]);
      EXPECT_FALSE(std::isfinite(dx[1]) || std::isfinite(dx[3]));
      return std::pair(dx[0], dx[2]);
    };
    EXPECT_EQ(others(max(x)), std::pair(0.0, 0.0));
    EXPECT_EQ(others(amax(x, {1})), std::pair(0.0, 0.0));
    Tensor transposed = x.t();
    EXPECT_EQ(others(amax(transposed, {0})), std::pair(0.0, 0.0)) << "in columns";
    EXPECT_EQ(others(amax(x.view({1, 2, 2, 1}), {0, 2})), std::pair(0.0, 0.0)) << "with a dim between them";
  }
}
// The NaNs share it, and of a norm it is multiplied by their sign, 0.
TEST(Reduce, InfiniteNormOfNan) {
  for (double p : {kInf, -kInf}) {
    Tensor x = leaf({1, NAN, 3});
    EXPECT_EQ(grad_of(norm(x, p), x), (Values{0, 0, 0}));
  }
}

TEST(Reduce, IndexedExtremeGivesTheGradientToTheFirst) {
  Tensor x = leaf({1, 3, 3, 2});
  auto [value, index] = max(x, 0);
  EXPECT_EQ(index.item<int64_t>(), 1);
  EXPECT_FALSE(index.requires_grad());
  EXPECT_EQ(grad_of(value, x), (Values{0, 1, 0, 0}));
}

TEST(Reduce, NanWinsAndIsFound) {
  Tensor x = tensor<double>({1, NAN, 5});
  EXPECT_TRUE(std::isnan(amax(x).item()));
  EXPECT_TRUE(std::isnan(amin(x).item()));
  EXPECT_EQ(argmax(x).item<int64_t>(), 1);
  EXPECT_TRUE(std::isnan(max(x, 0)[0].item()));
  EXPECT_EQ(nansum(x).item(), 6);
  for (DType t : {f32, f64, bf16, f16}) {
    EXPECT_TRUE(has_nan(x.to(t)));
    EXPECT_FALSE(has_nan(tensor<double>({1, kInf, -kInf}).to(t)));
    Tensor wide = zeros({3, 40001}, t);
    EXPECT_FALSE(has_nan(wide));
    wide.select(0, 2).select(0, 40000).fill_(NAN);
    EXPECT_TRUE(has_nan(wide));
    EXPECT_TRUE(has_nan(wide.t().slice(0, Slice(0, {}, 2))));
    EXPECT_FALSE(has_nan(wide.slice(1, Slice(1, {}, 2))));
  }
  EXPECT_FALSE(has_nan(zeros({0})));
  EXPECT_FALSE(has_nan(tensor<int64_t>({1})));
}

TEST(Reduce, GradientAtKinksIsZero) {
  for (double p : {0.5, 1.0, 1.5, 2.0, 3.0}) {
    Tensor x = leaf({0, 0, 0});
    Tensor g = grad({norm(x, p)}, {x}, {}, {.create_graph = true})[0];
    EXPECT_EQ(g.to_vector<double>(), (Values{0, 0, 0})) << p;
    if (g.requires_grad()) {
      Tensor gg = grad({g.sum()}, {x}, {}, {.allow_unused = true})[0];
      EXPECT_TRUE(!gg.defined() || !has_nan(gg)) << p;
    }
  }
  Tensor flat = leaf({2, 2, 2});
  EXPECT_EQ(grad_of(deft::std(flat), flat), (Values{0, 0, 0}));
}

TEST(Reduce, LogsumexpOfMinusInfinity) {
  Tensor x = leaf({-kInf, -kInf});
  Tensor y = logsumexp(x, {0});
  EXPECT_EQ(y.item(), -kInf);
  for (double g : grad_of(y, x)) EXPECT_TRUE(std::isnan(g)) << "as in PyTorch: there is no distribution";
  Tensor part = leaf({-kInf, 1});
  EXPECT_EQ(grad_of(logsumexp(part, {0}), part), (Values{0, 1}));
  EXPECT_EQ(logsumexp(tensor<double>({1e4, 1e4}), {0}).item(), 1e4 + std::log(2.0));
  EXPECT_EQ(logsumexp(tensor<double>({kInf, 0}), {0}).item(), kInf);
}

TEST(Reduce, ResultTypes) {
  for (DType t : {i8, u8, i32, i64, boolean}) {
    Tensor x = ones({3}, t);
    EXPECT_EQ(sum(x).dtype(), i64);
    EXPECT_EQ(prod(x).dtype(), i64);
    EXPECT_EQ(cumsum(x, 0).dtype(), i64);
    EXPECT_EQ(logsumexp(x, {0}).dtype(), f32);
    EXPECT_EQ(amax(x).dtype(), t);
    EXPECT_EQ(any(x).dtype(), boolean);
    EXPECT_THROW(mean(x), DTypeError);
    EXPECT_THROW(var(x), DTypeError);
    EXPECT_THROW(norm(x), DTypeError);
    EXPECT_EQ(mean(x, {}, false, f64).item(), 1);
    EXPECT_EQ(mean(x, {}, false, f64).dtype(), f64);
  }
  EXPECT_EQ(sum(full({300}, 200, u8)).item<int64_t>(), 60000);
  Tensor h = full({70000}, 1, f16);
  EXPECT_TRUE(std::isinf(sum(h).item()));
  EXPECT_EQ(sum(h, {}, false, f32).item(), 70000);
  EXPECT_EQ(mean(h).item(), 1);
  EXPECT_EQ(prod(tensor<double>({0.5, 4}), {0}, false, f32).dtype(), f32);
  EXPECT_EQ(softmax(ones({2}, i64), 0, f64).dtype(), f64);
  EXPECT_EQ(diff(tensor<int64_t>({0, 1, 1, 0}).to(boolean), 2).to_vector<int64_t>(), (std::vector<int64_t>{1, 1}));
}

TEST(Reduce, OverNothing) {
  Tensor none = zeros({0});
  EXPECT_EQ(sum(none).item(), 0);
  EXPECT_EQ(prod(none).item(), 1);
  EXPECT_FALSE(any(none).item<bool>());
  EXPECT_TRUE(all(none).item<bool>());
  EXPECT_TRUE(std::isnan(mean(none).item()));
  EXPECT_TRUE(std::isnan(var(none).item()));
  EXPECT_EQ(norm(none).item(), 0);
  EXPECT_THROW(amax(none), ValueError);
  EXPECT_THROW(argmax(none), ValueError);
  EXPECT_THROW(max(zeros({2, 0}), 1), ValueError);
  EXPECT_EQ(amax(zeros({0, 3}), {1}).sizes(), (Shape{0}));
}

TEST(Reduce, StandardDeviationOfLargeHalfs) {
  Tensor x = tensor<double>({-30000, 30000}).to(f16);  // the variance does not fit into 16 bits
  EXPECT_NEAR(deft::std(x, {}, 0).item(), 30000, 32);
}

TEST(Reduce, SumsOfMillionsAreExactEnough) {
  Tensor x = full({4000000}, 0.1, f32);
  // Equal terms round the same way: at most 64 additions into a lane before f64 takes over.
  double want = 4000000.0 * static_cast<double>(0.1f), tolerance = 64 * 0x1p-24;
  EXPECT_NEAR(sum(x).item(), want, want * tolerance);
  EXPECT_NEAR(mean(x).item(), static_cast<double>(0.1f), tolerance);
}

TEST(Softmax, RowsThatAreMinusInfinity) {
  Tensor x = tensor<double>({-kInf, 0, -kInf});
  EXPECT_EQ(softmax(x, 0).to_vector<double>(), (Values{0, 1, 0}));
  EXPECT_TRUE(has_nan(softmax(full({2}, -kInf, f64), 0)));  // as in PyTorch: there is no distribution
  EXPECT_EQ(softmax(full({2}, 1e300, f64), 0).to_vector<double>(), (Values{0.5, 0.5}));
}

TEST(Softmax, KeepsTheMemoryOrder) {
  Tensor x = ones({2, 3, 4, 5}).contiguous(MemoryFormat::channels_last);
  EXPECT_TRUE(softmax(x, 1).is_contiguous(MemoryFormat::channels_last));
  EXPECT_TRUE(softmax(ones({4, 6}).t(), 0).t().is_contiguous());
}

}  // namespace
}  // namespace deft
