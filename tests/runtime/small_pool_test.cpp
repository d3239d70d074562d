#include "runtime/small_pool.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace deft {
namespace {

#define SKIP_WITHOUT_POOL() \
  if (!detail::kPoolSmallBlocks) GTEST_SKIP() << "sanitizer builds do not pool"

TEST(SmallPool, BlocksAreAlignedDistinctAndWritable) {
  std::set<void*> seen;
  std::vector<std::pair<void*, size_t>> blocks;
  for (size_t bytes = 1; bytes <= kSmallBlockMax + 200; bytes += 13) {
    for (int i = 0; i < 5; ++i) {
      void* p = allocate_small(bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
      ASSERT_TRUE(seen.insert(p).second);
      std::memset(p, static_cast<int>(bytes % 251), bytes);
      blocks.emplace_back(p, bytes);
    }
  }
  for (auto [p, bytes] : blocks) {  // nobody wrote into a neighbour
    auto* c = static_cast<unsigned char*>(p);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(c[i], bytes % 251);
    free_small(p, bytes);
  }
}

TEST(SmallPool, SteadyStateMakesNoSystemCalls) {
  SKIP_WITHOUT_POOL();
  auto round = [] {
    std::vector<void*> blocks(500);  // deeper than the thread's cache: refills and spills
    for (size_t bytes : {64u, 200u, 2048u}) {
      for (void*& p : blocks) p = allocate_small(bytes);
      for (void* p : blocks) free_small(p, bytes);
    }
  };
  round();
  int64_t calls = system_allocations();
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(system_allocations(), calls);
}

TEST(SmallPool, TheThreadKeepsABoundedNumber) {
  SKIP_WITHOUT_POOL();
  std::vector<void*> blocks(1000);
  for (void*& p : blocks) p = allocate_small(128);
  for (void* p : blocks) {
    free_small(p, 128);
    ASSERT_LE(detail::small_cache->counts[1], detail::kSmallCacheDepth);
  }
  int listed = 0;
  for (auto* b = detail::small_cache->lists[1]; b; b = b->next) ++listed;
  EXPECT_EQ(listed, detail::small_cache->counts[1]);
  trim_memory();
  EXPECT_EQ(detail::small_cache->lists[1], nullptr);
  EXPECT_EQ(detail::small_cache->counts[1], 0);
}

TEST(SmallPool, BlocksOfEndedThreadsAreUsedAgain) {
  SKIP_WITHOUT_POOL();
  auto allocate_and_end = [] {
    std::thread([] {
      std::vector<void*> blocks(40);
      for (void*& p : blocks) p = allocate_small(1920);
      for (void* p : blocks) free_small(p, 1920);
    }).join();
  };
  allocate_and_end();
  int64_t calls = system_allocations();
  for (int i = 0; i < 50; ++i) allocate_and_end();
  EXPECT_EQ(system_allocations(), calls);
}

TEST(SmallPool, ThreadsThatOnlyFreeLoseNothing) {
  SKIP_WITHOUT_POOL();
  auto hand_over = [] {
    std::vector<void*> blocks(20);
    for (void*& p : blocks) p = allocate_small(1856);
    std::thread([&] {
      for (void* p : blocks) free_small(p, 1856);
    }).join();
  };
  for (int i = 0; i < 5; ++i) hand_over();
  int64_t calls = system_allocations();
  for (int i = 0; i < 100; ++i) hand_over();
  EXPECT_EQ(system_allocations(), calls);
}

// Destroyed after the pool's own thread-exit object, because it is constructed before the first block.
struct FreesAtThreadEnd {
  static constexpr size_t kBytes = 1728;  // a size class that no other test fills
  void* block = nullptr;
  ~FreesAtThreadEnd() {
    free_small(block, kBytes);
    for (int i = 0; i < 3; ++i) {
      void* p = allocate_small(kBytes);
      std::memset(p, 1, kBytes);
      free_small(p, kBytes);
    }
  }
};
thread_local FreesAtThreadEnd at_thread_end;

TEST(SmallPool, FreesAfterTheThreadsCacheIsGone) {
  auto run = [] {
    std::thread([] {
      FreesAtThreadEnd& late = at_thread_end;
      late.block = allocate_small(FreesAtThreadEnd::kBytes);
    }).join();
  };
  run();
  int64_t calls = system_allocations();
  for (int i = 0; i < 1000; ++i) run();
  if (detail::kPoolSmallBlocks) {
    EXPECT_EQ(system_allocations(), calls);
  }
}

TEST(SmallPool, EightThreadsHandBlocksToEachOther) {
  constexpr int kThreads = 8, kRounds = 60, kPerRound = 100;
  std::vector<std::vector<std::pair<void*, size_t>>> mailbox(kThreads);
  std::barrier all(kThreads);
  std::atomic<int> damaged{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < kPerRound; ++i) {
          size_t bytes = 1 + static_cast<size_t>(i * 29 + t * 7) % kSmallBlockMax;
          void* p = allocate_small(bytes);
          std::memset(p, t + 1, bytes);
          mailbox[t].emplace_back(p, bytes);
        }
        all.arrive_and_wait();
        int from = (t + 3) % kThreads;
        for (auto [p, bytes] : mailbox[from]) {
          auto* c = static_cast<unsigned char*>(p);
          if (c[0] != from + 1 || c[bytes - 1] != from + 1) ++damaged;
          free_small(p, bytes);
        }
        all.arrive_and_wait();
        mailbox[t].clear();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
}

}  // namespace
}  // namespace deft
