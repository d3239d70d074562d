// Several sequences in a row give what each gives alone.
#include "data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "core/grad_mode.h"
#include "data/length_report.h"
#include "data/order.h"
#include "data/padding.h"
#include "models/bert.h"
#include "models/gpt2.h"

namespace deft::data {
namespace {

bool same(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && eq(a, b).all().item<bool>(); }
double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().amax().item(); }

std::vector<int64_t> some_lengths(int64_t n, int64_t longest) {
  std::vector<int64_t> out;
  SampleRng rng(8, 0, 0);
  for (int64_t i = 0; i < n; ++i)
    out.push_back(std::min<int64_t>(longest, 1 + static_cast<int64_t>(-20 * std::log(1 - rng.uniform()))));
  return out;
}

const std::vector<int64_t> kLengths{5, 3, 8, 1, 6, 2};

TEST(PackPlan, OneAfterTheOther) {
  PackPlan plan(kLengths, 10);
  EXPECT_EQ(plan.rows(), 3);
  std::vector<int64_t> found;
  for (const auto& p : plan.places()) found.insert(found.end(), {p.row, p.begin, p.length});
  EXPECT_EQ(found, (std::vector<int64_t>{0, 0, 5, 0, 5, 3, 1, 0, 8, 1, 8, 1, 2, 0, 6, 2, 6, 2}));
  EXPECT_EQ(plan.segments()[1].to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 2, 0}));
  EXPECT_EQ(plan.positions()[0].to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 0, 0}));
  EXPECT_EQ(PackPlan(kLengths, 10, 5).rows(), 5);
  EXPECT_EQ(PackPlan({}, 10).rows(), 0);
  EXPECT_THROW(PackPlan(kLengths, 10, 2), ValueError);
  EXPECT_THROW(PackPlan(kLengths, 7), ValueError);
}

TEST(PackPlan, MaskIsOneBlockPerSequence) {
  PackPlan plan(kLengths, 10, 4);
  Tensor mask = plan.mask();
  EXPECT_EQ(mask.sizes(), (Shape{4, 10, 10}));
  int64_t pairs = 0;
  for (int64_t n : kLengths) pairs += n * n;
  EXPECT_EQ(mask.sum().item<int64_t>(), pairs);
  EXPECT_TRUE(mask[0][4][0].item<bool>());
  EXPECT_FALSE(mask[0][4][5].item<bool>());
  EXPECT_FALSE(mask[0][9][9].item<bool>());
  EXPECT_FALSE(mask[3].any().item<bool>());
}

TEST(PackPlan, ThereAndBack) {
  PackPlan plan(kLengths, 10, 4);
  Tensor batch = randn({6, 8, 3}).masked_fill(logical_not(padding_mask(kLengths)).unsqueeze(2), 0);
  Tensor rows = plan.pack(batch, -7);
  EXPECT_EQ(rows.sizes(), (Shape{4, 10, 3}));
  EXPECT_EQ(rows[0][9][0].item(), -7);
  EXPECT_TRUE(same(plan.unpack(rows), batch));
  rows.requires_grad_();
  plan.unpack(rows).sum().backward();
  EXPECT_TRUE(same(rows.grad().select(2, 0), plan.segments().ne(0).to(DType::f32)));
  EXPECT_THROW(plan.pack(randn({5, 8, 3})), ShapeError);
  EXPECT_THROW(plan.pack(randn({6, 7, 3})), ShapeError);
  EXPECT_THROW(plan.unpack(randn({3, 10, 3})), ShapeError);
}

TEST(PackPlan, BertGivesEachSequenceWhatItGetsAlone) {
  models::BertForMaskedLM model({.vocabulary = 50,
                                 .hidden = 16,
                                 .layers = 2,
                                 .heads = 2,
                                 .intermediate = 32,
                                 .positions = 12,  // fewer than a row has tokens
                                 .dropout = 0,
                                 .attention_dropout = 0});
  RngScope rng({3, 0});
  Tensor tokens = randint(1, 50, {6, 8}), mask = padding_mask(kLengths);
  Tensor targets = tokens.masked_fill(logical_not(mask), -100);
  PackPlan plan(kLengths, 20, 3);
  auto gradients = [&](const Tensor& logits, const Tensor& wanted) {
    model.zero_grad();
    nn::token_cross_entropy(logits, wanted, 25).backward();
    std::vector<Tensor> out;
    for (const Tensor& p : model.parameters()) out.push_back(p.grad().clone());
    return out;
  };
  Tensor apart = model.logits(tokens, {}, mask);
  Tensor together = model.logits(plan.pack(tokens), {}, plan.mask(), plan.positions());
  EXPECT_LE(distance(nn::mask_padding(apart, mask), plan.unpack(together)), 2e-6);
  std::vector<Tensor> expected = gradients(apart, targets), found = gradients(together, plan.pack(targets, -100));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(distance(found[i], expected[i]), 2e-6) << "gradient " << i;

  // Another neighbour changes nothing, wrong positions do.
  NoGradGuard no_grad;
  Tensor other = tokens.clone();
  other[1].fill_(9);
  Tensor with_other = plan.unpack(model.logits(plan.pack(other), {}, plan.mask(), plan.positions()));
  EXPECT_TRUE(same(with_other[0], plan.unpack(together)[0].detach()));
  EXPECT_GT(distance(model.logits(plan.pack(tokens), {}, plan.mask(), plan.positions() + 1), together), 1e-3);
}

TEST(PackPlan, Gpt2GivesEachSequenceWhatItGetsAlone) {
  models::Gpt2 model({.vocabulary = 50, .positions = 12, .hidden = 16, .layers = 2, .heads = 2, .dropout = 0});
  RngScope rng({3, 0});
  NoGradGuard no_grad;
  Tensor tokens = randint(1, 50, {6, 8});
  PackPlan plan(kLengths, 20, 3);
  Tensor together = plan.unpack(model.logits(plan.pack(tokens), plan.mask(), plan.positions()));
  for (int64_t i = 0; i < 6; ++i) {
    int64_t n = kLengths[static_cast<size_t>(i)];
    Tensor alone = model.logits(tokens.narrow(0, i, 1).narrow(1, 0, n))[0];
    EXPECT_LE(distance(together[i].narrow(0, 0, n), alone), 2e-6) << i;
  }
  // A sequence does not look ahead, nor at the one before it.
  Tensor other = tokens.clone();
  other[1].fill_(9);
  other[0][4].fill_(11);
  Tensor changed = plan.unpack(model.logits(plan.pack(other), plan.mask(), plan.positions()));
  EXPECT_TRUE(same(changed[0].narrow(0, 0, 4), together[0].narrow(0, 0, 4)));
  EXPECT_TRUE(same(changed[2], together[2]));
}

TEST(PackingSampler, EverySampleOnceInRowsThatFit) {
  std::vector<int64_t> lengths = some_lengths(3001, 128);
  for (int64_t window : {0, 1, 4, 16}) {
    PackingSampler sampler(lengths, {.capacity = 128, .rows = 4, .window_batches = window});
    BatchPlan plan = sampler.batches(2, 1);
    std::vector<int64_t> seen = plan.indices();
    std::sort(seen.begin(), seen.end());
    ASSERT_EQ(seen.size(), 3001u);
    for (int64_t i = 0; i < 3001; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
    for (int64_t b = 0; b < plan.size(); ++b) {
      std::vector<int64_t> of;
      for (int64_t i : plan[b]) of.push_back(lengths[static_cast<size_t>(i)]);
      EXPECT_LE(PackPlan(of, 128).rows(), 4);
    }
  }
}

TEST(PackingSampler, NoSampleIsFartherThanTheWindowFromItsShuffledPlace) {
  PackingSampler sampler(some_lengths(3001, 128), {.capacity = 128, .rows = 4, .window_batches = 4});
  EXPECT_LT(sampler.window(), 1000);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> shuffled = epoch_order(3001, 2, epoch), place(3001);
    for (size_t i = 0; i < 3001; ++i) place[static_cast<size_t>(shuffled[i])] = static_cast<int64_t>(i);
    int64_t at = 0;
    BatchPlan plan = sampler.batches(2, epoch);
    for (int64_t i : plan.indices()) ASSERT_LT(std::abs(place[static_cast<size_t>(i)] - at++), sampler.window());
  }
  EXPECT_EQ(sampler.batches(2, 1).indices(), sampler.batches(2, 1).indices());
  EXPECT_NE(sampler.batches(2, 1).indices(), sampler.batches(2, 0).indices());
  EXPECT_NE(sampler.batches(2, 1).indices(), sampler.batches(3, 1).indices());
}

// Rows are filled with the longest first, and come in another order each epoch.
TEST(PackingSampler, LongSequencesComeAnywhere) {
  std::vector<int64_t> lengths(64, 10);
  for (int64_t i = 0; i < 16; ++i) lengths[static_cast<size_t>(i)] = 100;
  PackingSampler sampler(lengths, {.capacity = 100, .rows = 1, .window_batches = 0});
  std::set<std::vector<size_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    BatchPlan plan = sampler.batches(1, epoch);
    std::vector<size_t> sizes;
    for (int64_t b = 0; b < plan.size(); ++b) sizes.push_back(plan[b].size());
    orders.insert(sizes);
  }
  EXPECT_EQ(orders.size(), 4u);
}

TEST(PackingSampler, WastesLittle) {
  std::vector<int64_t> lengths = some_lengths(3001, 128);
  PackingSampler sampler(lengths, {.capacity = 128, .rows = 4});
  EXPECT_LT(report_packing(sampler.batches(2, 1), lengths, 128).waste_percent(), 2);
  PackingSampler whole(lengths, {.capacity = 128, .rows = 4, .drop_last = true});
  LengthReport report = report_packing(whole.batches(2, 1), lengths, 128);
  EXPECT_EQ(report.shapes, 1);
  EXPECT_EQ(report.least_tokens, 512);
}

TEST(PackingSampler, SequencesThatFitNoRow) {
  EXPECT_THROW(PackingSampler({3, 9}, {.capacity = 8}), ValueError);
  EXPECT_THROW(PackingSampler({3, 9}, {.capacity = 8, .too_long = TooLong::alone}), ValueError);
  PackingSampler cut({3, 9}, {.capacity = 8, .too_long = TooLong::truncate});
  EXPECT_EQ(cut.lengths()[1], 8);
  EXPECT_EQ(cut.batches(0, 0).indices().size(), 2u);
  EXPECT_EQ(PackingSampler({}, {}).batches(0, 0).size(), 0);
}

}  // namespace
}  // namespace deft::data
