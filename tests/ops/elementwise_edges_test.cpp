// Values at the edges that follow PyTorch's.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "ops/all_ops.h"

namespace deft {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

// What where() masks away has the gradient 0, which must not meet the infinite slope of log at 0.
TEST(ElementwiseEdges, GradientsOfMaskedXlogy) {
  Tensor x = tensor<double>({1, 2, 0}, with_grad(f64)), y = tensor<double>({0, 1, 0});
  where(y > 0, xlogy(x, y), 0).sum().backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 0}));
  Tensor a = tensor<double>({3, 1}, with_grad(f64)), b = tensor<double>({1, 0}, with_grad(f64));
  xlogy(a, b).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0, -kInf}));
  EXPECT_EQ(b.grad().to_vector<double>(), (std::vector<double>{3, kInf}));
}

// Through i64, as in PyTorch, so that negative numbers wrap as they do from integers.
TEST(ElementwiseEdges, FloatsBecomeBytesThroughI64) {
  const std::vector<double> values = {-1,   -1.5,  -300, 255,   256,  300, 1e10, -1e10,
                                      1e20, -1e20, kInf, -kInf, kNan, 128, -129};
  for (DType from : {f32, f64, bf16}) {
    Tensor x = tensor(values).to(from);
    EXPECT_EQ(x.to(u8).to_vector<int>(), (std::vector<int>{255, 255, 212, 255, 0, 44, 0, 0, 0, 0, 0, 0, 0, 128, 127}));
    EXPECT_EQ(x.to(i8).to_vector<int>(), (std::vector<int>{-1, -1, -44, -1, 0, 44, 0, 0, 0, 0, 0, 0, 0, -128, 127}));
  }
  EXPECT_EQ(tensor<double>({1e10, -kInf, kNan}).to(i32).to_vector<int>(), (std::vector<int>{INT32_MAX, INT32_MIN, 0}));
}

// A 0-d tensor does not widen a result of 16 bits: it is rounded to its type before the op, as in PyTorch.
TEST(ElementwiseEdges, ScalarTensorsAreRoundedToTheResult) {
  const double exponent = 4.996;  // 4.99609375 in f16, 5 in bf16: whole, so that negative bases have a power
  Tensor base = tensor<double>({-2, -0.5, 3}).to(bf16), number = full({}, exponent, f16);
  const std::vector<double> want = pow(base, full({}, exponent, bf16)).to(f64).to_vector<double>();
  EXPECT_EQ(want, (std::vector<double>{-32, -0.03125, 243}));
  EXPECT_EQ(pow(base, number).to(f64).to_vector<double>(), want);
  EXPECT_EQ(base.clone().pow_(number).to(f64).to_vector<double>(), want);
  Tensor five = full({3}, 5, bf16);
  EXPECT_EQ(gt(five, number).to_vector<bool>(), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(eq(five, number).to_vector<bool>(), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(lt(full({}, exponent, f32), five).to_vector<bool>(), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(where(five > 0, number, five).to(f64).to_vector<double>(), (std::vector<double>{5, 5, 5}));
  EXPECT_EQ(addcmul(zeros({3}, bf16), five, number).to(f64).to_vector<double>(), (std::vector<double>{25, 25, 25}));
}

using Call1 = Tensor (*)(const Tensor&);
// The gradient at x of a result whose gradient is g.
double slope_at(Call1 f, double x, double g = 1) {
  Tensor t = tensor({x}, with_grad(f64));
  f(t).backward(full({1}, g, f64));
  return t.grad().item();
}
TEST(ElementwiseEdges, ClampGradientsAtTheirBounds) {
  Call1 both = [](const Tensor&x) { return x.clamp(-1, 1); }, low = [](const Tensor&x) { return x.clamp_min(-1); },
        high = [](const Tensor&x) { return x.clamp_max(1); };
  for (double x : {-1.0, 1.0, -2.0, 2.0, kInf, -kInf, kNan}) {
    EXPECT_EQ(slope_at(both, x), 0) << x;
    EXPECT_EQ(slope_at(low, x), x > -1) << x;
    EXPECT_EQ(slope_at(high, x), x < 1) << x;
  }
  EXPECT_EQ(slope_at(both, 0.5), 1);
  EXPECT_EQ(slope_at([](const Tensor& x) { return x.clamp(kNan, 1); }, 0), 0);
}
// {x, low, high} and the gradient of each: equal ones share, also with NaN elsewhere.
TEST(ElementwiseEdges, ClampByTensorsGradientsAtTheirBounds) {
  struct Case {
    double at[3], want[3];
  };
  const Case kCases[] = {
      {{1, 0, 2}, {1, 0, 0}},    {{0, 0, 2}, {0.5, 0.5, 0}}, {{2, 0, 2}, {0.5, 0, 0.5}}, {{1, 1, 1}, {1, 0, 0}},
      {{0, 1, 1}, {0, 1, 0}},    {{2, 1, 1}, {0, 0, 1}},     {{1, 2, 1}, {0, 0, 1}},     {{1, 1, 0}, {0, 0, 1}},
      {{3, 0, 2}, {0, 0, 1}},    {{-1, 0, 2}, {0, 1, 0}},    {{kNan, 0, 1}, {1, 0, 0}},  {{kNan, 1, 0}, {1, 0, 1}},
      {{0, kNan, 1}, {1, 0, 0}}, {{2, kNan, 1}, {0, 0, 0}},  {{0, 0, kNan}, {1, 0, 0}},  {{0, 1, kNan}, {0, 0, 0}},
  };
  for (const Case& c : kCases) {
    Tensor in[3];
    for (int i = 0; i < 3; ++i) in[i] = tensor({c.at[i]}, with_grad(f64));
    clamp(in[0], in[1], in[2]).backward(ones({1}, f64));
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(in[i].grad().item(), c.want[i]) << i << " of " << c.at[0] << " " << c.at[1] << " " << c.at[2];
  }
}
// What PyTorch's numbers are next to NaN and infinities, for the number itself and for the gradient that comes in.
TEST(ElementwiseEdges, GradientsNextToNan) {
  Call1 magnitude = [](const Tensor& x) { return abs(x); };
  EXPECT_EQ(slope_at(magnitude, kNan), 0);
  EXPECT_TRUE(std::isnan(slope_at(magnitude, 0, kInf))) << "a slope of 0 times infinity";
  EXPECT_TRUE(std::isnan(slope_at(magnitude, 0, kNan)));
  EXPECT_EQ(slope_at([](const Tensor& x) { return elu(x, 0.5); }, kNan, 3), 3);
  EXPECT_EQ(slope_at([](const Tensor& x) { return celu(x, 0.5); }, kNan, 3), 3);
  EXPECT_EQ(slope_at([](const Tensor& x) { return selu(x); }, kNan, 1), kSeluScale);
  EXPECT_TRUE(std::isnan(slope_at([](const Tensor& x) { return huber(x); }, kNan)));
  for (Reduction r : {Reduction::none, Reduction::mean, Reduction::sum}) {
    Tensor x = tensor({kNan, kInf, 2.0}, with_grad(f64)), y = tensor({1.0, kInf, 4.0}, with_grad(f64));
    l1_loss(x, y, r).sum().backward();
    const double step = r == Reduction::mean ? 1 / 3.0 : 1;
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, -step}));
    EXPECT_EQ(y.grad().to_vector<double>(), (std::vector<double>{0, 0, step}));
    Tensor z = tensor({kNan, 2.0}, with_grad(f64));
    huber_loss(z, tensor({0.0, 0.0}), r).sum().backward();
    EXPECT_TRUE(std::isnan(z.grad().to_vector<double>()[0])) << "unlike a sign, a square has no slope there";
  }
}
TEST(ElementwiseEdges, GradientsOfSmallNumbers) {
  const double x = 3e-309;  // 1 / x is infinite
  EXPECT_NEAR(slope_at([](const Tensor& t) { return log10(t); }, x) / (0.43429448190325182765 / x), 1, 1e-12);
}

// By weight, in whatever order they come: all tensors, then 0-d tensors, then numbers.
TEST(ElementwiseEdges, ThreeTypesPromoteByWeight) {
  Tensor whole = ones({2}, i32), narrow = scalar_tensor(1, f32), wide = scalar_tensor(1, f64);
  for (auto [a, b, c] : {std::array{whole, narrow, wide}, {narrow, whole, wide}, {wide, narrow, whole}}) {
    EXPECT_EQ(addcdiv(a, b, c).dtype(), f64);
    EXPECT_EQ(addcmul(a, b, c).dtype(), f64);
  }
  Tensor half = ones({2}, f16);
  EXPECT_EQ(addcmul(narrow, half, wide).dtype(), f16);
  EXPECT_EQ(addcmul(wide, half, ones({2}, f32)).dtype(), f32);
  EXPECT_EQ(clamp(whole, narrow, scalar_tensor(1, bf16)).dtype(), f32);
  EXPECT_EQ(addcdiv(whole, scalar_tensor(1, bf16), scalar_tensor(2, i64)).dtype(), bf16);
}

// The quotient in the gradient of remainder is that of floor_divide.
TEST(ElementwiseEdges, RemainderGradients) {
  auto slope = [](double a, double b) {
    Tensor x = tensor({a}), y = tensor({b}, with_grad(f64));
    remainder(x, y).sum().backward();
    return y.grad().item();
  };
  for (double a : {7.0, -7.0, 0.3, 6.0, kInf, 1.0, -1.0})
    for (double b : {2.0, -2.0, 0.1, kInf, -kInf}) {
      const double want = -floor_divide(tensor({a}), tensor({b})).item(), got = slope(a, b);
      EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want))) << a << " " << b << ": " << got;
    }
  EXPECT_EQ(slope(6, 0.1), -59) << "6 / 0.1 is rounded to 60";
}

// Bools are numbers to formulas, too.
TEST(ElementwiseEdges, GradientsNextToBools) {
  Tensor a = tensor<float>({1, 2}, with_grad()), truth = tensor<bool>({true, false});
  atan2(a, truth).sum().backward();
  EXPECT_EQ(a.grad().to_vector<double>(), (std::vector<double>{0.5, 0}));
}

}  // namespace
}  // namespace deft
