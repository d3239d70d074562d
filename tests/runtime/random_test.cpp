#include "runtime/random.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace deft {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of Random123 for philox4x32-10. Its counter is {index, offset}, its key the seed.
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0ull, ~0ull}, ~0ull), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  PhiloxState pi{0x299f31d0a4093822, 0x0370734413198a2e};
  EXPECT_EQ(philox(pi, 0x85a308d3243f6a88), (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformStaysBelowOne) {
  EXPECT_EQ(uniform_from_bits(0), 0.0f);
  EXPECT_LT(uniform_from_bits(~0u), 1.0f);
  EXPECT_EQ(uniform_from_bits(1u << 31), 0.5f);
  EXPECT_EQ(uniform_from_bits(0, 0), 0.0);
  EXPECT_LT(uniform_from_bits(~0u, ~0u), 1.0);
  EXPECT_EQ(uniform_from_bits(1u << 31, 0), 0.5);
}

TEST(Random, SeedRestartsTheStream) {
  PhiloxState before = rng_state();
  manual_seed(42);
  EXPECT_EQ(rng_state().seed, 42u);
  EXPECT_EQ(rng_state().offset, 0u);
  EXPECT_EQ(generator().next_draw().offset, 0u);
  EXPECT_EQ(generator().next_draw().offset, 1u);
  PhiloxState middle = rng_state();
  generator().next_draw();
  set_rng_state(middle);
  EXPECT_EQ(generator().next_draw().offset, middle.offset);
  set_rng_state(before);
}

TEST(Random, ScopeReplaysAndLeavesTheOuterStreamAlone) {
  PhiloxState outer = rng_state();
  std::vector<Words> runs[2];
  for (auto& run : runs) {
    RngScope scope({7, 100});
    EXPECT_EQ(rng_state().seed, 7u);
    for (int i = 0; i < 5; ++i) run.push_back(philox(generator().next_draw(), 3));
    {
      RngScope inner({8, 0});
      generator().next_draw();
    }
    EXPECT_EQ(rng_state().offset, 105u);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(rng_state().seed, outer.seed);
  EXPECT_EQ(rng_state().offset, outer.offset);
}

TEST(Random, ThreadsThatShareAGeneratorNeverGetTheSameDraw) {
  Generator shared({1, 0});
  std::vector<uint64_t> offsets[4];
  std::vector<std::thread> threads;
  for (auto& mine : offsets) {
    threads.emplace_back([&mine, &shared] {
      for (int i = 0; i < 1000; ++i) mine.push_back(shared.next_draw().offset);
    });
  }
  for (auto& t : threads) t.join();
  std::set<uint64_t> all;
  for (auto& mine : offsets) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 4000u);
  EXPECT_EQ(*all.rbegin(), 3999u);
}

}  // namespace
}  // namespace deft
