// Threads: how many, what they may do, and that none is left.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <thread>

#include "core/grad_mode.h"
#include "data/loader_util.h"
#include "ops/creation.h"
#include "runtime/parallel.h"

namespace deft::data {
namespace {

using namespace std::chrono_literals;

TEST(LoaderThreads, ContextInsideAndOutside) {
  auto set = std::make_shared<MixedSet>(40);
  std::atomic<int> wrong{0};
  set->before = [&](int64_t) {
    wrong += is_grad_enabled() || is_inference_mode_enabled() || context().bits & kAutocast;
    set_grad_enabled(true);  // stays for this sample only
  };
  for (int workers : {0, 3}) {
    DataLoader loader(set, {.batch_size = 4, .workers = workers});
    InferenceModeGuard inference;
    Batch batch;
    while (loader.next(batch)) {
      EXPECT_TRUE(is_inference_mode_enabled());
      EXPECT_FALSE(is_grad_enabled());
      EXPECT_FALSE(batch[0].is_inference());
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(is_grad_enabled());
}

TEST(LoaderThreads, WorkersDoNotTakeThePool) {
  auto set = std::make_shared<MixedSet>(8);
  std::atomic<int> serial{0};
  set->before = [&](int64_t) { serial += in_parallel_region(); };
  DataLoader loader(set, {.batch_size = 4, .workers = 1, .across_epochs = false});
  Batch batch;
  while (loader.next(batch)) {
  }
  EXPECT_EQ(serial, 8);
}

TEST(LoaderThreads, InitRunsOnceOnEachWorkerBeforeItsSamples) {
  auto set = std::make_shared<MixedSet>(400);
  std::mutex mutex;
  std::set<std::thread::id> known;
  std::multiset<int> workers;
  std::atomic<int> strangers{0};
  set->before = [&](int64_t) {
    std::lock_guard lock(mutex);
    strangers += !known.contains(std::this_thread::get_id());
  };
  LoaderOptions options{.batch_size = 4, .workers = 3};
  options.worker_init = [&](int worker) {
    std::lock_guard lock(mutex);
    known.insert(std::this_thread::get_id());
    workers.insert(worker);
  };
  {
    DataLoader loader(set, options);
    Batch batch;
    while (loader.epoch() < 3) loader.next(batch);
  }
  EXPECT_EQ(strangers, 0);
  EXPECT_EQ(workers, (std::multiset<int>{0, 1, 2}));  // the same threads for all epochs
}

TEST(LoaderThreads, TheWindowIsBounded) {
  auto set = std::make_shared<MixedSet>(400);
  std::atomic<int64_t> most{0};
  set->before = [&](int64_t i) {
    for (int64_t seen = most; i > seen && !most.compare_exchange_weak(seen, i);) {
    }
  };
  DataLoader loader(set, {.batch_size = 4, .workers = 2, .prefetch = 5});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  for (int i = 0; i < 400 && most < 23; ++i) std::this_thread::sleep_for(5ms);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(most, 23);  // five batches ahead of the one that was taken
  most = 0;
  // 4 x 16 bytes of fixed fields, and up to 4 x 8 of lengths and 4 x 4 x 8 of the others.
  DataLoader small(set, {.batch_size = 4, .workers = 2, .prefetch = 50, .prefetch_bytes = 500});
  ASSERT_TRUE(small.next(batch));
  std::this_thread::sleep_for(50ms);
  EXPECT_GE(most, 7);
  EXPECT_LE(most, 19);
  DataLoader tiny(set, {.batch_size = 4, .workers = 2, .prefetch_bytes = 1});
  int64_t rows = 0;
  while (tiny.next(batch)) rows += batch.rows();
  EXPECT_EQ(rows, 400);
}

TEST(LoaderThreads, TheNextEpochIsBegunInTime) {
  auto set = std::make_shared<MixedSet>(8);
  std::atomic<int> samples{0};
  set->before = [&](int64_t) { ++samples; };
  for (bool across : {true, false}) {
    samples = 0;
    DataLoader loader(set, {.batch_size = 4, .workers = 1, .prefetch = 10, .across_epochs = across});
    Batch batch;
    loader.next(batch);
    for (int i = 0; i < 400 && samples < (across ? 16 : 8); ++i) std::this_thread::sleep_for(5ms);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(samples, across ? 16 : 8);  // this epoch and the next, but no further
  }
}

TEST(LoaderThreads, ASlowBatchIsSharedByAllWorkers) {
  auto set = std::make_shared<MixedSet>(64);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  set->before = [&](int64_t) {
    std::this_thread::sleep_for(1ms);
    std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  };
  DataLoader loader(set, {.batch_size = 64, .workers = 4, .prefetch = 1});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(threads.size(), 4u);
}

TEST(LoaderThreads, AThousandLoopsLeftEarly) {
  auto set = std::make_shared<MixedSet>(64);
  int64_t threads = count_own("task"), descriptors = count_own("fd");
  {
    DataLoader loader(set, {.batch_size = 4, .shuffle = true, .workers = 3});
    for (int i = 0; i < 1000; ++i)
      for (Batch& batch : loader) {
        EXPECT_EQ(batch.epoch, i);
        if (batch.index == i % 8) break;
      }
    EXPECT_EQ(count_own("task"), threads + 3);
  }
  for (int i = 0; i < 1000; ++i) {
    DataLoader loader(set, {.batch_size = 4, .workers = 2, .ordered = i % 2 == 0});
    for (Batch& batch : loader)
      if (batch.index >= i % 3) break;
  }
  EXPECT_EQ(count_own("task"), threads);
  EXPECT_EQ(count_own("fd"), descriptors);
}

TEST(LoaderThreads, AnExceptionInTheLoopLeavesNothing) {
  auto set = std::make_shared<MixedSet>(64);
  int64_t threads = count_own("task");
  EXPECT_THROW(
      {
        DataLoader loader(set, {.batch_size = 4, .workers = 3});
        for (Batch& batch : loader)
          if (batch.index == 2) throw ValueError("stop");
      },
      ValueError);
  EXPECT_EQ(count_own("task"), threads);
}

TEST(LoaderThreads, FewDescriptorsAreEnough) {
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few{64, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  DataLoader loader(std::make_shared<MixedSet>(400), {.batch_size = 4, .workers = 64});
  int64_t rows = 0;
  for (Batch& batch : loader) rows += batch.rows();
  EXPECT_EQ(rows, 400);
  setrlimit(RLIMIT_NOFILE, &before);
}

// The child goes on from the same place, with threads of its own; the parent too.
TEST(LoaderThreads, Fork) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows no new threads after a fork";
#endif
  auto set = std::make_shared<MixedSet>(64);
  auto loader = std::make_unique<DataLoader>(set, LoaderOptions{.batch_size = 4, .workers = 2});
  Batch batch;
  ASSERT_TRUE(loader->next(batch));
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool good = loader->next(batch) && batch.index == 1;
    for (int64_t i = 2; i < 16; ++i) good = good && loader->next(batch) && batch.index == i;
    good = good && !loader->next(batch);
    loader.reset();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(loader->next(batch));
  EXPECT_EQ(batch.index, 1);
}

TEST(LoaderThreads, AutoFindsEnoughWorkers) {
  auto set = std::make_shared<MixedSet>(1 << 20);
  set->before = [](int64_t) { std::this_thread::sleep_for(200us); };
  int before = num_threads();
  set_num_threads(4);
  DataLoader loader(set, {.batch_size = 16});
  Batch batch;
  auto end = std::chrono::steady_clock::now() + 10s;
  while (loader.tuning().empty() && std::chrono::steady_clock::now() < end) loader.next(batch);
  set_num_threads(before);
  // A consumer that does nothing always waits. Whether two are faster is for the machine to say.
  EXPECT_TRUE(loader.tuning().starts_with("data-bound: ")) << loader.tuning();
  EXPECT_TRUE(loader.tuning().ends_with("waiting; 1 -> 2 workers")) << loader.tuning();
  EXPECT_EQ(loader.stats().workers, 2);
  EXPECT_EQ(loader.stats().prefetch, 6);
  EXPECT_TRUE(loader.next(batch));
}

}  // namespace
}  // namespace deft::data
