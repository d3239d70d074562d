// Samples that throw, hang, lie about their shape or are huge.
#include <stdexcept>
#include <thread>

#include "data/loader_util.h"
#include "runtime/memory.h"

namespace deft::data {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::shared_ptr<MixedSet> failing(int64_t n, std::function<bool(int64_t)> bad) {
  auto set = std::make_shared<MixedSet>(n);
  set->before = [bad](int64_t i) {
    if (bad(i)) throw std::runtime_error(fmt::format("cannot decode {}", i));
  };
  return set;
}

// The error of the first call of next() that throws.
std::optional<DataError> first_error(DataLoader& loader) {
  Batch batch;
  try {
    while (loader.next(batch)) {
    }
  } catch (const DataError& e) {
    return e;
  }
  return {};
}

// One field, one sample.
class OneSample : public Dataset {
 public:
  OneSample(Field field, std::function<void(SampleWriter&)> get) : fields_{std::move(field)}, get_(std::move(get)) {}
  int64_t size() const override { return 1; }
  const std::vector<Field>& fields() const override { return fields_; }
  void get(int64_t, SampleWriter& out) const override { get_(out); }

 private:
  std::vector<Field> fields_;
  std::function<void(SampleWriter&)> get_;
};

TEST(LoaderFault, AnErrorSaysWhichSampleFileAndWorker) {
  auto set = failing(30, [](int64_t i) { return i == 13; });
  for (int workers : {0, 1, 4}) {
    DataLoader loader(set, {.batch_size = 4, .workers = workers});
    Batch batch;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(loader.next(batch));
    try {
      loader.next(batch);
      FAIL() << "sample 13 was read";
    } catch (const DataError& e) {
      EXPECT_EQ(e.index, 13);
      EXPECT_EQ(e.file, "file-13");
      EXPECT_EQ(e.found, "cannot decode 13");
      EXPECT_TRUE(e.worker >= 0 && e.worker < std::max(workers, 1));
      EXPECT_EQ(e.what(), fmt::format("data loader: sample 13 (file-13), worker {}: cannot decode 13", e.worker));
      EXPECT_THROW(std::rethrow_exception(e.cause), std::runtime_error);
    }
    // It goes on behind that batch.
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.index, 4);
    EXPECT_EQ(loader.state().get<int64_t>("batch"), 5);
    EXPECT_EQ(loader.stats().failed, 1);
  }
}

TEST(LoaderFault, TheFirstBadRowIsTold) {
  std::atomic<bool> last_failed{false};
  auto set = failing(64, [&](int64_t i) {
    if (i == 63) last_failed = true;
    if (i == 1) {
      while (!last_failed) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(20ms);
    }
    return i == 1 || i == 63;
  });
  DataLoader loader(set, {.batch_size = 64, .workers = 4});
  EXPECT_EQ(first_error(loader)->index, 1);
}

TEST(LoaderFault, WhatIsThrownNeedNotBeAnException) {
  auto set = std::make_shared<MixedSet>(4);
  set->before = [](int64_t) { throw 7; };
  DataLoader loader(set, {.workers = 1});
  EXPECT_EQ(first_error(loader)->found, "an exception that is not a std::exception was thrown");
}

TEST(LoaderFault, SkippedSamplesAreLeftOutAndCounted) {
  auto bad = [](int64_t i) { return i % 7 == 3 || (i >= 8 && i < 12); };  // all of the third batch of four
  auto set = failing(30, bad);
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 30; ++i)
    if (!bad(i)) expected.push_back(i);
  Hashes hashes[2];
  for (int workers : {0, 4}) {
    DataLoader loader(set, {.batch_size = 4, .workers = workers, .on_error = OnError::skip});
    std::vector<int64_t> got;
    for (Batch& batch : loader) {
      EXPECT_EQ(batch["fixed"].size(0), batch.rows());
      EXPECT_EQ(batch["fixed"].select(1, 0).to_vector<int64_t>(), sample_numbers(batch));
      EXPECT_EQ(batch.lengths("varying").numel(), batch.rows());
      for (int64_t i : sample_numbers(batch)) got.push_back(i);
      note(hashes[workers > 0], batch);
    }
    EXPECT_EQ(got, expected);
    LoaderStats stats = loader.stats();
    EXPECT_EQ(stats.skipped, 30 - static_cast<int64_t>(expected.size()));
    EXPECT_EQ(stats.samples, static_cast<int64_t>(expected.size()));
    EXPECT_EQ(stats.failed, 0);
    ASSERT_FALSE(stats.errors.empty());
    EXPECT_NE(stats.errors[0].find("cannot decode"), std::string::npos);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0].size(), 7u);
  EXPECT_EQ(hashes[0].count({0, 2}), 0u);
}

TEST(LoaderFault, SkippedRecords) {
  auto stream = std::make_shared<MixedStream>(20);
  stream->before = [](int64_t i) {
    if (i == 5 || i == 6) throw ValueError("torn");
  };
  for (int workers : {0, 3}) {
    DataLoader loader(stream, {.batch_size = 4, .workers = workers, .on_error = OnError::skip});
    int64_t rows = 0;
    for (Batch& batch : loader) rows += batch.rows();
    EXPECT_EQ(rows, 18);
    DataLoader strict(stream, {.batch_size = 4, .workers = workers});
    auto error = first_error(strict);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->index, 5);
    EXPECT_EQ(error->file, "5");
  }
}

// Replacements come from the epoch's own samples, and are always the same.
TEST(LoaderFault, ReplacedSamples) {
  auto set = failing(1000, [](int64_t i) { return i % 4 == 1 || i >= 100; });
  std::vector<int64_t> rows(100);
  for (int64_t i = 0; i < 100; ++i) rows[static_cast<size_t>(i)] = i;
  auto sampler = std::make_shared<SubsetSampler>(rows, false);
  Hashes expected;
  for (int workers : {0, 1, 4}) {
    DataLoader loader(
        set, {.batch_size = 8, .sampler = sampler, .seed = 3, .workers = workers, .on_error = OnError::replace});
    Hashes hashes;
    int64_t at = 0;
    for (Batch& batch : loader) {
      note(hashes, batch);
      for (int64_t i : sample_numbers(batch)) {
        EXPECT_TRUE(i < 100 && i % 4 != 1);
        EXPECT_TRUE(at % 4 == 1 || i == at);
        ++at;
      }
      EXPECT_EQ(batch["fixed"].select(1, 0).to_vector<int64_t>(), sample_numbers(batch));
    }
    EXPECT_EQ(at, 100);
    EXPECT_EQ(loader.stats().replaced, 25);
    if (expected.empty()) expected = hashes;
    EXPECT_EQ(hashes, expected);
  }
}

TEST(LoaderFault, NothingLeftToReplaceWith) {
  auto set = failing(10, [](int64_t) { return true; });
  DataLoader loader(set, {.batch_size = 2, .workers = 2, .on_error = OnError::replace});
  EXPECT_EQ(first_error(loader)->index, 0);
}

TEST(LoaderFault, OutOfMemoryIsNotTheSamplesFault) {
  auto set = std::make_shared<MixedSet>(8);
  set->before = [](int64_t i) {
    if (i == 2) throw OutOfMemoryError("no memory");
    if (i == 6) throw std::bad_alloc();
  };
  DataLoader loader(set, {.batch_size = 4, .workers = 1, .on_error = OnError::skip});
  EXPECT_EQ(first_error(loader)->index, 2);
  EXPECT_EQ(first_error(loader)->index, 6);
}

TEST(LoaderFault, MemoryThatCannotBeHadForABatch) {
  auto set = std::make_shared<MixedSet>(40);
  int failures = 0, batches = 0;
  for (int n = 0; n < 12; ++n) {
    DataLoader loader(set, {.batch_size = 4, .workers = 0});
    fail_allocation_after(n);
    Batch batch;
    for (bool more = true; more;) {
      try {
        more = loader.next(batch);
        batches += more;
      } catch (const DataError& e) {
        EXPECT_THROW(std::rethrow_exception(e.cause), OutOfMemoryError);
        ++failures;
      }
    }
    fail_allocation_after(-1);
  }
  EXPECT_GT(failures, 0);
  EXPECT_EQ(batches + failures, 12 * 10);
}

TEST(LoaderFault, WrongShapes) {
  Field fixed{"x", DType::f32, {2, 3}}, varying{"x", DType::f32, {-1, 3}};
  auto message = [](const Field& field, std::function<void(SampleWriter&)> get) {
    DataLoader loader(std::make_shared<OneSample>(field, std::move(get)), {.workers = 1});
    return first_error(loader)->found;
  };
  EXPECT_EQ(message(fixed,
                    [](SampleWriter& out) {
                      out.varying<float>(0, {3, 2});
                    }),
            "field \"x\": found the shape [3, 2], expected [2, 3]");
  EXPECT_EQ(message(varying,
                    [](SampleWriter& out) {
                      out.varying<float>(0, {5, 2});
                    }),
            "field \"x\": found the shape [5, 2], expected [-1, 3]");
  EXPECT_EQ(message(varying,
                    [](SampleWriter& out) {
                      out.varying<float>(0, {-1, 3});
                    }),
            "field \"x\": found the shape [-1, 3], expected [-1, 3]");
  EXPECT_EQ(message(varying, [](SampleWriter& out) { out.varying<float>(0, {3}); }),
            "field \"x\": found the shape [3], expected [-1, 3]");
  EXPECT_EQ(message(varying, [](SampleWriter& out) { out.fixed<float>(0); }),
            "field \"x\" of shape [-1, 3] varies; say its shape with varying()");
  EXPECT_EQ(message(fixed, [](SampleWriter& out) { out.fixed<float>(1); }), "field 1 of 1 was asked for");
  EXPECT_EQ(message(fixed, [](SampleWriter&) {}), "field \"x\" was not written; a sample has to write every field");
  // A fixed field may be written as if it varied.
  DataLoader good(std::make_shared<OneSample>(fixed, [](SampleWriter& out) {
    std::fill_n(out.varying<float>(0, {2, 3}), 6, 4.0f);
  }));
  Batch batch;
  ASSERT_TRUE(good.next(batch));
  EXPECT_EQ(batch[0].sum().item<float>(), 24);
}

TEST(LoaderFault, HugeSamples) {
  Field field{"x", DType::f32, {-1}};
  for (int64_t n : {int64_t{1} << 20, int64_t{1} << 50, int64_t{1} << 62}) {
    auto set = std::make_shared<OneSample>(field, [n](SampleWriter& out) { out.varying<float>(0, {n}); });
    DataLoader loader(set, {.workers = 1, .max_sample_bytes = 1 << 20});
    EXPECT_EQ(first_error(loader)->index, 0);
    DataLoader skipping(set, {.workers = 1, .on_error = OnError::skip, .max_sample_bytes = 1 << 20});
    Batch batch;
    EXPECT_FALSE(skipping.next(batch));
    EXPECT_EQ(skipping.stats().skipped, 1);
  }
}

TEST(LoaderFault, SamplersThatAreWrong) {
  auto set = std::make_shared<MixedSet>(4);
  auto rows = std::make_shared<SubsetSampler>(std::vector<int64_t>{1, 4, -1}, false);
  DataLoader loader(set, {.sampler = rows, .workers = 1});
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(first_error(loader)->index, 4);
  EXPECT_EQ(first_error(loader)->index, -1);
  struct Throws : BatchSampler {
    BatchPlan batches(uint64_t, int64_t epoch) const override {
      if (epoch == 1) throw ValueError("no plan");
      BatchPlan plan;
      plan.add(std::vector<int64_t>{2});
      return plan;
    }
    std::string describe() const override { return "throws"; }
  };
  for (int workers : {0, 2}) {
    DataLoader other(set, {.batch_sampler = std::make_shared<Throws>(), .workers = workers});
    EXPECT_TRUE(other.next(batch));
    EXPECT_FALSE(other.next(batch));
    EXPECT_EQ(first_error(other)->found, "no plan");
    EXPECT_FALSE(other.next(batch));  // the end of that epoch
    EXPECT_TRUE(other.next(batch));
    EXPECT_EQ(batch.epoch, 2);
  }
}

TEST(LoaderFault, StreamsThatBreakOff) {
  auto stream = std::make_shared<MixedStream>(20);
  stream->on_read = [](int64_t at) {
    if (at == 10) throw LoadError("tar", "shard.tar", "header", 512, "is torn");
  };
  stream->on_open = [](int64_t epoch) {
    if (epoch == 1) throw LoadError("tar", "shard.tar", "file", 0, "has vanished");
  };
  for (int workers : {0, 3}) {
    DataLoader loader(stream, {.batch_size = 4, .workers = workers});
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    EXPECT_TRUE(loader.next(batch));
    auto error = first_error(loader);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->index, 10);
    EXPECT_NE(error->found.find("is torn"), std::string::npos);
    EXPECT_FALSE(loader.next(batch));
    EXPECT_NE(first_error(loader)->found.find("has vanished"), std::string::npos);
    EXPECT_FALSE(loader.next(batch));
    EXPECT_EQ(loader.epoch(), 2);
  }
}

TEST(LoaderFault, AHangingSampleIsLeftAlone) {
  auto go = std::make_shared<std::atomic<bool>>(false);
  auto ended = std::make_shared<std::atomic<int>>(0);
  auto set = std::make_shared<MixedSet>(40);
  set->before = [go, ended](int64_t i) {
    if (i != 9) return;
    go->wait(false);
    ++*ended;
  };
  std::weak_ptr<MixedSet> alive = set;
  {
    DataLoader loader(set, {.batch_size = 4, .workers = 2, .timeout = 0.5});
    set.reset();
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    EXPECT_TRUE(loader.next(batch));
    auto start = Clock::now();
    try {
      loader.next(batch);
      FAIL() << "sample 9 came";
    } catch (const DataError& e) {
      EXPECT_GE(Clock::now() - start, 500ms);
      EXPECT_LT(Clock::now() - start, 900ms);  // not twice
      EXPECT_EQ(e.index, 9);
      EXPECT_EQ(e.file, "file-9");
      EXPECT_EQ(e.found, "no batch within the timeout of 0.5 s; raise it, or repair the data set");
      EXPECT_FALSE(e.cause);
    }
    // Other threads go on with the batch behind it.
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.index, 3);
  }
  EXPECT_FALSE(alive.expired());  // the thread still has it
  *go = true;
  go->notify_all();
  for (int i = 0; i < 1000 && !alive.expired(); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(*ended, 1);
}

// Destruction, and going to another epoch, while a sample hangs.
TEST(LoaderFault, NothingWaitsLongerThanTheTimeout) {
  auto go = std::make_shared<std::atomic<bool>>(false);
  auto set = std::make_shared<MixedSet>(40);
  set->before = [go](int64_t i) {
    if (i == 9) go->wait(false);
  };
  {
    DataLoader loader(set, {.batch_size = 4, .workers = 1, .timeout = 0.1});
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    loader.start(5);
    EXPECT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.epoch, 5);
  }
  *go = true;
  go->notify_all();
}

TEST(LoaderFault, WorkerInitThatThrows) {
  auto set = std::make_shared<MixedSet>(8);
  LoaderOptions options{.workers = 2};
  options.worker_init = [](int worker) {
    if (worker == 1) throw ValueError("no licence");
  };
  DataLoader loader(set, options);
  std::optional<DataError> error;
  for (int i = 0; i < 1000 && !error; ++i) error = first_error(loader);
  ASSERT_TRUE(error);
  EXPECT_STREQ(error->what(), "data loader: worker 1: worker_init: no licence");
}

TEST(LoaderFault, CollateThatThrows) {
  auto set = std::make_shared<MixedSet>(8);
  LoaderOptions options{.batch_size = 4, .workers = 1};
  options.collate = [](Batch& batch) {
    if (batch.index == 1) throw ValueError("does not fit");
  };
  DataLoader loader(set, options);
  Batch batch;
  EXPECT_TRUE(loader.next(batch));
  EXPECT_EQ(first_error(loader)->found, "batch 1: does not fit");
  EXPECT_FALSE(loader.next(batch));
}

}  // namespace
}  // namespace deft::data
