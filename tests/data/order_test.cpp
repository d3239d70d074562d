#include "data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace deft::data {
namespace {

TEST(EpochOrder, IsAPermutation) {
  for (int64_t n : {0, 1, 2, 7, 1000}) {
    std::vector<int64_t> order = epoch_order(n, 3, 1);
    std::vector<int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  }
  EXPECT_THROW(epoch_order(-1, 0, 0), ValueError);
}

TEST(EpochOrder, DependsOnSeedAndEpoch) {
  EXPECT_EQ(epoch_order(100, 1, 2), epoch_order(100, 1, 2));
  EXPECT_NE(epoch_order(100, 1, 2), epoch_order(100, 1, 3));
  EXPECT_NE(epoch_order(100, 1, 2), epoch_order(100, 2, 2));
}

TEST(EpochOrder, EveryOrderOfThreeIsEquallyLikely) {
  std::vector<int> counts(27);
  for (int64_t epoch = 0; epoch < 6000; ++epoch) {
    std::vector<int64_t> o = epoch_order(3, 9, epoch);
    ++counts[static_cast<size_t>(o[0] * 9 + o[1] * 3 + o[2])];
  }
  int seen = 0;
  for (int c : counts) {
    if (!c) continue;
    ++seen;
    EXPECT_NEAR(c, 1000, 150);  // five standard deviations
  }
  EXPECT_EQ(seen, 6);
}

}  // namespace
}  // namespace deft::data
