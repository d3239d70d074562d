// First values: PyTorch's distributions, by their bounds and moments.
#include "nn/init.h"

#include "nn/attention.h"
#include "nn/conv.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/rnn.h"
#include "nn_util.h"
#include "ops/matmul.h"

namespace deft::nn {
namespace {

// Uniform in [-bound, bound]: it gets near both ends, and the variance is bound^2 / 3.
void expect_uniform(const Tensor& t, double bound, const char* what) {
  Tensor x = t.detach().to(DType::f64);
  auto n = static_cast<double>(x.numel());
  EXPECT_LE(x.abs().amax().item(), bound * (1 + 1e-6)) << what;
  EXPECT_GE(x.amax().item(), bound * (1 - 20 / n)) << what;
  EXPECT_LE(x.amin().item(), -bound * (1 - 20 / n)) << what;
  EXPECT_NEAR(x.mean().item(), 0, 5 * bound / std::sqrt(3 * n)) << what;
  EXPECT_NEAR(x.square().mean().item(), bound * bound / 3, 5 * bound * bound * std::sqrt(4.0 / 45 / n)) << what;
}
void expect_normal(const Tensor& t, double std, const char* what) {
  Tensor x = t.detach().to(DType::f64);
  auto n = static_cast<double>(x.numel());
  EXPECT_NEAR(x.mean().item(), 0, 5 * std / std::sqrt(n)) << what;
  EXPECT_NEAR(x.square().mean().item(), std * std, 5 * std * std * std::sqrt(2 / n)) << what;
  EXPECT_GT(x.abs().amax().item(), 3 * std) << what;
}

TEST(NnInit, Defaults) {
  manual_seed(1);
  Linear linear(64, 400);
  expect_uniform(linear.weight, 1.0 / 8, "Linear.weight");
  expect_uniform(linear.bias, 1.0 / 8, "Linear.bias");
  Conv2d conv(16, 256, 3, {.groups = 2});
  expect_uniform(conv.weight, 1 / std::sqrt(8.0 * 9), "Conv2d.weight");
  expect_uniform(conv.bias, 1 / std::sqrt(8.0 * 9), "Conv2d.bias");
  ConvTranspose2d transposed(16, 256, 3);
  expect_uniform(transposed.weight, 1 / std::sqrt(256.0 * 9), "ConvTranspose2d.weight");
  Bilinear bilinear(25, 10, 200);
  expect_uniform(bilinear.weight, 0.2, "Bilinear.weight");
  expect_uniform(bilinear.bias, 0.2, "Bilinear.bias");
  LSTM lstm(10, 64);
  for (const NamedTensor& p : lstm.named_parameters()) expect_uniform(p.tensor, 1.0 / 8, p.name.c_str());
  MultiheadAttention attention(48, 4);
  expect_uniform(attention.in_proj_weight, std::sqrt(6.0 / (48 + 144)), "in_proj_weight");
  expect_uniform(attention.out_proj.weight, 1 / std::sqrt(48.0), "out_proj.weight");
  EXPECT_EQ(attention.in_proj_bias.detach().abs().amax().item(), 0);
  EXPECT_EQ(attention.out_proj.bias.detach().abs().amax().item(), 0);
  Embedding embedding(200, 50, {.padding_idx = 7});
  EXPECT_EQ(embedding.weight.detach()[7].abs().amax().item(), 0);
  expect_normal(embedding.weight.detach().slice(0, Slice(8)), 1, "Embedding.weight");
}

TEST(NnInit, TheSeedDecides) {
  manual_seed(3);
  std::vector<double> first = values(Linear(5, 5).weight);
  manual_seed(3);
  EXPECT_EQ(values(Linear(5, 5).weight), first);
  EXPECT_NE(values(Linear(5, 5).weight), first);
}

TEST(NnInit, GainsAndFans) {
  using init::Nonlinearity;
  EXPECT_EQ(init::gain(Nonlinearity::linear), 1);
  EXPECT_EQ(init::gain(Nonlinearity::sigmoid), 1);
  EXPECT_DOUBLE_EQ(init::gain(Nonlinearity::tanh), 5.0 / 3);
  EXPECT_DOUBLE_EQ(init::gain(Nonlinearity::relu), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(init::gain(Nonlinearity::leaky_relu, 0.2), std::sqrt(2 / 1.04));
  EXPECT_EQ(init::gain(Nonlinearity::selu), 0.75);
  init::Fans f = init::fans(empty({8, 4, 3, 5}));
  EXPECT_EQ(f.in, 60);
  EXPECT_EQ(f.out, 120);
  expect_error<ShapeError>([] { init::fans(empty({8})); }, "at least 2 dimensions");
}

TEST(NnInit, Distributions) {
  using init::FanMode, init::Nonlinearity;
  Tensor w = empty({80, 20, 3}, with_grad());
  expect_uniform(init::uniform_(w, -0.3, 0.3), 0.3, "uniform");
  expect_normal(init::normal_(w, 0, 0.7), 0.7, "normal");
  expect_uniform(init::xavier_uniform_(w, 2), 2 * std::sqrt(6.0 / 300), "xavier uniform");
  expect_normal(init::xavier_normal_(w), std::sqrt(2.0 / 300), "xavier normal");
  expect_uniform(init::kaiming_uniform_(w), std::sqrt(6.0 / 60), "kaiming uniform");
  expect_normal(init::kaiming_normal_(w, {.mode = FanMode::out, .nonlinearity = Nonlinearity::relu}),
                std::sqrt(2.0 / 240), "kaiming normal");
  EXPECT_TRUE(w.requires_grad() && w.is_leaf());
  init::constant_(w, 2.5);
  EXPECT_EQ(w.detach().amin().item(), 2.5);
  Tensor square = empty({2, 3});
  init::eye_(square);
  EXPECT_VALUES(square, 1, 0, 0, 0, 1, 0);
}

TEST(NnInit, TruncatedNormal) {
  Tensor w = empty({200, 100}, with_grad());
  init::trunc_normal_(w, 0, 1, -1, 1);
  Tensor x = w.detach().to(DType::f64);
  EXPECT_LE(x.abs().amax().item(), 1);
  // The variance of a normal distribution cut at one standard deviation is 0.29112.
  EXPECT_NEAR(x.square().mean().item(), 0.29112, 0.01);
  init::trunc_normal_(w, 5, 0.1, 4.95, 10);
  EXPECT_GE(w.detach().amin().item(), 4.95 - 1e-6);
  expect_error<ValueError>([&] { init::trunc_normal_(w, 0, 1, 2, 1); }, "low must be less than high");
}

TEST(NnInit, Orthogonal) {
  for (Shape sizes : {Shape{20, 30}, Shape{30, 20}, Shape{16, 4, 2, 2}, Shape{150, 150}}) {
    manual_seed(1);
    Tensor w = empty(sizes, with_grad(DType::f64));
    init::orthogonal_(w, 2);
    Tensor rows = w.detach().flatten(1);
    if (rows.size(0) > rows.size(1)) rows = rows.t();
    Tensor product = matmul(rows, rows.t()), expected = eye(rows.size(0), -1, DType::f64) * 4;
    expect_close(product, expected, to_string(sizes), 2e-14);
  }
  expect_error<ShapeError>(
      [] {
        Tensor x = empty({3});
        init::orthogonal_(x);
      },
      "at least 2 dimensions");
}

}  // namespace
}  // namespace deft::nn
