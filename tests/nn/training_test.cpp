// Twenty steps of SGD give PyTorch's losses and weights.
#include "nn/activation.h"
#include "nn/containers.h"
#include "nn/conv.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pool.h"
#include "nn/rnn.h"
#include "nn/transformer.h"
#include "nn_util.h"
#include "ops/loss.h"

namespace deft::nn {
namespace {

struct LstmNet : Module {
  LSTM& lstm = add<LSTM>("lstm", 3, 6, RNNOptions{.batch_first = true});
  Linear& out = add<Linear>("out", 6, 4);
  Tensor forward(const Tensor& x) override { return out(lstm(x).output.select(1, -1)); }
};

struct TransformerNet : Module {
  Embedding& embed = add<Embedding>("embed", 11, 8);
  TransformerEncoder& encoder = add<TransformerEncoder>(
      "encoder", 8, 2, 2,
      TransformerOptions{.dim_feedforward = 12, .dropout = 0, .activation = FeedForward::gelu, .batch_first = true});
  Linear& out = add<Linear>("out", 8, 4);
  Tensor forward(const Tensor& x) override { return out(encoder(embed(x)).mean({1})); }
};

// Rounding errors could grow along the way; those found after 20 steps are at most 2.2 eps (losses and weights, both
// types), on a Neoverse-V1.
constexpr double kGrowth = 32;

void expect_training(const char* name, Module& net, double rate) {
  SCOPED_TRACE(name);
  State c = fixture("training").part(name);
  Tensor target = c.tensor("target");
  std::vector<double> losses = values(c.tensor("losses"));
  ASSERT_EQ(losses.size(), 20u);
  for (DType dtype : {DType::f64, DType::f32}) {
    double eps = eps_of(dtype);
    net.to(dtype);
    net.load_state_dict(c.part("state").tensors);
    Tensor x = c.tensor("x");
    if (is_floating(x.dtype())) x = x.to(dtype);
    for (int64_t step = 0; step < 20; ++step) {
      Tensor loss = cross_entropy(net(x[step % 5]), target[step % 5]);
      double expected = losses[static_cast<size_t>(step)];
      EXPECT_LE(std::abs(loss.item() - expected), kGrowth * eps) << "step " << step << " in " << name_of(dtype);
      net.zero_grad();
      loss.backward();
      NoGradGuard no_grad;
      for (Tensor& p : net.parameters()) p.sub_(p.grad() * rate);
    }
    State final = c.part("final");
    for (const NamedTensor& t : net.state_dict()) expect_near(t.tensor, final.tensor(t.name), eps, kGrowth, t.name);
  }
}

TEST(NnTraining, Mlp) {
  Sequential net;
  net.add<Linear>(6, 16);
  net.add<ReLU>();
  net.add<Linear>(16, 4);
  expect_training("mlp", net, 0.3);
}

TEST(NnTraining, Convolutions) {
  Sequential net;
  net.add<Conv2d>(2, 6, 3, ConvOptions{.padding = 1, .bias = false});
  net.add<BatchNorm2d>(6);
  net.add<ReLU>();
  net.add<MaxPool2d>(2);
  net.add<Conv2d>(6, 6, 3);
  net.add<GroupNorm>(2, 6);
  net.add<SiLU>();
  net.add<AdaptiveAvgPool2d>(1);
  net.add<Flatten>();
  net.add<Linear>(6, 4);
  expect_training("conv", net, 0.2);
}

TEST(NnTraining, Transformer) {
  TransformerNet net;
  expect_training("transformer", net, 0.1);
}

TEST(NnTraining, Lstm) {
  LstmNet net;
  expect_training("lstm", net, 0.5);
}

}  // namespace
}  // namespace deft::nn
