#include "runtime/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/small_pool.h"

namespace deft {
namespace {

using enum MemoryCategory;
constexpr size_t kMiB = size_t{1} << 20;
#if defined(DEFT_ASAN)
constexpr bool kCaching = false;
#else
constexpr bool kCaching = true;
#endif
#define SKIP_WITHOUT_CACHE() \
  if (!kCaching) GTEST_SKIP() << "sanitizer builds do not cache"

// Every test starts with an empty cache and leaves the limit as it was.
class Memory : public testing::Test {
 protected:
  Memory() : limit_(buffer_cache_limit()) { trim_memory(); }
  ~Memory() override {
    fail_allocation_after(-1);
    set_buffer_cache_limit(limit_);
    trim_memory();
  }

 private:
  size_t limit_;
};

// What the cache holds after one free: the size class of the block.
size_t class_bytes(size_t bytes) {
  trim_memory();
  free_buffer(allocate_buffer(bytes), bytes);
  return static_cast<size_t>(buffer_cache_bytes());
}

TEST_F(Memory, BuffersAreAlignedAndWritable) {
  for (size_t bytes : {0, 1, 63, 64, 65, 513, 2049, 4096, 100001}) {
    for (int again = 0; again < 2; ++again) {  // fresh, then from the cache
      void* p = allocate_buffer(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
      if (bytes) std::memset(p, 0xab, bytes);
      free_buffer(p, bytes);
    }
  }
}

TEST_F(Memory, SizeClassesAreAtMostAnEighthApart) {
  SKIP_WITHOUT_CACHE();
  size_t before = 0;
  for (size_t bytes = 1; bytes < 20000; ++bytes) {
    size_t got = class_bytes(bytes);
    ASSERT_GE(got, bytes);
    ASSERT_LE(got, std::max(bytes + 63, bytes + bytes / 8)) << bytes;
    ASSERT_GE(got, before);
    ASSERT_EQ(got % 64, 0u);
    before = got;
  }
  for (size_t shift = 15; shift < 27; ++shift) {
    for (size_t bytes : {(size_t{1} << shift) - 1, size_t{1} << shift, (size_t{1} << shift) + 1}) {
      ASSERT_GE(class_bytes(bytes), bytes);
      ASSERT_LE(class_bytes(bytes), bytes + bytes / 8 + 1);
    }
  }
}

TEST_F(Memory, AFreedBlockIsReusedWithoutTheSystem) {
  SKIP_WITHOUT_CACHE();
  void* p = allocate_buffer(kMiB);
  free_buffer(p, kMiB);
  EXPECT_EQ(buffer_cache_bytes(), static_cast<int64_t>(kMiB));
  int64_t calls = system_allocations();
  void* q = allocate_buffer(kMiB - 5);  // the same class
  EXPECT_EQ(q, p);
  EXPECT_EQ(system_allocations(), calls);
  EXPECT_EQ(buffer_cache_bytes(), 0);
  void* r = allocate_buffer(kMiB);
  EXPECT_EQ(system_allocations(), calls + 1);
  free_buffer(q, kMiB - 5);
  free_buffer(r, kMiB);
}

TEST_F(Memory, TheCacheKeepsToItsLimitAndDropsTheOldest) {
  SKIP_WITHOUT_CACHE();
  set_buffer_cache_limit(4 * kMiB);
  EXPECT_EQ(buffer_cache_limit(), 4 * kMiB);
  std::vector<void*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(allocate_buffer(kMiB));
  for (void* p : blocks) free_buffer(p, kMiB);
  EXPECT_EQ(buffer_cache_bytes(), static_cast<int64_t>(4 * kMiB));
  std::set<void*> newest(blocks.begin() + 2, blocks.end());
  int64_t calls = system_allocations();
  for (int i = 0; i < 4; ++i) blocks[i] = allocate_buffer(kMiB);
  EXPECT_EQ(system_allocations(), calls);
  EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.begin() + 4), newest);
  for (int i = 0; i < 4; ++i) free_buffer(blocks[i], kMiB);

  set_buffer_cache_limit(kMiB);
  EXPECT_EQ(buffer_cache_bytes(), static_cast<int64_t>(kMiB));
  free_buffer(allocate_buffer(2 * kMiB), 2 * kMiB);  // larger than the limit: never kept
  EXPECT_EQ(buffer_cache_bytes(), static_cast<int64_t>(kMiB));
  set_buffer_cache_limit(0);
  free_buffer(allocate_buffer(64), 64);
  EXPECT_EQ(buffer_cache_bytes(), 0);
}

// The variable is read once, so each value needs a process of its own.
TEST(MemoryEnv, CacheLimitComesFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto exit_if = [](const char* value, size_t want) {
    setenv("DEFT_CACHE_MB", value, 1);
    std::_Exit(buffer_cache_limit() == want ? 0 : 1);
  };
  EXPECT_EXIT(exit_if("3", 3 * kMiB), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(exit_if("0", 0), testing::ExitedWithCode(0), "");
  for (const char* bad : {"", "-1", "3x", "99999999999999999999", "18446744073709551615"})
    EXPECT_EXIT(exit_if(bad, 1024 * kMiB), testing::ExitedWithCode(0), "is not a whole number.*; 1024 is used") << bad;
}

TEST_F(Memory, TrimReturnsWhatWasCached) {
  SKIP_WITHOUT_CACHE();
  free_buffer(allocate_buffer(3 * kMiB), 3 * kMiB);
  free_buffer(allocate_buffer(4096), 4096);
  EXPECT_EQ(trim_memory(), 3 * kMiB + 4096);
  EXPECT_EQ(buffer_cache_bytes(), 0);
  EXPECT_EQ(trim_memory(), 0u);
}

#if !defined(DEFT_ASAN) && !defined(DEFT_TSAN)
size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}
TEST_F(Memory, TrimGivesPagesBackToTheSystem) {
  constexpr size_t kBytes = 64 * 1024;  // below the threshold where free() unmaps by itself
  constexpr int kCount = 1024;
  std::vector<void*> blocks(kCount);
  for (void*& p : blocks) std::memset(p = allocate_buffer(kBytes), 1, kBytes);
  void* last = allocate_buffer(kBytes);  // stays, so that the hole is not at the end of the heap
  std::memset(last, 1, kBytes);
  for (void* p : blocks) free_buffer(p, kBytes);
  size_t cached = resident_bytes();
  EXPECT_EQ(trim_memory(), kBytes * kCount);
  EXPECT_LT(resident_bytes() + kBytes * kCount / 2, cached);
  free_buffer(last, kBytes);
}
#endif

TEST_F(Memory, AbsurdSizesThrowWithTheWholeStory) {
  memory_acquired(1234, gradient);
  for (size_t bytes : {~size_t{0}, ~size_t{0} - 62, (size_t{1} << 47) + 1, size_t{1} << 63}) {
    try {
      allocate_buffer(bytes);
      ADD_FAILURE() << bytes;
    } catch (const OutOfMemoryError& e) {
      std::string text = e.what();
      EXPECT_NE(text.find(std::to_string(bytes)), text.npos) << text;
      EXPECT_NE(text.find("gradient " + std::to_string(memory_live()[gradient])), text.npos) << text;
      EXPECT_NE(text.find("use a smaller batch"), text.npos) << text;
    }
    EXPECT_THROW(allocate_small(bytes), OutOfMemoryError);
  }
  memory_released(1234, gradient);
}

#if !defined(DEFT_ASAN) && !defined(DEFT_TSAN)  // which need all of the address space
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(size_t room) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit tight{pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + room, before_.rlim_max};
    setrlimit(RLIMIT_AS, &tight);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

TEST_F(Memory, ARefusalEmptiesTheCacheAndTriesOnceMore) {
  free_buffer(allocate_buffer(448 * kMiB), 448 * kMiB);
  AddressSpaceLimit limit(64 * kMiB);
  int64_t calls = system_allocations();
  void* p = allocate_buffer(320 * kMiB);  // fits only in place of the cached block
  EXPECT_EQ(system_allocations(), calls + 2);
  EXPECT_EQ(buffer_cache_bytes(), 0);
  EXPECT_THROW(allocate_buffer(1024 * kMiB), OutOfMemoryError);
  EXPECT_EQ(system_allocations(), calls + 4);
  free_buffer(p, 320 * kMiB);
}
#endif

TEST_F(Memory, CountersAreExact) {
  MemoryUse before = memory_live();
  int64_t storages = storage_allocations();
  memory_acquired(100, parameter);
  memory_acquired(7, saved);
  memory_acquired(0, other);
  memory_moved(60, parameter, optimizer);
  MemoryUse now = memory_live();
  EXPECT_EQ(now.total - before.total, 107);
  EXPECT_EQ(now[parameter] - before[parameter], 40);
  EXPECT_EQ(now[optimizer] - before[optimizer], 60);
  EXPECT_EQ(now[saved] - before[saved], 7);
  EXPECT_EQ(now[other], before[other]);
  EXPECT_EQ(storage_allocations() - storages, 3);
  memory_released(40, parameter);
  memory_released(60, optimizer);
  memory_released(7, saved);
  EXPECT_EQ(memory_live().total, before.total);
  EXPECT_STREQ(name_of(parameter), "parameter");
  EXPECT_STREQ(name_of(other), "other");
}

// Allocates and frees again, so that only a peak remains.
void spike(size_t bytes, MemoryCategory category = workspace) {
  memory_acquired(bytes, category);
  memory_released(bytes, category);
}

TEST_F(Memory, ScopesNestThreeDeepExactToTheByte) {
  int64_t base = memory_live().total, base_saved = memory_live()[saved];
  spike(1 << 20);  // before any scope: seen by none
  MemoryScope a;
  EXPECT_EQ(a.start_bytes(), base);
  EXPECT_EQ(a.peak_growth(), 0);
  spike(1000);
  {
    memory_acquired(10, saved);
    MemoryScope b;
    EXPECT_EQ(b.start_bytes(), base + 10);
    EXPECT_EQ(b.peak_growth(), 0);
    spike(300, saved);
    {
      MemoryScope c;
      EXPECT_EQ(c.peak_growth(), 0);
      spike(2000);
      EXPECT_EQ(c.peak_growth(), 2000);
      EXPECT_EQ(c.peak_bytes(saved), base_saved + 10);
    }
    EXPECT_EQ(b.peak_growth(), 2000);
    spike(1500);
    EXPECT_EQ(b.peak_growth(), 2000);
    EXPECT_EQ(b.peak_bytes(saved), base_saved + 310);
    memory_released(10, saved);
    {
      MemoryScope c;
      spike(1999);
      EXPECT_EQ(c.peak_growth(), 1999);
      EXPECT_EQ(b.peak_bytes(), base + 10 + 2000);
      spike(2500);
    }
    EXPECT_EQ(b.peak_bytes(), base + 2500);
  }
  EXPECT_EQ(a.peak_bytes(), base + 2500);
  EXPECT_EQ(a.peak_bytes(saved), base_saved + 310);
  EXPECT_EQ(a.peak_bytes(parameter), memory_live()[parameter]);
}

TEST_F(Memory, MovingBytesPeaksInTheCategoryNotInTheTotal) {
  memory_acquired(500, workspace);
  {
    MemoryScope scope;
    int64_t gradients = memory_live()[gradient];
    memory_moved(500, workspace, gradient);
    memory_moved(500, gradient, workspace);
    memory_moved(500, workspace, workspace);
    EXPECT_EQ(scope.peak_growth(), 0);
    EXPECT_EQ(scope.peak_bytes(gradient), gradients + 500);
    EXPECT_EQ(scope.peak_bytes(workspace), memory_live()[workspace]);
  }
  memory_released(500, workspace);
}

TEST_F(Memory, ScopesOverlapAcrossThreads) {
  int64_t base = memory_live().total;
  std::barrier step(2);
  int64_t other_peak = 0, own_peak = 0;
  std::thread other([&] {
    step.arrive_and_wait();  // 1: the first scope is open
    {
      MemoryScope scope;
      step.arrive_and_wait();  // 2: both are open
      spike(700);
      step.arrive_and_wait();  // 3: the first scope has ended
      step.arrive_and_wait();
      spike(900);
      other_peak = scope.peak_bytes();
    }
  });
  {
    MemoryScope scope;
    spike(800);  // before the second scope
    step.arrive_and_wait();
    step.arrive_and_wait();
    step.arrive_and_wait();
    own_peak = scope.peak_bytes();
  }
  step.arrive_and_wait();
  other.join();
  EXPECT_EQ(own_peak, base + 800);
  EXPECT_EQ(other_peak, base + 900);
}

TEST_F(Memory, ThePeakOfManyThreadsIsExactWhenAllHoldAtOnce) {
  constexpr int kThreads = 8, kRounds = 200;
  int64_t base = memory_live().total;
  MemoryScope scope;
  std::barrier all(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        memory_acquired(100 + t, saved);
        if (i == kRounds / 2) all.arrive_and_wait();  // here every thread holds its block
        { MemoryScope inner; }                        // scope events must not lose the mark
        memory_released(100 + t, saved);
        if (i == kRounds / 2) all.arrive_and_wait();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(scope.peak_bytes(), base + 8 * 100 + 28);
  EXPECT_EQ(memory_live().total, base);
}

TEST_F(Memory, TheFuseBlowsAtTheNthAllocationOnce) {
  for (int64_t n = 0; n < 12; ++n) {
    fail_allocation_after(n);
    // Small blocks, small blocks that fall through to buffers, and buffers count one each.
    const size_t sizes[] = {64, 4096, 0};
    for (int64_t i = 0; i < 16; ++i) {
      bool thrown = false;
      size_t bytes = sizes[i % 3];
      try {
        if (i % 2) {
          free_small(allocate_small(bytes), bytes);
        } else {
          free_buffer(allocate_buffer(bytes), bytes);
        }
      } catch (const OutOfMemoryError&) {
        thrown = true;
      }
      EXPECT_EQ(thrown, i == n) << "fuse " << n << ", allocation " << i;
    }
  }
  fail_allocation_after(0);
  fail_allocation_after(-1);
  EXPECT_NO_THROW(free_buffer(allocate_buffer(100), 100));
}

TEST_F(Memory, EightThreadsHandBuffersToEachOther) {
  constexpr int kThreads = 8, kRounds = 300;
  std::vector<std::vector<std::pair<void*, size_t>>> mailbox(kThreads);
  std::barrier all(kThreads);
  std::atomic<int> damaged{0};
  set_buffer_cache_limit(kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        size_t bytes = 2100 + static_cast<size_t>(i * 37 + t * 911) % 30000;
        void* p = allocate_buffer(bytes);
        std::memset(p, t + 1, bytes);
        mailbox[t].emplace_back(p, bytes);
        if (i % 10 != 9) continue;
        all.arrive_and_wait();
        for (auto [q, size] : mailbox[(t + 1) % kThreads]) {
          auto* c = static_cast<unsigned char*>(q);
          int mark = (t + 1) % kThreads + 1;
          if (c[0] != mark || c[size - 1] != mark) ++damaged;
          free_buffer(q, size);
        }
        all.arrive_and_wait();
        mailbox[t].clear();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
  EXPECT_LE(buffer_cache_bytes(), static_cast<int64_t>(kMiB));
}

}  // namespace
}  // namespace deft
