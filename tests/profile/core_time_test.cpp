#include "profile/core_time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace deft::profile {
namespace {

TEST(CoreTime, ShareIsWhatRanOfWhatCouldRun) {
  const CoreTime then{100, 1000};
  EXPECT_DOUBLE_EQ((CoreTime{400, 1100}.share_since(then)), 0.75);
  EXPECT_DOUBLE_EQ((CoreTime{400, 1000}.share_since(then)), 1);
  EXPECT_DOUBLE_EQ((CoreTime{100, 1100}.share_since(then)), 1);  // nothing to go by
  EXPECT_DOUBLE_EQ((CoreTime{400, 0}.share_since(then)), 1);     // the system stopped telling
}

TEST(CoreTime, SleepingIsNotWaitingForACore) {
  const CoreTime then = CoreTime::now();
  const auto start = std::chrono::steady_clock::now();
  volatile double x = 1;
  while (CoreTime::now().ran_ns - then.ran_ns < 5'000'000) x = x * 1.0000001;
  const CoreTime worked = CoreTime::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const CoreTime slept = CoreTime::now();
  const auto wall = std::chrono::steady_clock::now() - start;
  EXPECT_GE(worked.ran_ns - then.ran_ns, 5'000'000);
  EXPECT_LT(slept.ran_ns - worked.ran_ns, 20'000'000);
  EXPECT_LE(slept.waited_ns - then.waited_ns + 20'000'000, std::chrono::nanoseconds(wall).count());
}

}  // namespace
}  // namespace deft::profile
