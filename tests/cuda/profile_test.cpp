// A profile of work on a GPU: while it is busy the time is its kernels'.
#include "cuda_util.h"
#include "deft/deft.h"
#include "profile/bottleneck.h"
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

// Each op has the time of its own kernels, and what keeps it from being faster on this GPU.
TEST_F(CudaProfile, OpsHaveTheirKernelsAndTheirClass) {
  Tensor a = randn({4096, 4096}, on_gpu()), b = randn({4096, 4096}, on_gpu()), c = a.matmul(b),
         small = ones({16}, on_gpu());
  synchronize(kCUDA);
  profile::ProfileSession session;
  for (int i = 0; i < 20; ++i) {
    a.matmul(b);
    relu(a);
    neg(small);
  }
  synchronize(kCUDA);
  profile::Profile p = session.stop();
  if (p.device_busy_seconds < 0) GTEST_SKIP() << p.device_note;
  profile::judge(p);
  const auto row = [&](const char* name) -> const profile::OpRow& {
    for (const profile::OpRow& r : p.ops)
      if (r.name == name) return r;
    throw std::runtime_error(std::string("no row of ") + name);
  };
  EXPECT_TRUE(row("matmul").on_device);
  EXPECT_EQ(row("matmul").bound, profile::Bound::compute);
  EXPECT_GT(row("matmul").of_limit, 0.5);
  EXPECT_EQ(row("relu").bound, profile::Bound::memory);
  EXPECT_GT(row("relu").of_limit, 0.3);
  EXPECT_EQ(row("neg").bound, profile::Bound::overhead);
  double of_ops = 0, of_kernels = 0;
  for (const profile::OpRow& r : p.ops) of_ops += r.on_device ? r.kernel_seconds : 0;
  for (const profile::DeviceRow& r : p.device) of_kernels += r.seconds;
  EXPECT_NEAR(of_ops, of_kernels, 0.02 * of_kernels);
  EXPECT_EQ(p.ops[0].name, "matmul");
}

TEST_F(CudaProfile, LaunchesAreNoKernels) {
  Tensor x = ones({16}, on_gpu());
  synchronize(kCUDA);
  profile::ProfileSession session;
  for (int i = 0; i < 2000; ++i) neg(x);
  synchronize(kCUDA);
  const profile::Profile p = session.stop();
  if (p.device_busy_seconds < 0) GTEST_SKIP() << p.device_note;
  EXPECT_LE(p[Bucket::kernel], 1.02 * p.device_busy_seconds);
  EXPECT_GT(p[Bucket::dispatch], 0.1 * p.wall_seconds);
}

// A plan is launched as a whole: its kernels are those of the plan.
TEST_F(CudaProfile, PlansHaveTheirKernels) {
  Tensor x = randn({512, 512}, on_gpu()), w = randn({512, 512}, on_gpu());
  NoGradGuard guard;
  auto plan = compile([&](const Tensor& t) { return relu(t.matmul(w)); });
  for (int i = 0; i < 3; ++i) plan(x);
  synchronize(kCUDA);
  profile::ProfileSession session;
  for (int i = 0; i < 50; ++i) plan(x);
  synchronize(kCUDA);
  const profile::Profile p = session.stop();
  if (p.device_busy_seconds < 0) GTEST_SKIP() << p.device_note;
  double of_ops = 0;
  for (const profile::OpRow& r : p.ops) of_ops += r.on_device ? r.kernel_seconds : 0;
  EXPECT_GT(of_ops, 0.9 * p.device_busy_seconds);
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
