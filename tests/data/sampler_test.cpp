#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "data/order.h"

namespace deft::data {
namespace {

using Indices = std::vector<int64_t>;

TEST(Sampler, Sequential) {
  EXPECT_EQ(SequentialSampler(4).indices(9, 9), (Indices{0, 1, 2, 3}));
  EXPECT_TRUE(SequentialSampler(0).indices(0, 0).empty());
  EXPECT_THROW(SequentialSampler(-1), ValueError);
}

TEST(Sampler, Shuffled) {
  ShuffledSampler sampler(100);
  EXPECT_EQ(sampler.indices(3, 5), epoch_order(100, 3, 5));
  EXPECT_NE(sampler.indices(3, 5), sampler.indices(3, 6));
}

TEST(Sampler, Subset) {
  SubsetSampler in_order({8, 1, 5}, false), shuffled({8, 1, 5, 40, 30, 20});
  EXPECT_EQ(in_order.indices(1, 2), (Indices{8, 1, 5}));
  std::set<Indices> orders;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    Indices order = shuffled.indices(1, epoch);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (Indices{1, 5, 8, 20, 30, 40}));
  }
  EXPECT_GT(orders.size(), 15u);
  EXPECT_NE(in_order.describe(), SubsetSampler({8, 1, 6}, false).describe());
}

TEST(Sampler, WeightedWithReplacement) {
  std::vector<double> weights{1, 0, 3, 6, 0};
  WeightedSampler sampler(weights, 10000);
  Indices drawn = sampler.indices(4, 0);
  EXPECT_EQ(drawn.size(), 10000u);
  EXPECT_EQ(drawn, sampler.indices(4, 0));
  EXPECT_NE(drawn, sampler.indices(4, 1));
  for (int64_t i = 0; i < 5; ++i) {
    double p = weights[static_cast<size_t>(i)] / 10, expected = 10000 * p;
    EXPECT_NEAR(static_cast<double>(std::count(drawn.begin(), drawn.end(), i)), expected,
                5 * std::sqrt(expected * (1 - p)));
  }
}

// The first of two draws has a chance in proportion to its weight; the second among what is left.
TEST(Sampler, WeightedWithoutReplacement) {
  WeightedSampler sampler({1, 0, 3, 6}, 2, false);
  std::vector<int> first(4), second_after_3(4);
  for (int64_t epoch = 0; epoch < 5000; ++epoch) {
    Indices drawn = sampler.indices(4, epoch);
    EXPECT_NE(drawn[0], drawn[1]);
    ++first[static_cast<size_t>(drawn[0])];
    if (drawn[0] == 3) ++second_after_3[static_cast<size_t>(drawn[1])];
  }
  EXPECT_EQ(first[1] + second_after_3[1], 0);
  EXPECT_NEAR(first[0], 500, 5 * std::sqrt(450));
  EXPECT_NEAR(first[2], 1500, 5 * std::sqrt(1050));
  EXPECT_NEAR(second_after_3[0], first[3] / 4.0, 5 * std::sqrt(first[3] * 0.1875));
  EXPECT_EQ(WeightedSampler({1, 0, 3, 6}, 3, false).indices(0, 0).size(), 3u);
}

TEST(Sampler, WeightsThatCannotBe) {
  EXPECT_THROW(WeightedSampler({1, -1}, 1), ValueError);
  EXPECT_THROW(WeightedSampler({1, NAN}, 1), ValueError);
  EXPECT_THROW(WeightedSampler({1, INFINITY}, 1), ValueError);
  EXPECT_THROW(WeightedSampler({1e308, 1e308}, 1), ValueError);
  EXPECT_THROW(WeightedSampler({0, 0}, 1), ValueError);
  EXPECT_THROW(WeightedSampler({1, 0}, 2, false), ValueError);
  EXPECT_THROW(WeightedSampler({1}, -1), ValueError);
  EXPECT_TRUE(WeightedSampler({}, 0).indices(0, 0).empty());
}

TEST(Sampler, FixedBatches) {
  auto sampler = std::make_shared<SequentialSampler>(7);
  for (auto [size, drop, sizes] : std::vector<std::tuple<int64_t, bool, Indices>>{
           {3, false, {3, 3, 1}}, {3, true, {3, 3}}, {7, true, {7}}, {9, false, {7}}, {9, true, {}}}) {
    FixedBatchSampler batches(sampler, size, drop);
    BatchPlan plan = batches.batches(0, 0);
    Indices found, all;
    for (int64_t b = 0; b < plan.size(); ++b) {
      found.push_back(static_cast<int64_t>(plan[b].size()));
      all.insert(all.end(), plan[b].begin(), plan[b].end());
    }
    EXPECT_EQ(found, sizes);
    EXPECT_EQ(all, plan.indices());
    EXPECT_EQ(batches.count(0, 0), plan.size());
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int64_t>(i));
  }
  EXPECT_EQ(FixedBatchSampler(std::make_shared<SequentialSampler>(0), 3).batches(0, 0).size(), 0);
  EXPECT_THROW(FixedBatchSampler(sampler, 0), ValueError);
  EXPECT_THROW(FixedBatchSampler(nullptr, 1), ValueError);
  EXPECT_NE(FixedBatchSampler(sampler, 3).describe(), FixedBatchSampler(sampler, 3, true).describe());
}

}  // namespace
}  // namespace deft::data
