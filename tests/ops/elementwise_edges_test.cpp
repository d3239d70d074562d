// Values at the edges that follow PyTorch's.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace deft
