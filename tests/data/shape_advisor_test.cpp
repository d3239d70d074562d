#include "data/shape_advisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "data/bucket_sampler.h"
#include "data/length_report.h"
#include "data/sample_writer.h"

namespace deft::data {
namespace {

int64_t padded(const std::vector<int64_t>& lengths, const std::vector<int64_t>& ends) {
  int64_t sum = 0;
  for (int64_t n : lengths) sum += *std::lower_bound(ends.begin(), ends.end(), n);
  return sum;
}

// Every choice of at most k boundaries.
int64_t fewest(const std::vector<int64_t>& lengths, int64_t k, int64_t multiple) {
  int64_t top = (*std::max_element(lengths.begin(), lengths.end()) + multiple - 1) / multiple * multiple;
  int64_t best = INT64_MAX;
  std::vector<int64_t> ends;
  std::function<void(int64_t)> choose = [&](int64_t from) {
    ends.push_back(top);
    best = std::min(best, padded(lengths, ends));
    ends.pop_back();
    if (static_cast<int64_t>(ends.size()) + 1 >= k) return;
    for (int64_t e = from; e < top; e += multiple) {
      ends.push_back(e);
      choose(e + multiple);
      ends.pop_back();
    }
  };
  choose(multiple);
  return best;
}

TEST(ShapeAdvisor, NoBoundariesAreBetter) {
  SampleRng rng(1, 0, 0);
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> lengths;
    int64_t n = 1 + rng.below(40), top = 1 + rng.below(24), multiple = 1 + rng.below(3);
    for (int64_t i = 0; i < n; ++i) lengths.push_back(1 + rng.below(top));
    for (int64_t k : {1, 2, 3, 4}) {
      ShapeAdvice advice = advise_shapes(lengths, {.buckets = k, .multiple = multiple});
      EXPECT_LE(static_cast<int64_t>(advice.boundaries.size()), k);
      EXPECT_TRUE(std::is_sorted(advice.boundaries.begin(), advice.boundaries.end()));
      for (int64_t b : advice.boundaries) EXPECT_EQ(b % multiple, 0);
      EXPECT_EQ(advice.padded_then, padded(lengths, advice.boundaries));
      EXPECT_EQ(advice.padded_then, fewest(lengths, k, multiple)) << "buckets " << k << ", multiple " << multiple;
    }
  }
}

TEST(ShapeAdvisor, ManyDistinctLengths) {
  std::vector<int64_t> lengths;
  for (int64_t i = 1; i <= 60000; ++i) lengths.push_back(i);
  ShapeAdvice advice = advise_shapes(lengths, {.buckets = 4, .multiple = 1});
  EXPECT_EQ(advice.boundaries, (std::vector<int64_t>{15000, 30000, 45000, 60000}));  // even, since lengths are
}

TEST(ShapeAdvisor, ExpectsWhatShuffledBatchesPad) {
  std::vector<int64_t> lengths;
  SampleRng rng(2, 0, 0);
  for (int i = 0; i < 20000; ++i) lengths.push_back(1 + rng.below(10) * rng.below(12));
  FixedBatchSampler naive(std::make_shared<ShuffledSampler>(20000), 16);
  ShapeAdvice advice = advise_shapes(lengths, {.buckets = 6, .multiple = 8, .rows = 16});
  EXPECT_NEAR(advice.waste_now, report_lengths(naive.batches(3, 0), lengths).waste_percent(), 0.5);
  BucketSampler sampler(lengths, {.rows = 16, .boundaries = advice.boundaries, .multiple = 8});
  auto to = [&](std::span<const int64_t> batch) { return sampler.padded_length(batch); };
  EXPECT_DOUBLE_EQ(advice.waste_then, report_lengths(sampler.batches(3, 0), lengths, to).waste_percent());
  EXPECT_LT(advice.waste_then, advice.waste_now / 2);
}

TEST(ShapeAdvisor, OneSentence) {
  std::vector<int64_t> lengths{10, 10, 20, 20, 40};
  ShapeAdvice advice = advise_shapes(lengths, {.buckets = 3, .multiple = 4, .boundaries = {40}});
  EXPECT_EQ(advice.text,
            "1 bucket up to 40 spends 50.0 % of the tokens on padding; 3 buckets up to 12, 20 and 40 would spend "
            "3.8 %: 1.92 times fewer tokens.");
  EXPECT_EQ(advise_shapes(std::vector<int64_t>{8, 8}, {.rows = 2}).text,
            "Shuffled batches of 2 spend 0.0 % of the tokens on padding; 1 bucket up to 8 would not spend less.");
  EXPECT_EQ(advise_shapes({}).text, "There are no lengths to advise on.");
  EXPECT_THROW(advise_shapes(lengths, {.buckets = 0}), ValueError);
  EXPECT_THROW(advise_shapes(std::vector<int64_t>{0}), ValueError);
}

}  // namespace
}  // namespace deft::data
