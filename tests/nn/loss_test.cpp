// Losses as in PyTorch.
#include "nn/loss.h"

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
