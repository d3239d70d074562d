#include <gtest/gtest.h>

#include "data/tuner.h"

namespace deft::data {
namespace {

// A loader whose workers make `rate` batches a second each, up to `limit` together, and a consumer that takes
// `wanted`. Seconds until the tuner is done.
double run(Tuner& tuner, double rate, double limit, double wanted) {
  double now = 0, waited = 0;
  for (int64_t batches = 0; !tuner.done() && now < 20; ++batches) {
    double made = std::min(rate * tuner.setting().workers, limit);
    double step = 1 / std::min(made, wanted);
    waited += step - std::min(step, 1 / wanted);
    tuner.observe(now += step, waited, batches);
  }
  return now;
}

TEST(Tuner, OneIsEnough) {
  Tuner tuner(16);
  EXPECT_LT(run(tuner, 200, 1e9, 100), 1);
  EXPECT_EQ(tuner.setting(), (LoaderSetting{1, 4}));
  EXPECT_EQ(tuner.text(), "0 % waiting; 1 worker, 4 batches ahead");
}

TEST(Tuner, DoublesUntilNobodyWaits) {
  Tuner tuner(16);
  EXPECT_LT(run(tuner, 100, 1e9, 350), 2);
  EXPECT_EQ(tuner.setting(), (LoaderSetting{4, 10}));
  EXPECT_EQ(tuner.text(),
            "data-bound: 71 % waiting; 1 -> 2 workers\ndata-bound: 43 % waiting; 2 -> 4 workers\n"
            "0 % waiting; 4 workers, 10 batches ahead");
}

TEST(Tuner, GoesBackWhereItDoesNotHelp) {
  Tuner tuner(16);
  EXPECT_LT(run(tuner, 100, 200, 1000), 2);  // a disk that is the limit
  EXPECT_EQ(tuner.setting().workers, 2);
  EXPECT_TRUE(tuner.text().ends_with("no faster with 4; 4 -> 2 workers")) << tuner.text();
}

TEST(Tuner, StopsAtTheMost) {
  Tuner tuner(3);
  run(tuner, 100, 1e9, 1000);
  EXPECT_EQ(tuner.setting().workers, 3);
  EXPECT_TRUE(tuner.text().ends_with("% waiting; 3 workers are the most this machine has threads for"));
}

// The tuner decides once a fifth of a second and four batches have passed, or after a whole second with fewer batches.
TEST(Tuner, LooksAtAWindow) {
  Tuner few(16);
  EXPECT_FALSE(few.observe(0, 0, 0));
  EXPECT_FALSE(few.observe(0.04, 0.04, 9)) << "what comes right after a change does not count";
  EXPECT_FALSE(few.observe(0.3, 0.3, 9 + 3));
  EXPECT_TRUE(few.observe(0.31, 0.31, 9 + 4));
  EXPECT_EQ(few.setting().workers, 2);
  Tuner quick(16);
  EXPECT_FALSE(quick.observe(0, 0, 0));
  EXPECT_FALSE(quick.observe(0.19, 0.19, 50));
  EXPECT_TRUE(quick.observe(0.21, 0.21, 55));
  Tuner slow(16);
  EXPECT_FALSE(slow.observe(0, 0, 0));
  EXPECT_FALSE(slow.observe(0.99, 0.99, 1));
  EXPECT_TRUE(slow.observe(1.01, 1.01, 1));
}

TEST(Tuner, SlowBatches) {
  Tuner tuner(2);
  EXPECT_LT(run(tuner, 1, 1e9, 10), 6);  // a second for a batch
  EXPECT_EQ(tuner.setting().workers, 2);
}

}  // namespace
}  // namespace deft::data
