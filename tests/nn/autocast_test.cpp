// Every family of layers under autocast: types of results and gradients, and values near those of f32.
#include "amp/autocast.h"

#include "nn/nn.h"
#include "nn_util.h"

namespace deft::nn {
namespace {

constexpr DType kF32 = DType::f32;
// Stands for the type of the guard.
constexpr DType kLow = DType::bf16;

struct Case {
  std::string name;
  std::shared_ptr<Module> module;
  Shape sizes;           // of the input
  DType of_f32, of_low;  // type of the result for an input of f32, and of the low type
  // Numbers rounded to the low type one after the other on the way from the input to the result, and again on the way
  // back.
  double roundings;
  std::function<Tensor(const Tensor&)> call = {};
};

template <class M, class... Args>
Case layer(std::string name, Shape sizes, DType of_f32, DType of_low, double roundings, Args&&... args) {
  auto module = std::make_shared<M>(std::forward<Args>(args)...);
  return {std::move(name), module, sizes, of_f32, of_low, roundings, [m = module.get()](const Tensor& x) {
            if constexpr (requires { m->forward(x).output; })
              return m->forward(x).output;
            else
              return static_cast<Module&>(*m).forward(x);
          }};
}

std::vector<Case> cases() {
  RngScope rng({5, 0});
  std::vector<Case> all;
  // Products: input and weight are rounded, and the result.
  all.push_back(layer<Linear>("Linear", {6, 16}, kLow, kLow, 3, 16, 8));
  all.push_back(layer<Conv1d>("Conv1d", {2, 4, 9}, kLow, kLow, 3, 4, 6, 3));
  all.push_back(layer<Conv2d>("Conv2d", {2, 4, 7, 7}, kLow, kLow, 3, 4, 6, 3, ConvOptions{.padding = 1}));
  all.push_back(layer<Conv2d>("Conv2d groups", {2, 4, 7, 7}, kLow, kLow, 3, 4, 8, 3, ConvOptions{.groups = 4}));
  all.push_back(layer<Conv3d>("Conv3d", {1, 2, 5, 5, 5}, kLow, kLow, 3, 2, 3, 3));
  all.push_back(layer<ConvTranspose2d>("ConvTranspose2d", {2, 4, 5, 5}, kLow, kLow, 3, 4, 3, 3));
  auto form = std::make_shared<Bilinear>(8, 8, 4);
  all.push_back({"Bilinear", form, {5, 8}, kLow, kLow, 6, [m = form.get()](const Tensor& x) { return (*m)(x, x); }});
  // Sums and statistics: f32, whatever comes in. Batch norm computes so and keeps its input's type.
  all.push_back(layer<BatchNorm1d>("BatchNorm1d", {16, 5}, kF32, kLow, 5, 5));
  all.push_back(layer<BatchNorm2d>("BatchNorm2d", {4, 3, 5, 5}, kF32, kLow, 5, 3));
  all.push_back(
      layer<InstanceNorm2d>("InstanceNorm2d", {2, 3, 5, 5}, kF32, kF32, 4, 3, InstanceNormOptions{.affine = true}));
  all.push_back(layer<GroupNorm>("GroupNorm", {2, 6, 5, 5}, kF32, kF32, 4, 2, 6));
  all.push_back(layer<LayerNorm>("LayerNorm", {4, 16}, kF32, kF32, 4, 16));
  all.push_back(layer<RMSNorm>("RMSNorm", {4, 16}, kF32, kF32, 4, 16));
  all.push_back(layer<Softmax>("Softmax", {4, 9}, kF32, kF32, 4, -1));
  all.push_back(layer<LogSoftmax>("LogSoftmax", {4, 9}, kF32, kF32, 4, -1));
  // Elementwise and pooling: what they are given.
  all.push_back(layer<ReLU>("ReLU", {4, 9}, kF32, kLow, 2));
  all.push_back(layer<GELU>("GELU", {4, 9}, kF32, kLow, 4));
  all.push_back(layer<SiLU>("SiLU", {4, 9}, kF32, kLow, 4));
  // One weight for all, whose gradient is a sum of terms of both signs.
  all.push_back(layer<PReLU>("PReLU", {4, 9}, kF32, kF32, 10));
  all.push_back(layer<GLU>("GLU", {4, 8}, kF32, kLow, 5));
  all.push_back(layer<MaxPool2d>("MaxPool2d", {2, 3, 6, 6}, kF32, kLow, 2, 2));
  all.push_back(layer<AvgPool2d>("AvgPool2d", {2, 3, 6, 6}, kF32, kLow, 3, 2));
  all.push_back(layer<AdaptiveAvgPool2d>("AdaptiveAvgPool2d", {2, 3, 6, 6}, kF32, kLow, 3, 3));
  // States are rounded at every one of 5 steps.
  all.push_back(layer<RNN>("RNN", {5, 3, 8}, kLow, kLow, 20, 8, 6));
  all.push_back(
      layer<LSTM>("LSTM", {5, 3, 8}, kLow, kLow, 25, 8, 6, RNNOptions{.num_layers = 2, .bidirectional = true}));
  all.push_back(layer<GRU>("GRU", {5, 3, 8}, kLow, kLow, 25, 8, 6));
  all.push_back(layer<LSTMCell>("LSTMCell", {3, 8}, kLow, kLow, 8, 8, 6));
  all.push_back(layer<GRUCell>("GRUCell", {3, 8}, kLow, kLow, 8, 8, 6));
  auto packed = std::make_shared<LSTM>(8, 6, RNNOptions{.bidirectional = true});
  all.push_back({"LSTM packed", packed, {5, 3, 8}, kLow, kLow, 25, [m = packed.get()](const Tensor& x) {
                   return (*m)(pack_padded_sequence(x, {2, 5, 1}, false, false)).output.data;
                 }});
  // Projections, scores, weights and the last matmul; two norms and two matmuls more in a whole layer.
  all.push_back(layer<MultiheadAttention>("MultiheadAttention", {6, 2, 16}, kLow, kLow, 12, 16, 4));
  TransformerOptions plain{.dim_feedforward = 24, .dropout = 0};
  all.push_back(layer<TransformerEncoderLayer>("TransformerEncoderLayer", {6, 2, 16}, kF32, kF32, 25, 16, 4, plain));
  auto decoder = std::make_shared<TransformerDecoderLayer>(16, 4, plain);
  all.push_back({"TransformerDecoderLayer", decoder, {6, 2, 16}, kF32, kF32, 35, [m = decoder.get()](const Tensor& x) {
                   return (*m)(x, x, {.causal = true});
                 }});
  auto net = std::make_shared<Sequential>();
  net->add<Conv2d>(3, 8, 3, ConvOptions{.padding = 1, .bias = false});
  net->add<BatchNorm2d>(8);
  net->add<ReLU>();
  net->add<MaxPool2d>(2);
  net->add<Flatten>();
  net->add<Linear>(8 * 9, 5);
  all.push_back(
      {"Sequential", net, {8, 3, 6, 6}, kLow, kLow, 12, [m = net.get()](const Tensor& x) { return (*m)(x); }});
  return all;
}

struct Run {
  Tensor y, input_grad;
  std::vector<Tensor> grads;
};

Run run(const Case& c, const Tensor& input, DType guard_type) {
  c.module->zero_grad();
  Tensor x = input.detach().clone().requires_grad_();
  Run r;
  {
    AutocastGuard guard(guard_type);
    r.y = c.call(x);
  }
  // A weighted sum: gradients of norms and softmax would vanish for a plain one.
  Tensor w = sample(r.y.sizes(), 9, kF32);
  (r.y.to(kF32) * w).sum().backward();
  r.input_grad = x.grad();
  for (const Tensor& p : c.module->parameters()) r.grads.push_back(p.grad());
  return r;
}

// In the norm: single elements may be differences of large ones.
void expect_near_in_norm(const Tensor& found, const Tensor& exact, double tolerance, const std::string& what) {
  ASSERT_TRUE(found.defined() && exact.defined()) << what;
  double size = exact.detach().to(DType::f64).norm().item();
  double error = (found.detach().to(DType::f64) - exact.detach().to(DType::f64)).norm().item();
  EXPECT_TRUE(error <= tolerance * size + 1e-6) << what << ": off by " << error << " of " << size;
}

void check(const Case& c, DType low) {
  SCOPED_TRACE(c.name + " in " + std::string(name_of(low)));
  double eps = low == DType::bf16 ? 0x1p-8 : 0x1p-11;  // largest relative error of a rounding
  auto expected = [&](DType t) { return t == kF32 ? kF32 : low; };
  Tensor x = sample(c.sizes, 3, kF32);
  Run exact = run(c, x, kF32);
  ASSERT_EQ(exact.y.dtype(), kF32);
  for (DType type : {kF32, low}) {
    Run r = run(c, x.to(type), low);
    EXPECT_EQ(r.y.dtype(), expected(type == kF32 ? c.of_f32 : c.of_low)) << "input " << name_of(type);
    EXPECT_EQ(r.input_grad.dtype(), type);
    // The input itself is rounded too where it is low.
    double tolerance = eps * (c.roundings + 1);
    expect_near_in_norm(r.y, exact.y, tolerance, "result");
    expect_near_in_norm(r.input_grad, exact.input_grad, 2 * tolerance, "gradient of the input");
    for (size_t i = 0; i < r.grads.size(); ++i) {
      EXPECT_EQ(r.grads[i].dtype(), kF32) << "parameter " << i;
      expect_near_in_norm(r.grads[i], exact.grads[i], 2 * tolerance, "gradient of parameter " + std::to_string(i));
    }
  }
  for (const Tensor& p : c.module->parameters()) EXPECT_EQ(p.dtype(), kF32);
  for (const NamedTensor& b : c.module->named_buffers()) {
    EXPECT_EQ(b.tensor.dtype(), is_floating(b.tensor.dtype()) ? kF32 : DType::i64) << b.name;
  }
}

TEST(NnAutocast, EveryLayerInBf16) {
  for (const Case& c : cases()) check(c, DType::bf16);
}
TEST(NnAutocast, EveryLayerInF16) {
  for (const Case& c : cases()) check(c, DType::f16);
}

TEST(NnAutocast, LowPrecisionIsUsed) {
  for (const Case& c : cases()) {
    if (c.of_f32 != kLow) continue;
    Tensor x = sample(c.sizes, 3, kF32);
    NoGradGuard no_grad;
    Tensor exact = c.call(x);
    AutocastGuard guard(DType::bf16);
    EXPECT_NE(values(c.call(x)), values(exact)) << c.name;
  }
}

TEST(NnAutocast, RunningStatisticsAreThoseOfTheRoundedInput) {
  Tensor x = sample({16, 3, 4, 4}, 1, kF32).to(DType::bf16);
  BatchNorm2d low(3), wide(3);
  wide(x.to(kF32));
  AutocastGuard guard(DType::bf16);
  low(x);
  EXPECT_EQ(values(low.named_buffers()[0].tensor), values(wide.named_buffers()[0].tensor));
  EXPECT_EQ(values(low.named_buffers()[1].tensor), values(wide.named_buffers()[1].tensor));
}

TEST(NnAutocast, EmbeddingsStayInTheTablesType) {
  Embedding table(10, 4);
  EmbeddingBag bag(10, 4);
  AutocastGuard guard(DType::bf16);
  Tensor index = tensor<int64_t>({1, 2, 3, 4}).view({2, 2});
  Tensor y = table(index), z = bag(index);
  EXPECT_EQ(y.dtype(), kF32);
  EXPECT_EQ(z.dtype(), kF32);
  (y.sum() + z.sum()).backward();
  EXPECT_EQ(table.weight.grad().dtype(), kF32);
  EXPECT_EQ(bag.weight.grad().dtype(), kF32);
}

TEST(NnAutocast, LossesAreF32) {
  Tensor logits = sample({4, 5}, 1, kF32).to(DType::bf16), other = sample({4, 5}, 2, kF32).to(DType::bf16);
  Tensor classes = tensor<int64_t>({0, 4, 2, 1}), share = other.to(kF32).sigmoid().to(DType::bf16);
  AutocastGuard guard(DType::bf16);
  auto expect = [&](const Tensor& loss, const Tensor& exact, const char* what) {
    EXPECT_EQ(loss.dtype(), kF32) << what;
    EXPECT_NEAR(loss.item(), exact.item(), 1e-5 * (1 + std::abs(exact.item()))) << what;
  };
  auto wide = [](const Tensor& t) { return t.to(kF32); };
  expect(CrossEntropyLoss()(logits, classes), CrossEntropyLoss()(wide(logits), classes), "CrossEntropyLoss");
  expect(NLLLoss()(logits, classes), NLLLoss()(wide(logits), classes), "NLLLoss");
  expect(MSELoss()(logits, other), MSELoss()(wide(logits), wide(other)), "MSELoss");
  expect(L1Loss()(logits, other), L1Loss()(wide(logits), wide(other)), "L1Loss");
  expect(SmoothL1Loss()(logits, other), SmoothL1Loss()(wide(logits), wide(other)), "SmoothL1Loss");
  expect(HuberLoss()(logits, other), HuberLoss()(wide(logits), wide(other)), "HuberLoss");
  expect(BCEWithLogitsLoss()(logits, share), BCEWithLogitsLoss()(wide(logits), wide(share)), "BCEWithLogitsLoss");
  expect(BCELoss()(share, share), BCELoss()(wide(share), wide(share)), "BCELoss");
  expect(KLDivLoss()(logits, share), KLDivLoss()(wide(logits), wide(share)), "KLDivLoss");
  Tensor sign = tensor<double>({1, -1, 1, -1}).to(DType::bf16);
  expect(CosineEmbeddingLoss()(logits, other, sign), CosineEmbeddingLoss()(wide(logits), wide(other), sign),
         "CosineEmbeddingLoss");
}

TEST(NnAutocast, DropoutDrawsTheSame) {
  for (double p : {0.0, 0.3}) {
    MultiheadAttention attention(16, 4, {.dropout = p});
    Sequential net;
    net.add<Linear>(16, 16);
    net.add<Dropout>(p);
    Tensor x = sample({6, 2, 16}, 1, kF32);
    auto both = [&] {
      RngScope rng({7, 0});
      return cat({net(x).to(kF32), attention(x).to(kF32)});
    };
    Tensor exact = both();
    AutocastGuard guard(DType::bf16);
    expect_near_in_norm(both(), exact, 12 * 0x1p-8 / (1 - p), "dropout");
  }
}

// 20 steps in bf16 lead where those in f32 lead.
TEST(NnAutocast, TrainingGoesTheSameWay) {
  Tensor x = sample({32, 8}, 1, kF32), y = (x.narrow(1, 0, 1) * x.narrow(1, 1, 1)).contiguous();
  auto train = [&](DType type) {
    RngScope rng({11, 0});
    Sequential net;
    net.add<Linear>(8, 32);
    net.add<GELU>();
    net.add<LayerNorm>(32);
    net.add<Linear>(32, 1);
    std::vector<double> losses;
    for (int step = 0; step < 20; ++step) {
      net.zero_grad();
      Tensor loss;
      {
        AutocastGuard guard(type);
        loss = mse_loss(net(x), y);
      }
      loss.backward();
      losses.push_back(loss.item());
      NoGradGuard no_grad;
      for (Tensor p : net.parameters()) p.sub_(p.grad() * 0.05);
    }
    return losses;
  };
  std::vector<double> exact = train(kF32), low = train(DType::bf16);
  EXPECT_LT(exact.back(), 0.5 * exact.front());
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(low[i], exact[i], 0x1p-8 * 6 * exact.front()) << "step " << i;
}

}  // namespace
}  // namespace deft::nn
