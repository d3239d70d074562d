#include "runtime/scratch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "runtime/memory.h"

namespace deft {
namespace {

#if defined(DEFT_ASAN)
#define SKIP_WHERE_NOTHING_IS_KEPT GTEST_SKIP() << "the sanitizer sees every block"
#else
#define SKIP_WHERE_NOTHING_IS_KEPT
#endif

class ScratchTest : public testing::Test {
 protected:
  void SetUp() override { detail::flush_scratch(); }
  void TearDown() override { detail::flush_scratch(); }
};

TEST_F(ScratchTest, TheSameBlockComesAgain) {
  SKIP_WHERE_NOTHING_IS_KEPT;
  const ScratchBlock first = take_scratch(100'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data) % 64, 0u);
  EXPECT_GE(first.bytes, 100'000u);
  std::memset(first.data, 1, first.bytes);
  give_scratch(first);
  const ScratchBlock second = take_scratch(90'000);
  EXPECT_EQ(second.data, first.data);
  EXPECT_EQ(second.bytes, first.bytes);
  give_scratch(second);
}

TEST_F(ScratchTest, BlocksInUseAreDifferent) {
  const ScratchBlock a = take_scratch(5000), b = take_scratch(5000);
  EXPECT_NE(a.data, b.data);
  give_scratch(a);
  give_scratch(b);
}

TEST_F(ScratchTest, ASmallRequestLeavesALargeBlock) {
  SKIP_WHERE_NOTHING_IS_KEPT;
  const ScratchBlock large = take_scratch(1 << 20);
  give_scratch(large);
  const ScratchBlock small = take_scratch(1000), again = take_scratch(1 << 20);
  EXPECT_NE(small.data, large.data);
  EXPECT_EQ(again.data, large.data);
  give_scratch(small);
  give_scratch(again);
}

// What a thread keeps is bounded, in blocks and in bytes: the rest is in the shared cache.
TEST_F(ScratchTest, WhatIsKeptIsBounded) {
  SKIP_WHERE_NOTHING_IS_KEPT;
  const int64_t before = buffer_cache_bytes();
  ScratchBlock blocks[kScratchSlots + 3];
  for (ScratchBlock& b : blocks) b = take_scratch(70'000);
  for (ScratchBlock& b : blocks) give_scratch(b);
  EXPECT_GE(buffer_cache_bytes(), before + 3 * 70'000);
  const int64_t few = buffer_cache_bytes();
  const ScratchBlock large = take_scratch(kScratchBytes - 50'000);
  give_scratch(large);  // with it only room for itself
  EXPECT_GE(buffer_cache_bytes(), few + kScratchSlots * 70'000);
  const int64_t now = buffer_cache_bytes();
  const ScratchBlock huge = take_scratch(kScratchBytes + 1);
  give_scratch(huge);
  EXPECT_GE(buffer_cache_bytes(), now + static_cast<int64_t>(kScratchBytes));
}

TEST_F(ScratchTest, AThreadThatEndsGivesItsBlocksBack) {
  SKIP_WHERE_NOTHING_IS_KEPT;
  int64_t kept = 0;
  std::thread([&] {
    give_scratch(take_scratch(300'000));
    kept = buffer_cache_bytes();
  }).join();
  EXPECT_GE(buffer_cache_bytes(), kept + 300'000);
}

TEST_F(ScratchTest, TrimmingTakesItToo) {
  SKIP_WHERE_NOTHING_IS_KEPT;
  give_scratch(take_scratch(300'000));
  trim_memory();
  EXPECT_EQ(buffer_cache_bytes(), 0);
}

// A failure that a test asked for loses no block.
TEST_F(ScratchTest, FailuresLeaveWhatIsKept) {
  SKIP_WHERE_NOTHING_IS_KEPT;
  const ScratchBlock first = take_scratch(200'000);
  give_scratch(first);
  fail_allocation_after(0);
  EXPECT_THROW(take_scratch(200'000), OutOfMemoryError);
  fail_allocation_after(-1);
  const ScratchBlock again = take_scratch(200'000);
  EXPECT_EQ(again.data, first.data);
  give_scratch(again);
}

TEST_F(ScratchTest, NothingIsNothing) {
  const ScratchBlock none = take_scratch(0);
  EXPECT_EQ(none.data, nullptr);
  give_scratch(none);
}

}  // namespace
}  // namespace deft
