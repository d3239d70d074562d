// Random words in bulk are those of philox(), one by one.
#include "kernels/cpu/elementwise/philox.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/cpu_isa.h"

namespace deft::cpu {
namespace {

TEST(Philox, WordsInBulkAreTheWords) {
  const PhiloxState draw{0x123456789abcdef0, 0xfedcba9876543210};
  for (uint64_t first : {uint64_t{0}, uint64_t{5}, uint64_t{0xfffffff3}, uint64_t{0xffffffffffffffe0}}) {
    for (int64_t blocks : {1, 2, 7, 8, 9, 16, 33, 64}) {
      const int64_t n = 4 * blocks;
      std::vector<uint32_t> words(static_cast<size_t>(n) + 1, 77);
      philox_words(draw, first, blocks, words.data());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(words[static_cast<size_t>(i)],
                  philox(draw, first + static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)])
            << first << " " << blocks << " " << i;
      }
      EXPECT_EQ(words.back(), 77u) << "behind the end";
    }
  }
}

template <class T>
void check_factors() {
  for (double p : {0.0, 0.1, 0.5, 1 / 3.0, 0.9999999, 1.0}) {
    const Dropping d{p, {3, 4}};
    for (uint64_t first : {0, 1, 7, 250}) {
      for (int64_t n : {0, 1, 5, 256, 600}) {
        std::vector<T> factors(static_cast<size_t>(n) + 1, T(77));
        drop_factors(d, first, n, factors.data());
        for (int64_t i = 0; i < n; ++i) {
          const uint64_t at = first + static_cast<uint64_t>(i);
          const double u = uniform_from_bits(philox(d.draw, at / 4)[at % 4]);
          ASSERT_EQ(factors[static_cast<size_t>(i)], u >= p && p < 1 ? static_cast<T>(1 / (1 - p)) : T(0)) << p << i;
        }
        EXPECT_EQ(factors.back(), T(77));
      }
    }
  }
}
TEST(Philox, FactorsOfDropout) {
  check_factors<float>();
  check_factors<double>();
}

}  // namespace
}  // namespace deft::cpu
