// The built-in models against PyTorch: weights in f32, everything computed in f64 on both sides.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "core/grad_mode.h"
#include "io/safetensors.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/gpt2.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer_xl.h"
#include "source_dir.h"

namespace deft::models {
namespace {

// Sums of a few thousand products, normalised: 1e-10 leaves four digits of slack and would show any wrong formula.
constexpr double kTolerance = 1e-10;

class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : all_(
            io::load_safetensors(deft::test::source_dir() + "/tests/fixtures/model_" + name + ".safetensors").tensors) {
  }
  Tensor operator[](const std::string& name) const {
    const Tensor* t = find_tensor(all_, name);
    EXPECT_TRUE(t) << name;
    return *t;
  }
  NamedTensors part(const std::string& prefix) const {
    NamedTensors out;
    for (const NamedTensor& t : all_)
      if (t.name.starts_with(prefix)) out.push_back({t.name.substr(prefix.size()), t.tensor});
    return out;
  }

 private:
  NamedTensors all_;
};

void expect_close(const Tensor& found, const Tensor& expected, const std::string& what, double tolerance = kTolerance) {
  ASSERT_EQ(found.sizes(), expected.sizes()) << what;
  Tensor a = found.detach().to(DType::f64), b = expected.to(DType::f64);
  double scale = std::max(1.0, b.abs().amax().item()), error = (a - b).abs().amax().item();
  EXPECT_TRUE(error <= tolerance * scale) << what << ": differs by " << error << " where values reach " << scale;
}

// Gradients of the first step and the losses of 20 steps of SGD with momentum.
void check_training(nn::Module& model, const Fixture& fixture, const std::function<Tensor()>& loss, double lr = 0.05) {
  model.train();
  NamedTensors parameters = model.named_parameters();
  std::vector<Tensor> momentum(parameters.size());
  std::vector<double> losses = fixture["losses"].to_vector<double>();
  for (size_t step = 0; step < losses.size(); ++step) {
    model.zero_grad();
    Tensor value = loss();
    value.backward();
    // Errors grow from step to step.
    EXPECT_NEAR(value.item(), losses[step], 1e-9 * std::pow(1.5, step)) << "loss of step " << step;
    if (step == 0) {
      for (const NamedTensor& p : parameters) {
        ASSERT_TRUE(p.tensor.grad().defined()) << p.name;
        Tensor g = p.tensor.grad().contiguous().view({-1});
        expect_close(g.norm().view({1}), fixture["grad_norm." + p.name], "gradient norm of " + p.name);
        expect_close(g.narrow(0, 0, std::min<int64_t>(8, g.numel())), fixture["grad_head." + p.name],
                     "gradient of " + p.name);
      }
    }
    NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      Tensor g = parameters[i].tensor.grad();
      momentum[i] = momentum[i].defined() ? momentum[i] * 0.9 + g : g.clone();
      Tensor p = parameters[i].tensor;
      p.sub_(momentum[i] * lr);
    }
  }
}

void load(nn::Module& model, const Fixture& fixture) {
  model.to(DType::f64);
  model.load_state_dict(fixture.part("state."));
  model.eval();
}

void check_resnet(const std::string& name, bool bottleneck) {
  Fixture fixture(name);
  ResNet model({.blocks = {1, 1, 2, 1}, .bottleneck = bottleneck, .classes = 5, .width = 4});
  load(model, fixture);
  Tensor x = fixture["in.x"].to(DType::f64), y = fixture["in.y"];
  expect_close(model(x), fixture["out.logits"], "logits");
  check_training(model, fixture, [&] { return cross_entropy(model(x), y); });
}
TEST(ResNet, BasicBlocksEqualPyTorch) { check_resnet("resnet_basic", false); }
TEST(ResNet, BottlenecksEqualPyTorch) { check_resnet("resnet_bottleneck", true); }

TEST(ResNet, SizesOfThePublishedModels) {
  EXPECT_EQ(ResNet(resnet18_options()).parameter_count(), 11689512);
  EXPECT_EQ(ResNet(resnet50_options()).parameter_count(), 25557032);
}

TEST(ResNet, ChannelsLastAndPlainInputsGiveTheSame) {
  ResNet model({.blocks = {1, 1, 1, 1}, .classes = 3, .width = 8});
  model.eval();
  NoGradGuard no_grad;
  Tensor x = randn({2, 3, 64, 64});
  expect_close(model(x), model(x.contiguous(MemoryFormat::channels_last)), "logits", 0);
}

constexpr BertOptions kTinyBert{.vocabulary = 50,
                                .hidden = 16,
                                .layers = 2,
                                .heads = 2,
                                .intermediate = 32,
                                .positions = 12,
                                .dropout = 0,
                                .attention_dropout = 0};

TEST(Bert, MaskedLanguageModelEqualsPyTorch) {
  Fixture fixture("bert_mlm");
  BertForMaskedLM model(kTinyBert);
  load(model, fixture);
  Tensor tokens = fixture["in.tokens"], types = fixture["in.types"], mask = fixture["in.mask"];
  expect_close(model.bert.encode(tokens, types, mask).hidden, fixture["out.hidden"], "hidden");
  expect_close(model.logits(tokens, types, mask), fixture["out.logits"], "logits");
  check_training(model, fixture, [&] {
    return cross_entropy(model.logits(tokens, types, mask).reshape({-1, 50}), fixture["in.labels"].reshape({-1}));
  });
}

TEST(Bert, ClassifierEqualsPyTorch) {
  Fixture fixture("bert_classifier");
  BertForSequenceClassification model(3, kTinyBert);
  load(model, fixture);
  Tensor tokens = fixture["in.tokens"], types = fixture["in.types"], mask = fixture["in.mask"];
  expect_close(model.logits(tokens, types, mask), fixture["out.logits"], "logits");
  check_training(model, fixture,
                 [&] { return cross_entropy(model.logits(tokens, types, mask), fixture["in.classes"]); });
}

TEST(Bert, HeadSharesTheWordEmbeddings) {
  BertForMaskedLM model(kTinyBert);
  const NamedTensors state = model.state_dict();
  const Tensor *head = find_tensor(state, "cls.predictions.decoder.weight"),
               *words = find_tensor(state, "bert.embeddings.word_embeddings.weight");
  ASSERT_TRUE(head && words);
  EXPECT_TRUE(head->shares_storage_with(*words));
}

TEST(Bert, MaskedTokensHaveNoInfluence) {
  Bert model(kTinyBert);
  model.eval();
  NoGradGuard no_grad;
  Tensor tokens = randint(1, 50, {2, 8}), other = tokens.clone(), mask = ones({2, 8}, DType::i64);
  mask.narrow(1, 5, 3).zero_();
  other.narrow(1, 5, 3).fill_(7);
  expect_close(model.encode(tokens, {}, mask).hidden.narrow(1, 0, 5),
               model.encode(other, {}, mask).hidden.narrow(1, 0, 5), "hidden", 0);
  EXPECT_THROW(model.encode(randint(0, 50, {2, 13})), ShapeError);
}

TEST(Bert, SizesOfThePublishedModels) {
  BertOptions base = bert_base_options();
  EXPECT_EQ(base.hidden % base.heads, 0);
  EXPECT_EQ(Bert(base).parameter_count(), 109482240);
}

constexpr Gpt2Options kTinyGpt{.vocabulary = 40, .positions = 16, .hidden = 16, .layers = 2, .heads = 2, .dropout = 0};

TEST(Gpt2, EqualsPyTorch) {
  Fixture fixture("gpt2");
  Gpt2 model(kTinyGpt);
  load(model, fixture);
  Tensor tokens = fixture["in.tokens"];
  expect_close(model(tokens), fixture["out.logits"], "logits");
  expect_close(model.generate(tokens, {.tokens = 6}), fixture["out.greedy"], "greedy tokens", 0);
  check_training(
      model, fixture,
      [&] {
        return cross_entropy(model(tokens).narrow(1, 0, 9).reshape({-1, 40}), tokens.narrow(1, 1, 9).reshape({-1}));
      },
      0.01);
}

TEST(Gpt2, CacheGivesTheSameLogits) {
  Gpt2 model(kTinyGpt);
  model.to(DType::f64);
  model.eval();
  NoGradGuard no_grad;
  Tensor tokens = randint(0, 40, {2, 12}), whole = model(tokens);
  KvCache cache(kTinyGpt, 2, DType::f64);
  int64_t at = 0;
  for (int64_t length : {5, 1, 1, 3, 2}) {  // a prompt, single steps, pieces
    Tensor part = model.logits(tokens.narrow(1, at, length), &cache);
    expect_close(part, whole.narrow(1, at, length), "logits", 1e-12);
    at += length;
  }
  EXPECT_EQ(cache.length(), 12);
  EXPECT_THROW(model.logits(randint(0, 40, {2, 5}), &cache), ShapeError);
}

TEST(Gpt2, CacheWithGradientsIsRefused) {
  Gpt2 model(kTinyGpt);
  KvCache cache(kTinyGpt, 1);
  EXPECT_THROW(model.logits(randint(0, 40, {1, 3}), &cache), GradError);
}

TEST(Gpt2, SamplingFollowsTheSeed) {
  Gpt2 model(kTinyGpt);
  Tensor prompt = randint(0, 40, {2, 4});
  GenerateOptions options{.tokens = 8, .temperature = 1, .top_k = 10, .seed = 3};
  Tensor a = model.generate(prompt, options), b = model.generate(prompt, options);
  options.seed = 4;
  Tensor c = model.generate(prompt, options);
  EXPECT_EQ(a.to_vector<int64_t>(), b.to_vector<int64_t>());
  EXPECT_NE(a.to_vector<int64_t>(), c.to_vector<int64_t>());
  EXPECT_TRUE(model.is_training());  // as before
}

TEST(Gpt2, ParameterCountOfTheSmallModel) { EXPECT_EQ(Gpt2().parameter_count(), 124439808); }

TransformerXLOptions tiny_xl() {
  return {.vocabulary = 30,
          .cutoffs = {8, 20},
          .hidden = 12,
          .layers = 2,
          .heads = 2,
          .head_size = 5,
          .intermediate = 20,
          .memory = 6,
          .dropout = 0,
          .attention_dropout = 0};
}

TEST(TransformerXL, EqualsPyTorchOverThreeSegments) {
  Fixture fixture("transformer_xl");
  TransformerXL model(tiny_xl());
  load(model, fixture);
  Tensor segments = fixture["in.segments"], targets = fixture["in.targets"];
  // The other implementation starts with a memory of zeros, not an empty one.
  auto zero_memory = [] {
    Tensor zero = zeros({2, 6, 12}, DType::f64);
    return TransformerXL::Memory{zero, zero};
  };
  auto losses = [&] {
    TransformerXL::Memory memory = zero_memory();
    std::vector<Tensor> all;
    for (int64_t i = 0; i < 3; ++i) all.push_back(model.loss(segments[i], targets[i], memory));
    return stack(all);
  };
  expect_close(losses(), fixture["out.losses"], "losses");
  TransformerXL::Memory memory = zero_memory();
  for (int64_t i = 0; i < 3; ++i) {
    Tensor hidden = model.encode(segments[i], memory);
    expect_close(hidden, fixture["out.hidden"][i], "hidden");
    expect_close(model.softmax()(hidden.reshape({-1, 12})), fixture["out.log_probabilities"][i], "log probabilities");
  }
  check_training(model, fixture, [&] { return losses().mean(); });
}

void check_transformer_xl(const std::string& name, const TransformerXLOptions& options) {
  Fixture fixture("transformer_xl_" + name);
  TransformerXL model(options);
  load(model, fixture);
  Tensor segments = fixture["in.segments"], targets = fixture["in.targets"];
  auto losses = [&] {
    TransformerXL::Memory memory;
    std::vector<Tensor> all;
    for (int64_t i = 0; i < 3; ++i) all.push_back(model.loss(segments[i], targets[i], memory));
    return stack(all);
  };
  expect_close(losses(), fixture["out.losses"], "losses");
  TransformerXL::Memory memory;
  for (int64_t i = 0; i < 3; ++i) {
    Tensor hidden = model.encode(segments[i], memory);
    expect_close(hidden, fixture["out.hidden"][i], "hidden");
    expect_close(model.softmax()(hidden.reshape({-1, 12})), fixture["out.log_probabilities"][i], "log probabilities");
  }
  check_training(model, fixture, [&] { return losses().mean(); });
}
TEST(TransformerXL, ShorterVectorsForRareWordsAndUntiedBiases) {
  TransformerXLOptions o = tiny_xl();
  o.div_val = 2, o.untie_r = true;
  check_transformer_xl("div_val", o);
}
TEST(TransformerXL, ProjectedVectors) {
  TransformerXLOptions o = tiny_xl();
  o.embedding = 6;
  check_transformer_xl("projected", o);
}
TEST(TransformerXL, ProjectionsOfTheSoftmaxOfItsOwn) {
  TransformerXLOptions o = tiny_xl();
  o.embedding = 10, o.div_val = 3, o.untie_r = true, o.share_projections = false;
  check_transformer_xl("unshared", o);
}

TEST(TransformerXL, WhatIsShared) {
  TransformerXLOptions o = tiny_xl();
  o.div_val = 2;
  NamedTensors state = TransformerXL(o).state_dict();
  auto shared = [&](const std::string& i) {
    const Tensor *a = find_tensor(state, "word_emb.emb_projs." + i), *b = find_tensor(state, "crit.out_projs." + i);
    return a && b && a->shares_storage_with(*b);
  };
  EXPECT_FALSE(shared("0"));
  EXPECT_TRUE(shared("1") && shared("2"));
  o.div_val = 20;
  EXPECT_THROW(TransformerXL{o}, ValueError);
}

TEST(TransformerXL, MemoryGrowsToItsLimitAndHoldsNoGraph) {
  TransformerXL model(tiny_xl());
  TransformerXL::Memory memory;
  Tensor tokens = randint(0, 30, {2, 10});
  Tensor first = model.encode(tokens.narrow(1, 0, 4), memory), second = model.encode(tokens.narrow(1, 4, 4), memory);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(memory[0].sizes(), Shape({2, 6, 12}));
  EXPECT_FALSE(memory[1].requires_grad());
  // With all of the text in memory, a text in pieces is the text in one.
  TransformerXLOptions longer = tiny_xl();
  longer.memory = 20;
  TransformerXL one(longer);
  TransformerXL::Memory part, none;
  NoGradGuard no_grad;
  Tensor whole = one.encode(tokens, none), begin = one.encode(tokens.narrow(1, 0, 7), part),
         end = one.encode(tokens.narrow(1, 7, 3), part);
  expect_close(cat({begin, end}, 1), whole, "hidden", 1e-5);
}

TEST(TransformerXL, ProbabilitiesSumToOne) {
  TransformerXL model(tiny_xl());
  NoGradGuard no_grad;
  Tensor p = exp(model.softmax()(randn({7, 12})).to(DType::f64)).sum({1});
  expect_close(p, ones({7}, DType::f64), "sums", 1e-5);
}

TEST(Cnn, ShapesAndModes) {
  Cnn model({.channels = 3, .classes = 7, .width = 8});
  EXPECT_EQ(model(randn({4, 3, 32, 32})).sizes(), Shape({4, 7}));
  EXPECT_EQ(model(randn({4, 3, 28, 28})).sizes(), Shape({4, 7}));
  model.eval();
  NoGradGuard no_grad;
  Tensor x = randn({3, 3, 32, 32});
  expect_close(model(x).narrow(0, 0, 1), model(x.narrow(0, 0, 1)), "one of a batch", 1e-5);
}

TEST(Mlp, FlattensPictures) {
  Mlp model({784, 32, 10});
  EXPECT_EQ(model(randn({4, 1, 28, 28})).sizes(), Shape({4, 10}));
  EXPECT_EQ(model.parameter_count(), 784 * 32 + 32 + 32 * 10 + 10);
  EXPECT_THROW(Mlp({3}), ValueError);
}

}  // namespace
}  // namespace deft::models
