// Padding and its masks, through attention and whole models: what fills a row up changes no bit of its results.
#include "data/padding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "core/grad_mode.h"
#include "models/bert.h"
#include "models/gpt2.h"

namespace deft::data {
namespace {

constexpr double kPoison[] = {NAN, INFINITY, 3e38, -1e30};

const models::BertOptions kTinyBert{.vocabulary = 50,
                                    .hidden = 16,
                                    .layers = 2,
                                    .heads = 2,
                                    .intermediate = 32,
                                    .positions = 40,
                                    .dropout = 0,
                                    .attention_dropout = 0};
constexpr int64_t kPad = 49;  // a token of its own, whose embedding the tests poison

bool same(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && eq(a, b).all().item<bool>(); }
double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().amax().item(); }

std::vector<Tensor> some_sequences(const std::vector<int64_t>& lengths) {
  RngScope rng({21, 0});
  std::vector<Tensor> out;
  for (int64_t n : lengths) out.push_back(randint(1, kPad, {n}));
  return out;
}

TEST(Padding, LengthsAndMasks) {
  std::vector<int64_t> lengths{2, 0, 3};
  EXPECT_EQ(padded_length(lengths), 3);
  EXPECT_EQ(padded_length(lengths, 8), 8);
  EXPECT_EQ(padded_length({}), 0);
  Tensor mask = padding_mask(lengths, 4);
  EXPECT_EQ(mask.to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0}));
  EXPECT_TRUE(same(padding_mask(tensor(lengths), 4), mask));
  EXPECT_EQ(attention_mask(mask).sizes(), (Shape{3, 1, 1, 4}));
  EXPECT_TRUE(same(hidden_keys(mask), logical_not(mask)));
  EXPECT_THROW(padding_mask(lengths, 2), ValueError);
  EXPECT_THROW(padding_mask(std::vector<int64_t>{-1, 2}), ValueError);
  EXPECT_THROW(padded_length(lengths, 0), ValueError);
}

TEST(Padding, Sequences) {
  PaddedBatch batch = pad_sequences({arange(1, 4), arange(5, 6)}, {.pad = -1, .multiple = 4});
  EXPECT_EQ(batch.values.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, -1, 5, -1, -1, -1}));
  EXPECT_EQ(batch.lengths, (std::vector<int64_t>{3, 1}));
  EXPECT_TRUE(same(batch.mask, padding_mask(batch.lengths, 4)));
  EXPECT_EQ(pad_sequences({ones({2, 3}), ones({1, 3})}, {.length = 5}).values.sizes(), (Shape{2, 5, 3}));
  EXPECT_EQ(pad_to(batch.values, 6, -1).sizes(), (Shape{2, 6}));
  EXPECT_EQ(pad_to(batch.values, 6, -1).sum().item<int64_t>(), batch.values.sum().item<int64_t>() - 4);
  EXPECT_THROW(pad_to(batch.values, 3), ShapeError);
  EXPECT_THROW(pad_sequences({}), ValueError);
  EXPECT_THROW(pad_sequences({arange(4)}, {.length = 3}), ValueError);
}

TEST(Padding, AttentionNeverSeesHiddenKeys) {
  RngScope rng({1, 0});
  Tensor mask = attention_mask(padding_mask(std::vector<int64_t>{7, 33}, 40));
  Tensor hidden = logical_not(mask.transpose(2, 3));
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    Tensor q = randn({2, 3, 40, 8}).to(dtype), k = randn({2, 3, 40, 8}).to(dtype), v = randn({2, 3, 40, 8}).to(dtype);
    auto run = [&](double value) {
      std::vector<Tensor> in{q.clone(), k.masked_fill(hidden, value), v.masked_fill(hidden, value)};
      for (Tensor& t : in) t.requires_grad_();
      Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], mask);
      y.sum().backward();
      Tensor plain;
      {
        NoGradGuard no_grad;
        plain = scaled_dot_product_attention(in[0], in[1], in[2], mask);
      }
      EXPECT_TRUE(same(y.detach(), plain));
      return std::vector<Tensor>{y.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
    };
    std::vector<Tensor> expected = run(0);
    EXPECT_EQ(expected[2].masked_fill(logical_not(hidden), 0).abs().sum().item(), 0);
    for (double value : kPoison) {
      std::vector<Tensor> found = run(value);
      for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same(found[i], expected[i])) << value << ", result " << i;
    }
  }
}

// Queries that are not padded look at a padded memory.
TEST(Padding, MultiheadAttentionNeverSeesHiddenKeys) {
  RngScope rng({2, 0});
  nn::MultiheadAttention attention(8, 2, {.batch_first = true});
  Tensor mask = padding_mask(std::vector<int64_t>{2, 5}, 6), q = randn({2, 4, 8}), memory = randn({2, 6, 8});
  auto run = [&](double value) {
    Tensor filled = memory.masked_fill(logical_not(mask).unsqueeze(2), value);
    return attention(q, filled, filled, {.key_padding_mask = hidden_keys(mask)}).detach();
  };
  Tensor expected = run(0);
  for (double value : kPoison) EXPECT_TRUE(same(run(value), expected)) << value;
}

struct BertRun {
  Tensor hidden, pooled;  // of the tokens
};
BertRun run_bert(models::Bert& model, const std::vector<Tensor>& sequences, int64_t length) {
  PaddedBatch batch = pad_sequences(sequences, {.pad = kPad, .length = length});
  models::Bert::Output out = model.encode(batch.values, {}, batch.mask);
  return {nn::take_tokens(out.hidden, batch.mask), nn::masked_mean(out.hidden, batch.mask)};
}

TEST(Padding, BertIsTheSameWhateverFillsARowUp) {
  models::Bert model(kTinyBert);
  model.eval();
  NoGradGuard no_grad;
  std::vector<Tensor> sequences = some_sequences({5, 17, 1, 11});
  BertRun expected = run_bert(model, sequences, 17);
  EXPECT_TRUE(std::isfinite(expected.hidden.abs().sum().item()));
  for (double value : kPoison) {
    model.word_embeddings()[kPad].fill_(value);
    BertRun found = run_bert(model, sequences, 17);
    EXPECT_TRUE(same(found.hidden, expected.hidden)) << value;
    EXPECT_TRUE(same(found.pooled, expected.pooled)) << value;
  }
}

TEST(Padding, BertIsTheSameHoweverFarARowIsFilledUp) {
  models::Bert model(kTinyBert);
  model.eval();
  NoGradGuard no_grad;
  std::vector<Tensor> sequences = some_sequences({5, 17, 1, 11});
  BertRun expected = run_bert(model, sequences, 17);
  for (int64_t length : {18, 24, 32, 40}) {
    BertRun found = run_bert(model, sequences, length);
    EXPECT_LE(distance(found.hidden, expected.hidden), 2e-6) << length;
    EXPECT_LE(distance(found.pooled, expected.pooled), 2e-6) << length;
  }
  // And as if it were alone.
  int64_t first = 0;
  for (const Tensor& s : sequences) {
    Tensor alone = model.encode(s.unsqueeze(0)).hidden[0];
    EXPECT_LE(distance(alone, expected.hidden.narrow(0, first, s.size(0))), 2e-6);
    first += s.size(0);
  }
}

// Loss and gradients: other tokens in the padding, in a longer batch.
TEST(Padding, BertLearnsTheSameWhateverFillsARowUp) {
  models::BertForMaskedLM model(kTinyBert);
  std::vector<Tensor> sequences = some_sequences({5, 17, 1, 11});
  auto run = [&](int64_t length, double pad) {
    PaddedBatch batch = pad_sequences(sequences, {.pad = pad, .length = length});
    Tensor targets = batch.values.masked_fill(logical_not(batch.mask), -100);
    model.zero_grad();
    Tensor loss = nn::token_cross_entropy(model.logits(batch.values, {}, batch.mask), targets, 34);
    loss.backward();
    std::vector<Tensor> out{loss.detach()};
    for (const Tensor& p : model.parameters()) out.push_back(p.grad().clone());
    return out;
  };
  std::vector<Tensor> expected = run(17, kPad);
  for (auto [length, pad] : {std::pair{17, 3}, {17, 0}, {29, 3}, {40, kPad}}) {
    std::vector<Tensor> found = run(length, static_cast<double>(pad));
    for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(distance(found[i], expected[i]), 1e-6) << length << ' ' << i;
  }
}

// Inputs that are numbers: NaN in the padding is stopped before the first layer, and stays out of every gradient.
TEST(Padding, EncoderLearnsTheSameFromPoisonedInputs) {
  RngScope rng({4, 0});
  nn::TransformerEncoderLayer layer(8, 2, {.dim_feedforward = 16, .dropout = 0, .batch_first = true});
  nn::BatchNorm1d norm(8);
  nn::Linear head(8, 3);
  Tensor mask = padding_mask(std::vector<int64_t>{4, 2, 6}, 6), x = randn({3, 6, 8}),
         labels = tensor<int64_t>({0, 2, 1});
  auto run = [&](double value) {
    Tensor in = x.masked_fill(logical_not(mask).unsqueeze(2), value).requires_grad_();
    Tensor h = layer(nn::mask_padding(in, mask), {.key_padding_mask = hidden_keys(mask)});
    h = nn::put_tokens(norm(nn::take_tokens(h, mask)), mask);
    Tensor loss = cross_entropy(head(nn::masked_mean(h, mask)), labels);
    for (nn::Module* m : {static_cast<nn::Module*>(&layer), static_cast<nn::Module*>(&head)}) m->zero_grad();
    loss.backward();
    std::vector<Tensor> out{loss.detach(), in.grad()};
    for (const Tensor& p : layer.parameters()) out.push_back(p.grad().clone());
    for (const Tensor& p : head.parameters()) out.push_back(p.grad().clone());
    return out;
  };
  std::vector<Tensor> expected = run(0);
  for (double value : kPoison) {
    std::vector<Tensor> found = run(value);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same(found[i], expected[i])) << value << ", result " << i;
  }
}

TEST(Padding, Gpt2IsTheSameWhateverFillsARowUp) {
  models::Gpt2 model({.vocabulary = 50, .positions = 40, .hidden = 16, .layers = 2, .heads = 2, .dropout = 0});
  model.eval();
  NoGradGuard no_grad;
  std::vector<Tensor> sequences = some_sequences({5, 17, 1, 11});
  auto run = [&] {
    PaddedBatch batch = pad_sequences(sequences, {.pad = kPad, .length = 24});
    // The last logit is that of the poisoned embedding itself.
    return nn::take_tokens(model.logits(batch.values, batch.mask), batch.mask).narrow(1, 0, kPad);
  };
  Tensor expected = run();
  int64_t first = 0;
  for (const Tensor& s : sequences) {
    Tensor alone = model.logits(s.unsqueeze(0))[0].narrow(1, 0, kPad);
    EXPECT_LE(distance(alone, expected.narrow(0, first, s.size(0))), 2e-6);
    first += s.size(0);
  }
  NamedTensors state = model.named_parameters();
  Tensor table = *find_tensor(state, "wte.weight");
  for (double value : kPoison) {
    table[kPad].fill_(value);
    EXPECT_TRUE(same(run(), expected)) << value;
  }
}

}  // namespace
}  // namespace deft::data
