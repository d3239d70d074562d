// The numbers that tests of integer parameters give, and in what combinations.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/system_memory.h"

namespace deft::testing {

using Numbers = std::vector<int64_t>;

inline constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
inline const Numbers kValues = {0,
                                1,
                                -1,
                                2,
                                3,
                                -3,
                                1 << 15,
                                1 << 16,
                                std::numeric_limits<int32_t>::max(),
                                int64_t{1} << 31,
                                -(int64_t{1} << 31),
                                int64_t{1} << 32,
                                int64_t{1} << 62,
                                kMost - 1,
                                kMost,
                                kLeast};
// Of two numbers at once, these.
inline const Numbers kPairValues = {0,     1,     3, 1 << 16, std::numeric_limits<int32_t>::max(), int64_t{1} << 62,
                                    kMost, kLeast};
inline constexpr int64_t kFewElements = 1 << 20;

// No block beyond 8 MB is given, so that a large result is an error and not a wait.
class IntegerParams : public ::testing::Test {
 protected:
  void SetUp() override { detail::refuse_requests_above(8 << 20); }
  void TearDown() override { detail::refuse_requests_above(0); }
};

inline std::string text_of(const Numbers& numbers) {
  std::string text;
  for (int64_t n : numbers) text += (text.empty() ? "" : ", ") + std::to_string(n);
  return text;
}

// All values of one number, then of two.
template <class F>
void for_each_change(const Numbers& good, F f) {
  f(good);
  for (size_t i = 0; i < good.size(); ++i) {
    for (int64_t v : kValues) {
      Numbers changed = good;
      changed[i] = v;
      f(changed);
    }
    for (int64_t v : kPairValues) {
      Numbers changed = good;
      changed[i] = v;
      for (size_t k = i + 1; k < good.size(); ++k) {
        for (int64_t w : kPairValues) {
          changed[k] = w;
          f(changed);
        }
        changed[k] = good[k];
      }
    }
  }
}

}  // namespace deft::testing
