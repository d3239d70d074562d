// The stream of batches is a pure function of (seed, epoch, index).
#include <set>
#include <thread>

#include "data/loader_util.h"
#include "ops/random.h"

namespace deft::data {
namespace {

constexpr int64_t kSamples = 103, kEpochs = 3;

struct Configuration {
  int workers;
  bool ordered;
  int64_t resume_every;  // batches; 0: never
};

LoaderOptions options_for(const Configuration& c) {
  return {.batch_size = 8, .shuffle = true, .seed = 11, .workers = c.workers, .ordered = c.ordered};
}

// Three epochs; where asked for, with a new loader every few batches, and its state read twice.
template <class Set>
Hashes run(const std::shared_ptr<Set>& set, const LoaderOptions& options, int64_t resume_every) {
  Hashes hashes;
  auto loader = std::make_unique<DataLoader>(set, options);
  Batch batch;
  int64_t since = 0;
  while (loader->epoch() < kEpochs) {
    if (loader->next(batch)) note(hashes, batch);
    if (resume_every == 0 || ++since < resume_every) continue;
    since = 0;
    State state = loader->state();
    loader = std::make_unique<DataLoader>(set, options);
    loader->load_state(state);
    loader->load_state(loader->state());
  }
  return hashes;
}

TEST(LoaderStream, TheSameInTwelveConfigurations) {
  auto set = std::make_shared<MixedSet>(kSamples);
  Hashes expected = run(set, options_for({0, true, 0}), 0);
  EXPECT_EQ(expected.size(), static_cast<size_t>(kEpochs * 13));
  for (int workers : {0, 1, 4})
    for (bool ordered : {true, false})
      for (int64_t resume : {0, 3})
        EXPECT_EQ(run(set, options_for({workers, ordered, resume}), resume), expected)
            << workers << " workers, ordered " << ordered << ", resumed every " << resume;
  EXPECT_EQ(run(set, options_for({64, true, 0}), 0), expected);
  EXPECT_EQ(run(set, options_for({64, false, 1}), 1), expected);
}

TEST(LoaderStream, TheSameForRecords) {
  auto set = std::make_shared<MixedStream>(kSamples);
  auto options = [](int workers, bool ordered) {
    return LoaderOptions{.batch_size = 8, .seed = 11, .workers = workers, .ordered = ordered};
  };
  Hashes expected = run(set, options(0, true), 0);
  EXPECT_EQ(expected.size(), static_cast<size_t>(kEpochs * 13));
  for (int workers : {0, 1, 4})
    for (bool ordered : {true, false})
      for (int64_t resume : {0, 3})
        EXPECT_EQ(run(set, options(workers, ordered), resume), expected)
            << workers << " workers, ordered " << ordered << ", resumed every " << resume;
}

TEST(LoaderStream, SlowSamplesChangeNothing) {
  auto set = std::make_shared<MixedSet>(kSamples);
  Hashes expected = run(set, options_for({0, true, 0}), 0);
  set->before = [](int64_t index) {
    if (index % 17 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  for (bool ordered : {true, false}) EXPECT_EQ(run(set, options_for({3, ordered, 0}), 5), expected);
}

TEST(LoaderStream, DependsOnSeedAndEpoch) {
  auto set = std::make_shared<MixedSet>(kSamples);
  LoaderOptions options{.batch_size = 8, .seed = 11, .workers = 2};
  Hashes a = run(set, options, 0);
  options.seed = 12;
  Hashes b = run(set, options, 0);
  std::set<uint64_t> all;
  for (const Hashes* h : {&a, &b})
    for (auto [key, hash] : *h) all.insert(hash);
  EXPECT_EQ(all.size(), a.size() + b.size());
}

TEST(LoaderStream, OrderedBatchesComeInOrder) {
  auto set = std::make_shared<MixedSet>(kSamples);
  set->before = [](int64_t index) {
    if (index % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300 * (index % 3)));
  };
  DataLoader loader(set, {.batch_size = 4, .workers = 4});
  int64_t expected = 0;
  for (Batch& batch : loader) {
    EXPECT_EQ(batch.index, expected);
    EXPECT_EQ(sample_numbers(batch)[0], 4 * expected++);
  }
  EXPECT_EQ(expected, 26);
}

// A batch that is held up lets others pass, but none of the next epoch.
TEST(LoaderStream, UnorderedBatchesOvertake) {
  auto set = std::make_shared<MixedSet>(24);
  std::atomic<bool> go{false};
  set->before = [&](int64_t index) {
    if (index == 0) go.wait(false);
  };
  DataLoader loader(set, {.batch_size = 4, .workers = 2, .prefetch = 8, .ordered = false});
  Batch batch;
  std::vector<int64_t> order;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(loader.next(batch));
    order.push_back(batch.index);
    EXPECT_EQ(batch.epoch, 0);
  }
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()), (std::set<int64_t>{1, 2, 3, 4, 5}));
  State state = loader.state();
  EXPECT_EQ(state.get<int64_t>("batch"), 0);
  go = true;
  go.notify_all();
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.index, 0);
  EXPECT_FALSE(loader.next(batch));
  // What was saved when five were out lacks only the first.
  DataLoader again(set, {.batch_size = 4, .workers = 0, .ordered = false});
  again.load_state(state);
  ASSERT_TRUE(again.next(batch));
  EXPECT_EQ(batch.index, 0);
  EXPECT_FALSE(again.next(batch));
}

TEST(LoaderStream, OpsInsideASampleDrawTheSameNumbers) {
  struct Random : MixedSet {
    using MixedSet::MixedSet;
    const std::vector<Field>& fields() const override { return fields_; }
    void get(int64_t, SampleWriter& out) const override {
      std::copy_n(randn({4}).data<float>(), 4, out.fixed<float>(0));
    }
    std::vector<Field> fields_{{"x", DType::f32, {4}}};
  };
  auto set = std::make_shared<Random>(50);
  Hashes expected = run(set, {.batch_size = 8, .workers = 0}, 0);
  EXPECT_EQ(run(set, {.batch_size = 8, .workers = 3}, 4), expected);
  std::set<uint64_t> all;
  for (auto [key, hash] : expected) all.insert(hash);
  EXPECT_EQ(all.size(), expected.size());
}

TEST(LoaderStream, StateAtTheEndsOfAnEpoch) {
  auto set = std::make_shared<MixedSet>(16);
  LoaderOptions options{.batch_size = 8, .workers = 2};
  DataLoader loader(set, options), other(set, options);
  Batch batch;
  loader.next(batch);
  loader.next(batch);  // the last one, but its end was not seen
  other.load_state(loader.state());
  EXPECT_EQ(other.epoch(), 0);
  int count = 0;
  for (Batch& b : other) count += b.rows() > 0;
  EXPECT_EQ(count, 0);
  EXPECT_EQ(other.epoch(), 1);
  EXPECT_FALSE(loader.next(batch));
  other.load_state(loader.state());
  EXPECT_EQ(other.epoch(), 1);
  for (Batch& b : other) count += b.epoch == 1;
  EXPECT_EQ(count, 2);
}

TEST(LoaderStream, StateOfAnotherLoaderIsRefused) {
  auto set = std::make_shared<MixedSet>(16);
  State state = DataLoader(set, {.batch_size = 8, .seed = 1}).state();
  auto refuses = [&](std::shared_ptr<const Dataset> other, LoaderOptions options) {
    DataLoader loader(std::move(other), std::move(options));
    EXPECT_THROW(loader.load_state(state), ValueError);
  };
  refuses(set, {.batch_size = 8, .seed = 2});
  refuses(set, {.batch_size = 4, .seed = 1});
  refuses(set, {.batch_size = 8, .shuffle = true, .seed = 1});
  refuses(set, {.batch_size = 8, .drop_last = true, .seed = 1});
  refuses(std::make_shared<MixedSet>(17), {.batch_size = 8, .seed = 1});
  DataLoader same(set, {.batch_size = 8, .seed = 1, .workers = 7, .ordered = false});
  EXPECT_NO_THROW(same.load_state(state));
  EXPECT_THROW(same.load_state(State{}), ValueError);
}

TEST(LoaderStream, ALoopLeftEarlyGoesOnWithTheNextEpoch) {
  auto set = std::make_shared<MixedSet>(40);
  DataLoader loader(set, {.batch_size = 4, .shuffle = true, .workers = 2});
  std::vector<int64_t> epochs;
  for (int i = 0; i < 3; ++i)
    for (Batch& batch : loader) {
      EXPECT_EQ(batch.index, 0);
      epochs.push_back(batch.epoch);
      break;
    }
  EXPECT_EQ(epochs, (std::vector<int64_t>{0, 1, 2}));
  loader.start(7);
  int64_t count = 0;
  for (Batch& batch : loader) {
    EXPECT_EQ(batch.epoch, 7);
    ++count;
  }
  EXPECT_EQ(count, loader.batches());
  EXPECT_EQ(loader.epoch(), 8);
  EXPECT_THROW(loader.start(-1), ValueError);
}

}  // namespace
}  // namespace deft::data
