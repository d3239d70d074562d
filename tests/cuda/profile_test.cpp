// A profile of work on a GPU: while it is busy the time is its kernels'.
#include "cuda_util.h"
#include "deft/deft.h"
#include "profile/collector.h"

namespace deft {
namespace {

class CudaProfile : public GpuTest {};

TEST_F(CudaProfile, TimeBelongsToKernels) {
  Tensor a = randn({4096, 4096}, on_gpu()), b = randn({4096, 4096}, on_gpu()), c = a.matmul(b);
  synchronize(kCUDA);
  profile::ProfileSession session;
  for (int i = 0; i < 20; ++i) c = a.matmul(b);
  synchronize(kCUDA);
  const profile::Profile p = session.stop();
  if (p.device_busy_seconds < 0) GTEST_SKIP() << p.device_note;
  EXPECT_GT(p.device_busy_seconds, 0.5 * p.wall_seconds);
  EXPECT_LE(p.device_busy_seconds, p.wall_seconds);
  EXPECT_GT(p[Bucket::linear_algebra], 0.5 * p.wall_seconds);
  EXPECT_NEAR(p.sum(), p.wall_seconds, 0.02 * p.wall_seconds);
  ASSERT_FALSE(p.device.empty());
  EXPECT_EQ(p.device[0].bucket, Bucket::linear_algebra) << p.device[0].name;
  EXPECT_GE(p.device[0].calls, 20);
}

TEST_F(CudaProfile, CopiesAndIdleTimeAreSeen) {
  Tensor x = randn({1 << 24}, on_gpu());
  synchronize(kCUDA);
  profile::ProfileSession session;
  for (int i = 0; i < 5; ++i) x.to(kCPU);
  const profile::Profile p = session.stop();
  if (p.device_busy_seconds < 0) GTEST_SKIP() << p.device_note;
  EXPECT_GT(p[Bucket::copy], 0);
  EXPECT_NEAR(p.sum(), p.wall_seconds, 0.02 * p.wall_seconds);
}

TEST_F(CudaProfile, SessionsFollowEachOther) {
  for (int i = 0; i < 2; ++i) {
    profile::ProfileSession session;
    Tensor x = ones({1000, 1000}, on_gpu()) + 1;
    const profile::Profile p = session.stop();
    if (p.device_busy_seconds < 0) GTEST_SKIP() << p.device_note;
    EXPECT_FALSE(p.device.empty()) << "session " << i;
  }
}

}  // namespace
}  // namespace deft
