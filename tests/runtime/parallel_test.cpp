#include "runtime/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/context.h"
#include "runtime/memory.h"
#include "runtime/random.h"

namespace deft {
namespace {

class Parallel : public testing::Test {
 protected:
  Parallel() : threads_(num_threads()) {}
  ~Parallel() override { set_num_threads(threads_); }

 private:
  int threads_;
};

using Ranges = std::vector<std::pair<int64_t, int64_t>>;
Ranges ranges_of(int64_t begin, int64_t end, int64_t grain) {
  std::mutex mutex;
  Ranges ranges;
  parallel_for(begin, end, grain, [&](int64_t a, int64_t b) {
    std::lock_guard lock(mutex);
    ranges.emplace_back(a, b);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST_F(Parallel, CoversEachIndexOnceInRangesOfAtLeastTheGrain) {
  for (int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    for (int64_t grain : {1, 2, 16, 100}) {
      std::vector<int64_t> sizes = {0, 1, 5};
      for (int64_t k = 1; k <= 8; ++k) sizes.insert(sizes.end(), {k * grain - 1, k * grain, k * grain + 1});
      for (int64_t size : sizes) {
        Ranges ranges = ranges_of(-3, -3 + size, grain);
        ASSERT_LE(ranges.size(), static_cast<size_t>(threads));
        int64_t next = -3;
        for (auto [a, b] : ranges) {
          ASSERT_EQ(a, next);
          ASSERT_GE(b - a, std::min(grain, size));
          ASSERT_GT(b, a);
          next = b;
        }
        ASSERT_EQ(next, -3 + size);
        int64_t most = std::min<int64_t>(threads, size / grain);
        ASSERT_EQ(static_cast<int64_t>(ranges.size()), size == 0 ? 0 : std::max<int64_t>(most, 1));
      }
    }
  }
}

TEST_F(Parallel, OddArgumentsAreHarmless) {
  set_num_threads(3);
  EXPECT_TRUE(ranges_of(5, 5, 1).empty());
  EXPECT_TRUE(ranges_of(5, 2, 1).empty());
  EXPECT_TRUE(ranges_of(5, 2, -100).empty());
  EXPECT_EQ(ranges_of(0, 3, 0).size(), 3u);
  EXPECT_EQ(ranges_of(0, 3, -5).size(), 3u);
  EXPECT_EQ(ranges_of(0, 3, INT64_MAX).size(), 1u);
}

TEST_F(Parallel, RejectsBadThreadCounts) {
  int before = num_threads();
  for (int n : {0, -1, 1025, 1 << 30}) EXPECT_THROW(set_num_threads(n), ValueError);
  EXPECT_EQ(num_threads(), before);
}

TEST_F(Parallel, RangesRunOnSeveralThreads) {
  set_num_threads(3);
  // Each range waits for the others, so that no thread can run two of them.
  std::atomic<int> arrived{0};
  std::mutex mutex;
  std::vector<std::thread::id> ids;
  parallel_for(0, 3, 1, [&](int64_t, int64_t) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
    std::lock_guard lock(mutex);
    ids.push_back(std::this_thread::get_id());
  });
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()) - ids.begin(), 3);
  EXPECT_TRUE(std::binary_search(ids.begin(), ids.end(), std::this_thread::get_id()));
}

TEST_F(Parallel, RangesHaveTheCallersContextBelowAndAboveTheThreshold) {
  set_num_threads(4);
  RngScope rng({9, 0});
  ExecContext c = context();
  c.bits |= kGradOff | kDeterministic;
  c.autocast_dtype = DType::bf16;
  for (int64_t size : {int64_t{1}, int64_t{4}, int64_t{400}}) {
    ContextGuard guard(c);
    std::atomic<int> wrong{0}, ranges{0};
    parallel_for(0, size, 1, [&](int64_t, int64_t) {
      ++ranges;
      while (ranges < std::min<int64_t>(size, 4)) std::this_thread::yield();  // every range on its own thread
      const ExecContext& mine = context();
      if (mine.bits != c.bits || mine.rng != c.rng || mine.autocast_dtype != DType::bf16) ++wrong;
      if (&generator() != c.rng) ++wrong;
    });
    EXPECT_EQ(wrong, 0);
  }
  // Nothing of it stays with the workers.
  std::atomic<int> ranges{0}, stale{0};
  ExecContext plain;
  plain.bits = 0;
  ContextGuard guard(plain);
  parallel_for(0, 4, 1, [&](int64_t, int64_t) {
    ++ranges;
    while (ranges < 4) std::this_thread::yield();
    if (context().bits != 0 || context().rng != nullptr) ++stale;
  });
  EXPECT_EQ(stale, 0);
}

TEST_F(Parallel, ARangesExceptionReachesTheCaller) {
  set_num_threads(4);
  for (int64_t bad = 0; bad < 4; ++bad) {
    std::atomic<int> running{0};
    auto body = [&](int64_t a, int64_t) {
      ++running;
      struct Leave {
        std::atomic<int>& r;
        ~Leave() { --r; }
      } leave{running};
      if (a == bad) throw ShapeError("range " + std::to_string(a));
    };
    try {
      parallel_for(0, 4, 1, body);
      ADD_FAILURE();
    } catch (const ShapeError& e) {
      EXPECT_EQ(e.what(), "range " + std::to_string(bad));
    }
    EXPECT_EQ(running, 0);  // all ranges ended before the rethrow
  }
  EXPECT_THROW(parallel_for(0, 400, 100, [](int64_t, int64_t) { throw 1; }), int);
  EXPECT_THROW(parallel_for(0, 1, 100, [](int64_t, int64_t) { throw 1; }), int);
  EXPECT_FALSE(in_parallel_region());
  EXPECT_EQ(ranges_of(0, 4, 1).size(), 4u);  // the pool still works
}

TEST_F(Parallel, BalancedThreadsCoverEachIndexOnceInTheSamePieces) {
  for (int threads : {1, 2, 3, 7, 100}) {
    set_num_threads(threads);
    for (int64_t grain : {1, 16}) {
      for (int64_t size : {0, 1, 2, 7, 31, 64, 65, 1000}) {
        Ranges pieces[3];
        for (Ranges& ranges : pieces) {
          std::mutex mutex;
          parallel_balanced(-3, -3 + size, grain, [&](int64_t a, int64_t b) {
            std::lock_guard lock(mutex);
            ranges.emplace_back(a, b);
          });
          std::sort(ranges.begin(), ranges.end());
          int64_t next = -3;
          for (auto [a, b] : ranges) {
            ASSERT_EQ(a, next);
            ASSERT_GT(b, a);
            next = b;
          }
          ASSERT_EQ(next, size - 3);
        }
        EXPECT_EQ(pieces[0], pieces[1]);
        EXPECT_EQ(pieces[0], pieces[2]);
      }
    }
  }
}

TEST_F(Parallel, AnIdleThreadStealsThePiecesOfAnother) {
  set_num_threads(2);
  std::atomic<int> done{0};
  std::atomic<bool> waited_in_vain{false};
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  parallel_balanced(0, 16, 1, [&](int64_t a, int64_t) {
    while (a == 0 && done < 15 && !waited_in_vain) {  // the first thread stays in its first piece
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > patience) waited_in_vain = true;
    }
    ++done;
  });
  EXPECT_EQ(done, 16);
  EXPECT_FALSE(waited_in_vain);
}

TEST_F(Parallel, APiecesExceptionReachesTheCaller) {
  set_num_threads(3);
  for (int64_t bad : {0, 7, 23}) {
    EXPECT_THROW(parallel_balanced(0, 24, 1,
                                   [&](int64_t a, int64_t) {
                                     if (a == bad) throw ShapeError("piece");
                                   }),
                 ShapeError);
  }
  EXPECT_FALSE(in_parallel_region());
}

TEST_F(Parallel, NestedCallsRunInlineWithTheSameSplit) {
  set_num_threads(3);
  Ranges flat = ranges_of(0, 100, 10);
  EXPECT_EQ(flat.size(), 3u);
  EXPECT_FALSE(in_parallel_region());
  std::atomic<int> wrong{0};
  parallel_for(0, 3, 1, [&](int64_t, int64_t) {
    if (!in_parallel_region()) ++wrong;
    auto id = std::this_thread::get_id();
    Ranges inner;
    parallel_for(0, 100, 10, [&](int64_t a, int64_t b) {
      if (std::this_thread::get_id() != id) ++wrong;
      inner.emplace_back(a, b);
    });
    if (inner != flat) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(in_parallel_region());
}

TEST_F(Parallel, CallersOnSeveralThreadsAllFinish) {
  set_num_threads(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 6; ++t) {
    callers.emplace_back([&, t] {
      ExecContext c = context();
      c.bits = t & 1 ? kGradOff : kInference;
      ContextGuard guard(c);
      for (int i = 0; i < 300; ++i) {
        std::vector<int> hits(60, 0);
        parallel_for(0, 60, 1 + i % 30, [&](int64_t a, int64_t b) {
          if (context().bits != c.bits) ++wrong;
          for (; a < b; ++a) ++hits[a];
        });
        if (std::count(hits.begin(), hits.end(), 1) != 60) ++wrong;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Parallel, ACallThatFoundThePoolTakenKeepsItsNestedCallsInline) {
  set_num_threads(2);
  std::atomic<bool> taken{false}, let_go{false};
  std::thread owner([&] {
    parallel_for(0, 2, 1, [&](int64_t, int64_t) {
      taken = true;
      while (!let_go) std::this_thread::yield();
    });
  });
  while (!taken) std::this_thread::yield();
  auto id = std::this_thread::get_id();
  std::atomic<int> elsewhere{0};
  Ranges ranges;
  parallel_for(0, 20, 10, [&](int64_t a, int64_t b) {
    ranges.emplace_back(a, b);
    if (!in_parallel_region()) ++elsewhere;
    if (!let_go.exchange(true)) owner.join();  // now the pool is free again
    for (int i = 0; i < 100; ++i) {
      parallel_for(0, 2, 1, [&](int64_t, int64_t) {
        if (std::this_thread::get_id() != id) ++elsewhere;
        std::this_thread::yield();
      });
    }
  });
  EXPECT_EQ(ranges, (Ranges{{0, 10}, {10, 20}}));
  EXPECT_EQ(elsewhere, 0);
}

TEST_F(Parallel, ThreadCountMayChangeAtAnyTime) {
  std::atomic<bool> done{false};
  std::thread changer([&] {
    for (int n = 1; !done; n = n % 5 + 1) set_num_threads(n);
  });
  for (int i = 0; i < 2000; ++i) {
    std::atomic<int64_t> sum{0};
    parallel_for(0, 100, 7, [&](int64_t a, int64_t b) { sum += b - a; });
    ASSERT_EQ(sum, 100);
  }
  done = true;
  changer.join();
}

TEST_F(Parallel, WorkersThatWentToSleepWakeAgain) {
  set_num_threads(3);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than they spin
    std::atomic<int> arrived{0};
    parallel_for(0, 3, 1, [&](int64_t, int64_t) {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
  }
}

double process_cpu_ms() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}
TEST_F(Parallel, AnIdlePoolUsesNoCpu) {
  set_num_threads(3);
  std::atomic<int> arrived{0};
  parallel_for(0, 3, 1, [&](int64_t, int64_t) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();  // all workers are awake
  });
  const double before = process_cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_cpu_ms() - before, 20);  // of 400 that two spinning workers would use
}

TEST_F(Parallel, TheCallerSleepsForASlowRange) {
  set_num_threads(2);
  auto caller = std::this_thread::get_id();
  for (int i = 0; i < 5; ++i) {
    std::atomic<int> arrived{0}, finished{0};
    parallel_for(0, 2, 1, [&](int64_t, int64_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
      if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++finished;
    });
    EXPECT_EQ(finished, 2);
  }
}

#if !defined(DEFT_TSAN)  // which gives up when a forked child starts threads
TEST_F(Parallel, AForkedChildStartsItsOwnWorkers) {
  set_num_threads(3);
  ranges_of(0, 3, 1);  // the parent has workers
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    std::atomic<int> arrived{0};
    parallel_for(0, 3, 1, [&](int64_t, int64_t) {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
    void* p = allocate_buffer(5000);
    free_buffer(p, 5000);
    _exit(arrived == 3 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(ranges_of(0, 3, 1).size(), 3u);  // and the parent still has its own
}

// The static destructor of a program may still call in after the workers were joined.
struct CallsAtExit {
  ~CallsAtExit() {
    int64_t sum = 0;
    parallel_for(0, 30, 10, [&](int64_t a, int64_t b) { sum += b - a; });
    if (sum != 30) _exit(9);
  }
};
TEST_F(Parallel, ExitWithWorkersIsClean) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process instead of a fork
  EXPECT_EXIT(
      {
        static CallsAtExit calls_at_exit;
        alarm(60);
        set_num_threads(3);
        ranges_of(0, 3, 1);
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}
#endif

}  // namespace
}  // namespace deft
