#include "data/bucket_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "data/length_report.h"
#include "data/order.h"
#include "data/sample_writer.h"

namespace deft::data {
namespace {

// Many short, few long, as texts are.
std::vector<int64_t> some_lengths(int64_t n, int64_t longest = 120) {
  std::vector<int64_t> out;
  SampleRng rng(5, 0, 0);
  for (int64_t i = 0; i < n; ++i)
    out.push_back(std::min<int64_t>(longest, 1 + static_cast<int64_t>(-25 * std::log(1 - rng.uniform()))));
  return out;
}

int64_t samples(const BatchPlan& plan) { return static_cast<int64_t>(plan.indices().size()); }
std::vector<int64_t> sorted(std::vector<int64_t> v) {
  std::sort(v.begin(), v.end());
  return v;
}
std::vector<int64_t> all_of(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = i;
  return out;
}
// How far the farthest sample is from its place in the shuffled order.
int64_t disorder(const BatchPlan& plan, const std::vector<int64_t>& shuffled) {
  std::vector<int64_t> place(shuffled.size());
  for (size_t i = 0; i < shuffled.size(); ++i) place[static_cast<size_t>(shuffled[i])] = static_cast<int64_t>(i);
  int64_t most = 0, at = 0;
  for (int64_t sample : plan.indices()) most = std::max(most, std::abs(at++ - place[static_cast<size_t>(sample)]));
  return most;
}

// With and without buckets.
std::vector<BucketOptions> kinds() {
  return {{.rows = 16, .window_batches = 8},
          {.max_tokens = 600, .window_batches = 8},
          {.rows = 20, .max_tokens = 600, .multiple = 8, .window_batches = 4},
          {.rows = 16, .boundaries = {16, 32, 64, 120}, .window_batches = 8},
          {.max_tokens = 600, .boundaries = {8, 16, 24, 48, 120}, .multiple = 8, .window_batches = 16},
          {.max_tokens = 600, .window_batches = 0}};
}

TEST(BucketSampler, EverySampleOnceAndWithinTheLimits) {
  std::vector<int64_t> lengths = some_lengths(3001);
  for (const BucketOptions& o : kinds()) {
    BucketSampler sampler(lengths, o);
    BatchPlan plan = sampler.batches(1, 0);
    EXPECT_EQ(sorted(plan.indices()), all_of(3001)) << sampler.describe();
    for (int64_t b = 0; b < plan.size(); ++b) {
      auto rows = static_cast<int64_t>(plan[b].size()), length = sampler.padded_length(plan[b]);
      ASSERT_GT(rows, 0);
      if (o.rows > 0) {
        EXPECT_LE(rows, o.rows);
      }
      if (o.max_tokens > 0) {
        EXPECT_LE(rows * length, o.max_tokens);
      }
      EXPECT_EQ(length % o.multiple, 0);
      for (int64_t i : plan[b]) EXPECT_LE(lengths[static_cast<size_t>(i)], length);
      if (o.boundaries.empty()) continue;
      auto end = std::find(o.boundaries.begin(), o.boundaries.end(), length);
      ASSERT_NE(end, o.boundaries.end());
      for (int64_t i : plan[b])
        if (end != o.boundaries.begin()) {
          EXPECT_GT(lengths[static_cast<size_t>(i)], end[-1]);
        }
    }
  }
}

TEST(BucketSampler, DependsOnSeedAndEpochOnly) {
  for (const BucketOptions& o : kinds()) {
    BucketSampler sampler(some_lengths(500), o), again(some_lengths(500), o);
    EXPECT_EQ(sampler.batches(1, 2).indices(), again.batches(1, 2).indices());
    EXPECT_NE(sampler.batches(1, 2).indices(), sampler.batches(1, 3).indices());
    EXPECT_NE(sampler.batches(1, 2).indices(), sampler.batches(2, 2).indices());
    EXPECT_EQ(sampler.describe(), again.describe());
  }
}

TEST(BucketSampler, NoSampleIsFartherThanTheWindowFromItsShuffledPlace) {
  std::vector<int64_t> lengths = some_lengths(5003);
  for (const BucketOptions& o : kinds()) {
    BucketSampler sampler(lengths, o);
    for (int64_t epoch = 0; epoch < 5; ++epoch)
      EXPECT_LE(disorder(sampler.batches(7, epoch), epoch_order(5003, 7, epoch)), sampler.window());
    if (o.window_batches == 0) {
      EXPECT_EQ(sampler.window(), 5003);
    }
    // Of the size that was asked for: as many batches.
    if (o.window_batches > 0 && o.rows == 16) {
      EXPECT_EQ(sampler.window(), 16 * o.window_batches);
    }
  }
}

TEST(BucketSampler, ARareBucketDoesNotWaitForever) {
  std::vector<int64_t> lengths(2000, 10);
  lengths[3] = 100;  // the only one of its bucket
  BucketSampler sampler(lengths, {.rows = 10, .boundaries = {10, 100}, .window_batches = 5, .shuffle = false});
  BatchPlan plan = sampler.batches(0, 0);
  int64_t before = 0, b = 0;
  while (plan[b][0] != 3) before += static_cast<int64_t>(plan[b++].size());
  EXPECT_EQ(plan[b].size(), 1u);
  EXPECT_GT(before, 40);
  EXPECT_LE(before, 3 + sampler.window());
}

TEST(BucketSampler, PadsLessThanShuffledBatches) {
  std::vector<int64_t> lengths = some_lengths(4000);
  FixedBatchSampler naive(std::make_shared<ShuffledSampler>(4000), 16);
  double before = report_lengths(naive.batches(1, 0), lengths).waste_percent();
  EXPECT_GT(before, 50);
  BucketSampler rows(lengths, {.rows = 16, .window_batches = 64}), tokens(lengths, {.max_tokens = 640});
  EXPECT_LT(report_lengths(rows.batches(1, 0), lengths).waste_percent(), 8);
  EXPECT_LT(report_lengths(tokens.batches(1, 0), lengths).waste_percent(), 8);
  BucketSampler narrow(lengths, {.rows = 16, .window_batches = 1});  // batches in shuffled order
  EXPECT_GT(report_lengths(narrow.batches(1, 0), lengths).waste_percent(), 50);
}

TEST(BucketSampler, ShortAndLongBatchesAreMixed) {
  std::vector<int64_t> lengths = some_lengths(4000);
  BucketSampler sampler(lengths, {.rows = 16, .window_batches = 64});
  BatchPlan plan = sampler.batches(1, 0);
  int64_t rising = 0;
  for (int64_t b = 1; b < plan.size(); ++b)
    rising += sampler.padded_length(plan[b]) > sampler.padded_length(plan[b - 1]);
  EXPECT_NEAR(static_cast<double>(rising) / static_cast<double>(plan.size()), 0.5, 0.15);
  // In another order each epoch, also where one window holds everything and batches are as long as ever.
  BucketSampler whole(lengths, {.rows = 16, .window_batches = 0});
  auto turns = [&](uint64_t seed, int64_t epoch) {
    BatchPlan all = whole.batches(seed, epoch);
    std::vector<int64_t> out;
    for (int64_t b = 0; b < all.size(); ++b) out.push_back(whole.padded_length(all[b]));
    return out;
  };
  EXPECT_EQ(sorted(turns(1, 0)), sorted(turns(1, 1)));
  EXPECT_NE(turns(1, 0), turns(1, 1));
  EXPECT_NE(turns(1, 0), turns(2, 0));
}

// A sample alone in its bucket is given out once the window of other samples is full, and not one sample later.
TEST(BucketSampler, TheOldestWaitsForAWindow) {
  std::vector<int64_t> lengths(21, 1);
  lengths[0] = 8;
  BucketSampler sampler(lengths, {.rows = 3, .boundaries = {4, 8}, .window_batches = 2, .shuffle = false});
  ASSERT_EQ(sampler.window(), 6);
  const BatchPlan plan = sampler.batches(1, 0);
  ASSERT_EQ(plan.size(), 8);
  auto batch = [&](int64_t b) { return std::vector<int64_t>(plan[b].begin(), plan[b].end()); };
  EXPECT_EQ(batch(0), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(batch(1), (std::vector<int64_t>{0}));
  EXPECT_EQ(batch(2), (std::vector<int64_t>{4, 5, 6}));
}

TEST(BucketSampler, BatchesOfOneToken) {
  EXPECT_EQ(BucketSampler({1, 0, 1}, {.max_tokens = 1}).batches(1, 0).size(), 3);
  EXPECT_THROW(BucketSampler({1, 2}, {.max_tokens = 1}), ValueError);
  EXPECT_THROW(BucketSampler({1}, {.max_tokens = 1, .multiple = 2}), ValueError);
}

TEST(BucketSampler, WithoutShuffleTheOrderOfTheDataSet) {
  BucketSampler sampler({5, 1, 4, 2, 3}, {.rows = 2, .window_batches = 0, .shuffle = false});
  BatchPlan plan = sampler.batches(9, 4);
  EXPECT_EQ(plan.indices(), (std::vector<int64_t>{1, 3, 4, 2, 0}));  // sorted by length
  EXPECT_EQ(sampler.batches(1, 0).indices(), plan.indices());
}

TEST(BucketSampler, DropLastLeavesOutOnlyWhatTheEndCutShort) {
  std::vector<int64_t> lengths = some_lengths(1003);
  BucketSampler rows(lengths, {.rows = 16, .window_batches = 4, .drop_last = true});
  BatchPlan plan = rows.batches(1, 0);
  EXPECT_EQ(samples(plan), 1003 / 16 * 16);
  for (int64_t b = 0; b < plan.size(); ++b) EXPECT_EQ(plan[b].size(), 16u);

  BucketOptions o{.max_tokens = 600, .boundaries = {16, 32, 64, 120}, .window_batches = 0, .drop_last = true};
  BucketSampler buckets(lengths, o);
  plan = buckets.batches(1, 0);
  EXPECT_GT(samples(plan), 900);
  EXPECT_LT(samples(plan), 1003);
  for (int64_t b = 0; b < plan.size(); ++b)
    EXPECT_GT((static_cast<int64_t>(plan[b].size()) + 1) * buckets.padded_length(plan[b]), 600);
}

TEST(BucketSampler, SamplesThatAreTooLong) {
  std::vector<int64_t> lengths = some_lengths(200);
  lengths[77] = 500;
  for (std::vector<int64_t> boundaries : {std::vector<int64_t>{}, std::vector<int64_t>{32, 128}}) {
    BucketOptions o{.max_tokens = 256, .boundaries = boundaries, .multiple = 8};
    try {
      BucketSampler sampler(lengths, o);
      FAIL();
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("sample 77 has 500 tokens"), std::string::npos) << e.what();
    }
    o.too_long = TooLong::alone;
    BucketSampler alone(lengths, o);
    BatchPlan plan = alone.batches(1, 0);
    EXPECT_EQ(samples(plan), 200);
    int64_t found = 0;
    for (int64_t b = 0; b < plan.size(); ++b) {
      bool has = std::find(plan[b].begin(), plan[b].end(), 77) != plan[b].end();
      found += has;
      if (has) {
        EXPECT_EQ(plan[b].size(), 1u);
      }
      if (has) {
        EXPECT_EQ(alone.padded_length(plan[b]), 504);
      }
      if (!has) {
        EXPECT_LE(static_cast<int64_t>(plan[b].size()) * alone.padded_length(plan[b]), 256);
      }
    }
    EXPECT_EQ(found, 1);

    o.too_long = TooLong::truncate;
    BucketSampler cut(lengths, o);
    EXPECT_EQ(cut.lengths()[77], boundaries.empty() ? 256 : 128);
    plan = cut.batches(1, 0);
    for (int64_t b = 0; b < plan.size(); ++b)
      EXPECT_LE(static_cast<int64_t>(plan[b].size()) * cut.padded_length(plan[b]), 256);
  }
}

TEST(BucketSampler, FixedBucketsGiveFewShapes) {
  std::vector<int64_t> lengths = some_lengths(8000);
  BucketSampler sampler(lengths, {.max_tokens = 960, .boundaries = {16, 32, 64, 120}, .window_batches = 0});
  auto padded = [&](std::span<const int64_t> batch) { return sampler.padded_length(batch); };
  LengthReport report = report_lengths(sampler.batches(1, 0), lengths, padded);
  EXPECT_LE(report.shapes, 8);  // one per bucket, and one for the rest of each
  EXPECT_EQ(report.most_tokens, 960);
}

TEST(BucketSampler, EmptyAndTiny) {
  for (const BucketOptions& o : kinds()) {
    EXPECT_EQ(BucketSampler({}, o).batches(1, 0).size(), 0);
    EXPECT_EQ(samples(BucketSampler({3}, o).batches(1, 0)), 1);
    EXPECT_EQ(samples(BucketSampler({0, 0, 3}, o).batches(1, 0)), 3);
  }
}

TEST(BucketSampler, OptionsThatMakeNoSense) {
  EXPECT_THROW(BucketSampler({1}, {}), ValueError);
  EXPECT_THROW(BucketSampler({1}, {.rows = -1, .max_tokens = 5}), ValueError);
  EXPECT_THROW(BucketSampler({1}, {.rows = 1, .boundaries = {4, 4}}), ValueError);
  EXPECT_THROW(BucketSampler({1}, {.rows = 1, .boundaries = {4}, .multiple = 8}), ValueError);
  EXPECT_THROW(BucketSampler({1}, {.max_tokens = 16, .boundaries = {8, 32}}), ValueError);
  EXPECT_THROW(BucketSampler({1}, {.max_tokens = 7, .multiple = 8}), ValueError);
  EXPECT_THROW(BucketSampler({1}, {.rows = 1, .multiple = 0}), ValueError);
  EXPECT_THROW(BucketSampler({-1}, {.rows = 1}), ValueError);
}

TEST(BucketSampler, DescriptionTellsLengthsAndOptionsApart) {
  std::set<std::string> seen;
  std::vector<int64_t> lengths = some_lengths(1000);
  for (const BucketOptions& o : kinds()) seen.insert(BucketSampler(lengths, o).describe());
  std::swap(lengths[0], lengths[1]);
  for (const BucketOptions& o : kinds()) seen.insert(BucketSampler(lengths, o).describe());
  EXPECT_EQ(seen.size(), 2 * kinds().size());
}

}  // namespace
}  // namespace deft::data
