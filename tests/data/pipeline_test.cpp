// The parts between samples and batches that a loader does not show.
#include "data/pipeline.h"

#include "data/loader_util.h"
#include "data/sampler.h"

namespace deft::data {
namespace {

TEST(Arena, IsOneBlockAfterwards) {
  constexpr size_t kPiece = size_t{1} << 18;
  Arena arena;
  char* last = arena.allocate(kPiece);
  int pieces = 1;
  for (bool next_block = false; !next_block; ++pieces) {
    char* p = arena.allocate(kPiece);
    next_block = p != last + kPiece;
    last = p;
  }
  for (int round = 0; round < 2; ++round) {
    arena.clear();
    char* first = arena.allocate(kPiece);
    for (int i = 1; i < pieces; ++i)
      ASSERT_EQ(arena.allocate(kPiece), first + static_cast<size_t>(i) * kPiece) << round;
  }
}

struct Step {
  int workers, prefetch;  // asked for
  int found_workers, found_prefetch;
};
// All batches of an epoch, each after the next of the steps.
void expect_every_batch(const std::vector<Step>& steps) {
  const int64_t samples = 40, rows = 4;
  auto sampler = std::make_shared<FixedBatchSampler>(std::make_shared<SequentialSampler>(samples), rows);
  auto pipeline = std::make_shared<Pipeline>(make_feed(std::make_shared<MixedSet>(samples), sampler, 1),
                                             std::make_shared<const LoaderOptions>(), 6, Site::current());
  ASSERT_TRUE(pipeline->seek(0, 0, {}));
  Batch batch;
  for (int64_t i = 0; i < samples / rows; ++i) {
    const Step& s = steps[static_cast<size_t>(i) % steps.size()];
    pipeline->set_workers(s.workers, s.prefetch);
    EXPECT_EQ(pipeline->stats().workers, s.found_workers);
    EXPECT_EQ(pipeline->stats().prefetch, s.found_prefetch);
    ASSERT_EQ(pipeline->take(batch, 0).kind, Delivery::Kind::batch);
    EXPECT_EQ(batch.index, i);
    EXPECT_EQ(batch.rows(), rows);
  }
  EXPECT_EQ(pipeline->take(batch, 0).kind, Delivery::Kind::end);
  EXPECT_EQ(pipeline->stats().batches, samples / rows);
  pipeline->close(0);
}

TEST(Pipeline, WorkersMayBecomeMoreAndFewer) {
  expect_every_batch({{3, 6, 3, 6}, {1, 4, 1, 4}, {2, 100, 2, 6}, {1, 2, 1, 2}});
  expect_every_batch({{0, 5, 0, 1}});
}

}  // namespace
}  // namespace deft::data
