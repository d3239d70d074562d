// Losses as in PyTorch.
#include "nn/loss.h"

#include <cmath>
#include <limits>

#include "nn_util.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("loss");
  return all;
}
void expect_case(const char* name, Loss&& loss) {
  SCOPED_TRACE(name);
  expect_as_pytorch(
      cases().part(name), loss,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {loss(in[0], in[1].detach())}; }, 20);
}
// A weight is part of the state: the case brings its values.
Tensor blank() { return ones({5}); }

TEST(NnLoss, Classes) {
  expect_case("cross_entropy", CrossEntropyLoss());
  expect_case("cross_entropy_full", CrossEntropyLoss({.weight = blank(), .ignore_index = 2, .label_smoothing = 0.1}));
  expect_case("cross_entropy_probabilities", CrossEntropyLoss({.reduction = Reduction::sum}));
  expect_case("nll", NLLLoss({.weight = blank(), .reduction = Reduction::none}));
}

TEST(NnLoss, Distances) {
  expect_case("mse", MSELoss());
  expect_case("l1", L1Loss(Reduction::sum));
  expect_case("smooth_l1", SmoothL1Loss(Reduction::mean, 0.5));
  expect_case("huber", HuberLoss(Reduction::mean, 0.5));
}

TEST(NnLoss, Probabilities) {
  expect_case("bce", BCELoss(blank()));
  expect_case("bce_logits", BCEWithLogitsLoss(blank(), blank()));
  expect_case("kl", KLDivLoss(KlReduction::batchmean));
  expect_case("kl_log", KLDivLoss(KlReduction::sum, true));
}

TEST(NnLoss, Cosine) {
  CosineEmbeddingLoss embedding(0.1);
  expect_as_pytorch(
      cases().part("cosine_embedding"), embedding,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {embedding(in[0], in[1], in[2])}; }, 40);
  CosineSimilarity similarity;
  expect_as_pytorch(
      cases().part("cosine_similarity"), similarity,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {similarity(in[0], in[1])}; }, 40);
  EXPECT_EQ(similarity.describe(), "CosineSimilarity");
}

// What PyTorch 2.15 gives: an infinite score is an infinite loss, or 0 * inf, and its slope is finite.
TEST(NnLoss, ScoresThatAreInfinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  struct Case {
    double score, target, loss, slope;
  };
  for (const Case& c : {Case{kInf, 0, kInf, 1}, {kInf, 0.5, kInf, 0.5}, {kInf, 1, NAN, 0}, {-kInf, 0, NAN, 0}})
    for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
      for (DType t : {f32, f64}) {
        Tensor x = full({1}, c.score, with_grad(t)), target = full({1}, c.target, t);
        Tensor loss = binary_cross_entropy_with_logits(x, target, {}, {}, reduction);
        const double found = loss.sum().item();
        EXPECT_TRUE(found == c.loss || (std::isnan(found) && std::isnan(c.loss))) << c.score << " " << c.target;
        if (reduction == Reduction::none) continue;
        loss.backward();
        EXPECT_EQ(x.grad().item(), c.slope) << c.score << " " << c.target;
      }
}

// The lengths are held at eps, their gradients are not. The numbers are PyTorch's.
// log(5) vanishes beside the logits, and still decides over the gradient.
TEST(NnLoss, LargeEqualLogits) {
  for (DType t : {DType::f32, DType::f64, DType::bf16}) {
    for (double smoothing : {0.0, 0.5}) {
      Tensor x = full({4, 5}, 1e30, TensorOptions(t)).requires_grad_();
      const Tensor target = zeros({4}, DType::i64);
      Tensor loss = cross_entropy(x, target, {.label_smoothing = smoothing});
      loss.backward();
      EXPECT_NEAR(loss.to(DType::f64).item<double>(), std::log(5), 0.01) << name_of(t);
      const Tensor row = x.grad().select(0, 0).to(DType::f64);
      EXPECT_NEAR(row.sum().item<double>(), 0, 0.01) << name_of(t);
      EXPECT_NEAR(row.amax().item<double>(), (0.2 - 0.2 * smoothing) / 4, 0.001) << name_of(t);
    }
  }
}

TEST(NnLoss, CosineOfVectorsShorterThanEps) {
  auto gradients = [](std::vector<double> a, double eps) {
    Tensor x = tensor(a, with_grad(f64)), y = tensor<double>({1, 2}, with_grad(f64));
    Tensor cosine = cosine_similarity(x, y, 0, eps);
    cosine.backward();
    return std::vector<double>{cosine.item(), x.grad()[0].item(), x.grad()[1].item(), y.grad()[0].item(),
                               y.grad()[1].item()};
  };
  auto expect_near = [](const std::vector<double>& found, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(found[i], want[i], 1e-6 * (1 + std::abs(want[i]))) << i;
  };
  expect_near(gradients({0, 0}, 1e-8), {0, 44721359.55, 89442719.1, 0, 0});
  expect_near(gradients({1e-10, 0}, 1e-8), {0.0044721360, 44274145.9, 89442719.1, 0.0035777088, -0.0017888544});
  expect_near(gradients({1, 0}, 10), {0.01, 0.009, 0.02, 0.0095527864, -0.00089442719});
  expect_near(gradients({1, 0}, 2), {0.2236067977, 0.111803399, 0.447213595, 0.178885438, -0.089442719});
}

TEST(NnLoss, WeightsMoveWithTheModule) {
  CrossEntropyLoss loss({.weight = blank()});
  loss.to(DType::f64);
  EXPECT_EQ(loss.weight.dtype(), DType::f64);
  EXPECT_NO_THROW(loss(sample({2, 5}), tensor<int64_t>({0, 1})));
  ASSERT_EQ(loss.state_dict().size(), 1u);
  EXPECT_EQ(loss.state_dict()[0].name, "weight");
  EXPECT_TRUE(loss.parameters().empty());
}

}  // namespace
}  // namespace deft::nn
