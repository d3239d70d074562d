// Activations and dropout.
#include "nn/activation.h"

#include "nn/dropout.h"
#include "nn_util.h"
#include "ops/random.h"

namespace deft::nn {
namespace {

void expect_case(const char* name, Module&& module, double length = 4) {
  static const State all = fixture("activation");
  SCOPED_TRACE(name);
  expect_as_pytorch(all.part(name), module, length);
}

TEST(NnActivation, WithoutSettings) {
  expect_case("relu", ReLU());
  expect_case("relu6", ReLU6());
  expect_case("sigmoid", Sigmoid());
  expect_case("log_sigmoid", LogSigmoid());
  expect_case("tanh", Tanh());
  expect_case("silu", SiLU());
  expect_case("mish", Mish());
  expect_case("selu", SELU());
  expect_case("softsign", Softsign());
  expect_case("tanhshrink", Tanhshrink());
  expect_case("hardsigmoid", Hardsigmoid());
  expect_case("hardswish", Hardswish());
}

TEST(NnActivation, WithSettings) {
  expect_case("gelu", GELU());
  expect_case("gelu_tanh", GELU(GeluApproximation::tanh));
  expect_case("leaky_relu", LeakyReLU(0.2));
  expect_case("elu", ELU(1.5));
  expect_case("celu", CELU(1.5));
  expect_case("hardshrink", Hardshrink(0.3));
  expect_case("softshrink", Softshrink(0.3));
  expect_case("softplus", Softplus(2, 10));
  expect_case("hardtanh", Hardtanh(-0.5, 2));
  expect_case("threshold", Threshold(0.1, -3));
  expect_case("softmax", Softmax(1), 16);
  expect_case("log_softmax", LogSoftmax(-1), 16);
  expect_case("softmin", Softmin(-1), 16);
  expect_case("glu", GLU());
  expect_case("prelu", PReLU(), 96);
  expect_case("prelu_channels", PReLU(3), 96);
}

TEST(NnActivation, InPlace) {
  Tensor x = tensor({-1.0f, 2.0f});
  Tensor y = ReLU(true)(x);
  EXPECT_TRUE(y.is_same(x));
  EXPECT_VALUES(x, 0, 2);
}

TEST(NnActivation, DescribesItself) {
  EXPECT_EQ(ReLU().describe(), "ReLU");
  EXPECT_EQ(Hardswish().describe(), "Hardswish");
  EXPECT_EQ(GELU(GeluApproximation::tanh).describe(), "GELU(tanh)");
  EXPECT_EQ(LeakyReLU().describe(), "LeakyReLU(slope=0.01)");
  EXPECT_EQ(Softmax(-1).describe(), "Softmax(dim=-1)");
  EXPECT_EQ(PReLU(3).describe(), "PReLU(3)");
  EXPECT_EQ(AlphaDropout(0.25).describe(), "AlphaDropout(p=0.25)");
}

TEST(NnActivation, WrongInputs) {
  expect_error<ShapeError>([] { PReLU(3)(zeros({2, 4})); }, "3 slopes for an input [2, 4] f32");
  expect_error<ShapeError>([] { GLU()(zeros({2, 3})); }, "cannot be cut in half");
  expect_error<ValueError>([] { ReLU()(Tensor()); }, "ReLU: the input is an undefined tensor");
}

// --- Dropout

// How many of `values` are 0; 5 standard deviations of a binomial distribution.
void expect_share_of_zeros(const Tensor& x, double p) {
  auto n = static_cast<double>(x.numel());
  double zeros = (x == 0).to(DType::f64).sum().item();
  EXPECT_LE(std::abs(zeros - n * p), 5 * std::sqrt(n * p * (1 - p)) + 1) << zeros << " of " << n;
}

TEST(NnDropout, DropsAndScales) {
  Dropout drop(0.3);
  Tensor x = ones({100, 100}, with_grad());
  Tensor y = drop(x);
  expect_share_of_zeros(y.detach(), 0.3);
  EXPECT_NEAR(y.amax().item(), 1 / 0.7, 1e-6);
  y.sum().backward();
  expect_close(x.grad(), y.detach(), "the gradient has the same mask");
  EXPECT_NE(values(drop(x.detach())), values(y)) << "each call draws anew";
}

TEST(NnDropout, IsTheIdentityInEvalMode) {
  Tensor x = sample({2, 3, 4}, 1, DType::f32);
  auto check = [&](Module&& drop) {
    drop.eval();
    EXPECT_TRUE(drop(x).is_same(x)) << drop.describe();
  };
  check(Dropout());
  check(Dropout1d());
  check(Dropout2d());
  check(AlphaDropout());
  Dropout frozen;
  frozen.freeze();
  frozen.train();
  EXPECT_TRUE(frozen(x).is_same(x));
}

TEST(NnDropout, WholeChannels) {
  auto check = [](Module&& drop, IntList sizes) {
    Tensor y = drop(ones(sizes)).flatten(2).detach();
    Tensor low = y.amin({-1}), high = y.amax({-1});
    EXPECT_EQ(values(low), values(high)) << drop.describe();
    expect_share_of_zeros(low, 0.5);
    EXPECT_EQ(high.amax().item(), 2);
  };
  check(Dropout1d(0.5), {20, 30, 4});
  check(Dropout2d(0.5), {20, 30, 2, 3});
  check(Dropout3d(0.5), {20, 30, 2, 1, 2});
  Tensor unbatched = Dropout3d(0.5)(ones({100, 2, 2, 2}));
  EXPECT_EQ(unbatched.sizes(), (Shape{100, 2, 2, 2}));
  EXPECT_EQ(values(unbatched.amin({1, 2, 3})), values(unbatched.amax({1, 2, 3})));
}

TEST(NnDropout, AlphaKeepsMeanAndVariance) {
  Tensor x = randn({400, 500}, DType::f64);
  Tensor y = AlphaDropout(0.2)(x);
  EXPECT_NEAR(y.mean().item(), 0, 0.02);
  EXPECT_NEAR(y.var().item(), 1, 0.03);
  EXPECT_EQ(AlphaDropout(1)(x).norm().item(), 0);
}

TEST(NnDropout, WrongProbability) {
  expect_error<ValueError>([] { Dropout(1.5); }, "the probability lies in [0, 1], found 1.5");
  expect_error<ShapeError>([] { Dropout1d()(zeros({2, 3, 4, 5})); }, "Dropout1d(p=0.5): takes 3 dimensions");
}

}  // namespace
}  // namespace deft::nn
