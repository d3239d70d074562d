#include "kernels/cpu/gemm/gemm_tn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "runtime/threads_util.h"

namespace deft::test {
namespace {

using cpu::GemmTn;

struct Sizes {
  int64_t m, n, k, gap;  // gap: between the rows of both operands
};

class Columns {
 public:
  explicit Columns(const Sizes& s)
      : s_(s), a_(values((s.m + s.gap) * s.k)), b_(values((s.n + s.gap) * s.k)), c_(values(s.m * s.n + 1)) {}
  bool run() {
    c_.assign(c_.size(), kFence);
    return cpu::run_gemm_tn({s_.m, s_.n, s_.k, a_.data(), s_.m + s_.gap, b_.data(), s_.n + s_.gap, c_.data()});
  }
  const std::vector<float>& result() const { return c_; }
  void expect_right() const {
    for (int64_t i = 0; i < s_.m; ++i) {
      for (int64_t j = 0; j < s_.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < s_.k; ++p) {
          const double term = static_cast<double>(a_[p * (s_.m + s_.gap) + i]) * b_[p * (s_.n + s_.gap) + j];
          sum += term, size += std::abs(term);
        }
        ASSERT_NEAR(c_[i * s_.n + j], sum, size * static_cast<double>(s_.k) * 0x1p-24) << i << ", " << j;
      }
    }
    EXPECT_EQ(c_.back(), kFence);
  }

 private:
  static constexpr float kFence = 12345;
  std::vector<float> values(int64_t count) {
    std::vector<float> v(static_cast<size_t>(count));
    for (float& x : v) x = std::uniform_real_distribution<float>(-1, 1)(rng_);
    return v;
  }
  std::mt19937 rng_{5};
  Sizes s_;
  std::vector<float> a_, b_, c_;
};

// All splits of rows into tiles of twelve and eight, a and b swapped as well, k around its blocks.
TEST(ProductColumns, GivesTheProduct) {
  if (Columns probe({32, 32, 128, 0}); !probe.run()) GTEST_SKIP() << "there are no such tiles on this machine";
  for (const Sizes s : {Sizes{8, 32, 128, 0},
                        {12, 32, 129, 3},
                        {16, 64, 255, 0},
                        {20, 32, 256, 1},
                        {24, 96, 300, 0},
                        {28, 32, 131, 5},
                        {22, 32, 160, 1},
                        {30, 64, 256, 0},
                        {32, 32, 384, 0},
                        {64, 256, 200, 0},
                        {32, 8, 140, 2},
                        {64, 12, 128, 0},
                        {96, 16, 300, 7},
                        {256, 64, 257, 0},
                        {160, 28, 150, 0},
                        {8, 32, 16 * 1024 + 1, 0},
                        {32, 12, 40000, 0}}) {
    SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k);
    Columns x(s);
    ASSERT_TRUE(x.run());
    x.expect_right();
    const std::vector<float> alone = x.result();
    for (int threads : {2, 5}) {
      Threads guard(threads);
      x.run();
      EXPECT_EQ(x.result(), alone) << threads << " threads";
    }
  }
}

TEST(ProductColumns, LeavesOtherSizesAlone) {
  for (const Sizes s : {Sizes{4, 32, 128, 0},
                        {29, 32, 128, 0},
                        {14, 32, 128, 0},
                        {32, 33, 128, 0},
                        {32, 32, 100, 0},
                        {512, 512, 128, 0}}) {
    Columns x(s);
    EXPECT_FALSE(x.run());
  }
}

}  // namespace
}  // namespace deft::test
