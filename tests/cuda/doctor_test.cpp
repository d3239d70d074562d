// The defects of programs that use a GPU, made for real, beside programs that avoid them.
#include "cuda_util.h"
#include "doctor/rule_util.h"

namespace deft {
namespace {

using test::Lint;
using test::lint;

class DoctorGpu : public GpuTest {};

constexpr int kSteps = 12;

// A step is an optimizer's.
struct Loop {
  Tensor w = sample_on(kCUDA, {64, 64}).requires_grad_();
  optim::SGD sgd{{w}, {.lr = 1e-3}};
  template <class F>
  void run(F&& body) {
    for (int i = 0; i < kSteps; ++i) {
      Tensor loss = body(i);
      sgd.zero_grad();
      loss.backward();
      sgd.step();
    }
  }
};

TEST_F(DoctorGpu, ValuesThatGoToTheHostAndBackAreFound) {
  Loop loop;
  Tensor x = sample_on(kCUDA, {64, 64});
  int line = 0;
  Lint found = lint([&] {
    loop.run([&](int) {
      Tensor on_host = matmul(x, loop.w).detach().to(kCPU);
      Tensor changed = on_host.clamp(-1, 1);
      line = __LINE__ + 1;
      Tensor back = changed.to(kCUDA);
      return (matmul(x, loop.w) * back).sum();
    });
  });
  EXPECT_FINDING(found, "D011", line);
  EXPECT_GE(found.of("D011")[0].count, kSteps - 1);
}

TEST_F(DoctorGpu, ValuesThatTakeTheWayThroughAVectorAreFound) {
  Loop loop;
  Tensor x = sample_on(kCUDA, {64, 64});
  int line = 0;
  Lint found = lint([&] {
    loop.run([&](int) {
      Tensor y = matmul(x, loop.w);
      std::vector<float> values = y.detach().to_vector<float>();
      Tensor host = empty({64, 64});
      std::copy(values.begin(), values.end(), host.data<float>());
      line = __LINE__ + 1;
      return (y * host.to(kCUDA)).sum();
    });
  });
  EXPECT_FINDING(found, "D011", line);
}

TEST_F(DoctorGpu, BatchesSentAndPredictionsFetchedAreNoPingPong) {
  Loop loop;
  Lint found = lint([&] {
    loop.run([&](int i) {
      Tensor x = sample({64, 64}, 1 + static_cast<uint64_t>(i)).to(kCUDA);
      Tensor y = matmul(x, loop.w);
      if (i % 5 == 0) y.detach().to(kCPU);
      return y.square().sum();
    });
  });
  EXPECT_TRUE(found.of("D011").empty()) << found.text();
}

TEST_F(DoctorGpu, AWaitInEachStepIsFound) {
  Loop loop;
  Tensor x = sample_on(kCUDA, {64, 64});
  int line = 0;
  double total = 0;
  Lint found = lint([&] {
    loop.run([&](int) {
      Tensor loss = matmul(x, loop.w).square().mean();
      line = __LINE__ + 1;
      total += loss.item<double>();
      return loss;
    });
  });
  EXPECT_FINDING(found, "D012", line);
  EXPECT_NE(found.of("D012")[0].message.find("(item), 1.0 times"), std::string::npos) << found.text();
}

TEST_F(DoctorGpu, ASumOnTheDeviceReadAtTheEndIsSilent) {
  Loop loop;
  Tensor x = sample_on(kCUDA, {64, 64});
  Lint found = lint([&] {
    Tensor total = zeros({}, on_gpu());
    loop.run([&](int) {
      Tensor loss = matmul(x, loop.w).square().mean();
      total += loss.detach();
      return loss;
    });
    EXPECT_GT(total.item<double>(), 0);
  });
  EXPECT_SILENT(found);
}

TEST_F(DoctorGpu, NonBlockingFromPageableMemoryIsFoundAndFromPinnedMemoryIsNot) {
  Loop loop;
  Tensor host = sample_on(kCPU, {64, 64}), pinned = host.pin_memory();
  int line = 0;
  Lint found = lint([&] {
    loop.run([&](int) {
      line = __LINE__ + 1;
      Tensor x = host.to(kCUDA, true);
      return matmul(x, loop.w).square().mean();
    });
  });
  EXPECT_FINDING(found, "D013", line);
  Lint clean = lint([&] { loop.run([&](int) { return matmul(pinned.to(kCUDA, true), loop.w).square().mean(); }); });
  EXPECT_SILENT(clean);
}

}  // namespace
}  // namespace deft
