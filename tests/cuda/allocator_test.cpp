// Device memory: reuse, rounding, caps and what happens when there is no more.
#include <fmt/format.h>

#include "cuda_util.h"

namespace deft {
namespace {

constexpr int64_t kMiB = 1 << 20;

class CudaMemory : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    trim_device_memory(kCUDA);
    live_ = device_memory_use(kCUDA).live_bytes;
  }
  void TearDown() override {
    GpuTest::TearDown();
    if (IsSkipped()) return;
    set_device_memory_limit(kCUDA, 0);
    set_deterministic(false);
    EXPECT_EQ(device_memory_use(kCUDA).live_bytes, live_) << "bytes were kept";
  }
  int64_t live() const { return device_memory_use(kCUDA).live_bytes - live_; }

 private:
  int64_t live_ = 0;
};

Tensor bytes(int64_t n) { return empty({n}, on_gpu(DType::u8)); }

TEST_F(CudaMemory, FreedBlocksAreReusedAtOnce) {
  for (int64_t n : {int64_t{1}, int64_t{100}, int64_t{5000}, kMiB, 100 * kMiB}) {
    Tensor x = bytes(n);
    void* first = x.data_ptr();
    x.fill_(1);
    x = Tensor();
    int64_t calls = device_memory_use(kCUDA).driver_calls;
    Tensor y = bytes(n);
    EXPECT_EQ(y.data_ptr(), first) << n;
    EXPECT_EQ(device_memory_use(kCUDA).driver_calls, calls) << n;
  }
}

TEST_F(CudaMemory, BlocksAreAlignedAndDoNotOverlap) {
  std::vector<Tensor> all;
  for (int64_t n : {1, 3, 511, 512, 513, 4095, 4097, 70000, 1 << 20, 3 << 20}) {
    all.push_back(bytes(n));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all.back().data_ptr()) % 256, 0u) << n;
    all.back().fill_(static_cast<int>(all.size()));
  }
  for (size_t i = 0; i < all.size(); ++i) expect_all(all[i], static_cast<double>(i + 1));
}

TEST_F(CudaMemory, RoundingWastesAtMostAnEighth) {
  for (int64_t n = 4097; n < 200 * kMiB; n = n * 9 / 8 + 3) {
    trim_device_memory(kCUDA);
    Tensor x = bytes(n);
    EXPECT_GE(live(), n);
    EXPECT_LE(live(), n + n / 8 + 1) << n;
  }
  for (int64_t n : {1025, 2000, 2049, 3000}) {
    Tensor x = bytes(n);
    EXPECT_LE(live(), n + 512) << n;
  }
}

TEST_F(CudaMemory, CountersFollow) {
  reset_peak_memory(kCUDA);
  int64_t start = device_memory_use(kCUDA).peak_bytes, tensors = memory_live().total;
  {
    Tensor x = bytes(8 * kMiB), y = bytes(4 * kMiB);
    EXPECT_EQ(live(), 12 * kMiB);
    EXPECT_EQ(memory_live().total - tensors, 12 * kMiB);
  }
  EXPECT_EQ(live(), 0);
  DeviceMemoryUse use = device_memory_use(kCUDA);
  EXPECT_EQ(use.peak_bytes - start, 12 * kMiB);
  EXPECT_GE(use.cached_bytes, 12 * kMiB);
  EXPECT_GE(use.reserved_bytes, use.live_bytes + use.cached_bytes);
  EXPECT_GE(trim_device_memory(kCUDA), static_cast<size_t>(12 * kMiB));
  DeviceMemoryUse after = device_memory_use(kCUDA);
  EXPECT_GE(use.reserved_bytes - after.reserved_bytes, use.cached_bytes - after.cached_bytes);
}

TEST_F(CudaMemory, ACapIsKeptAndTheErrorSaysWhatIsThere) {
  Tensor parameter = bytes(2 * kMiB), warm = ones({3}, on_gpu());
  parameter.set_memory_category(MemoryCategory::parameter);
  set_device_memory_limit(kCUDA, static_cast<size_t>(device_memory_use(kCUDA).reserved_bytes + 64 * kMiB));
  std::vector<Tensor> kept;
  std::string text = message_of<OutOfMemoryError>([&] {
    for (int i = 0; i < 100; ++i) kept.push_back(bytes(16 * kMiB));
  });
  EXPECT_EQ(kept.size(), 4u);
  for (int c = 0; c < kMemoryCategoryCount; ++c) {
    const char* name = name_of(static_cast<MemoryCategory>(c));
    EXPECT_NE(text.find(name), text.npos) << name << " is not in: " << text;
  }
  EXPECT_NE(text.find(fmt::format("{} {}", name_of(MemoryCategory::parameter), 2 * kMiB)), text.npos) << text;
  EXPECT_NE(text.find("cuda:0"), text.npos) << text;
  EXPECT_EQ(text.find('\n'), text.npos) << text;
  // Everything works again with what is left and with what is given back.
  EXPECT_VALUES(warm + 1, 2, 2, 2);
  kept.pop_back();
  EXPECT_NO_THROW(bytes(16 * kMiB));
  kept.clear();
  EXPECT_NO_THROW(bytes(60 * kMiB)) << "cached blocks of another size must be given back first";
}

// But not where the bits of the result must stay.
TEST_F(CudaMemory, AConvolutionChosenWithMoreMemoryStillRunsWithLess) {
  MemoryFormat last = MemoryFormat::channels_last;
  Tensor x = sample_on(kCUDA, {32, 256, 28, 28}).contiguous(last);
  Tensor w = sample_on(kCUDA, {256, 512, 1, 1}, 2).contiguous(last);
  for (bool same_bits : {false, true}) {
    set_deterministic(same_bits);
    reset_peak_memory(kCUDA);
    Tensor y = conv_transpose2d(x, w), again;
    DeviceMemoryUse use = device_memory_use(kCUDA);
    int64_t result = y.numel() * 4, workspace = use.peak_bytes - use.live_bytes;
    if (workspace < 16 * kMiB) GTEST_SKIP() << "cuDNN's first choice needs " << workspace << " bytes only";
    trim_device_memory(kCUDA);
    int64_t cap = device_memory_use(kCUDA).reserved_bytes + result + workspace * 3 / 4;
    set_device_memory_limit(kCUDA, static_cast<size_t>(cap));
    if (same_bits) {
      EXPECT_THROW(conv_transpose2d(x, w), OutOfMemoryError);
    } else {
      again = conv_transpose2d(x, w);
    }
    set_device_memory_limit(kCUDA, 0);
    set_deterministic(false);
    if (!same_bits) {
      EXPECT_LT((again - y).abs().amax().item(), 1e-3 * y.abs().amax().item());
    }
  }
}

TEST_F(CudaMemory, MoreThanTheCardHas) {
  int64_t all = device_properties(kCUDA).memory_bytes;
  EXPECT_GT(all, 0);
  expect_error<OutOfMemoryError>([&] { bytes(2 * all); }, "cuda:0");
  Tensor x = ones({1000}, on_gpu());
  expect_all(x + 1, 2);
  // A large block that is only cached makes way for a larger one.
  int64_t part = all / 2;
  try {
    bytes(part);
  } catch (const OutOfMemoryError&) {
    GTEST_SKIP() << "somebody else uses the card";
  }
  {
    Tensor first = bytes(part);
    EXPECT_THROW(bytes(all * 3 / 4), OutOfMemoryError);
  }
  EXPECT_NO_THROW(bytes(part + part / 4));
  trim_device_memory(kCUDA);
  expect_all(x * 3, 3);
}

TEST_F(CudaMemory, NegativeAndHugeSizes) {
  EXPECT_THROW(empty({int64_t{1} << 60}, on_gpu(DType::u8)), Error);
  EXPECT_EQ(empty({0, 5}, on_gpu()).numel(), 0);
  EXPECT_EQ((zeros({0, 5}, on_gpu()) + 1).sizes(), (Shape{0, 5}));
}

TEST_F(CudaMemory, ATrainingLoopSettles) {
  Mlp model(kCUDA, DType::f32);
  Tensor x = sample_on(kCUDA, {64, 16}), target = classes(kCUDA, {64}, 5);
  auto step = [&] {
    model.loss(x, target).backward();
    model.step(0.1);
  };
  for (int i = 0; i < 3; ++i) step();
  DeviceMemoryUse before = device_memory_use(kCUDA);
  for (int i = 0; i < 20; ++i) step();
  DeviceMemoryUse after = device_memory_use(kCUDA);
  EXPECT_EQ(after.driver_calls, before.driver_calls);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
}

TEST_F(CudaMemory, NothingIsLeftAfterAnyStep) {
  expect_leaves_nothing([] {
    for (bool convolution : {false, true}) {
      Mlp mlp(kCUDA, DType::f32);
      Cnn cnn(kCUDA, DType::f32);
      Tensor target = classes(kCUDA, {4}, 5);
      Tensor loss =
          convolution ? cnn.loss(sample_on(kCUDA, {4, 3, 8, 8}), target) : mlp.loss(sample_on(kCUDA, {4, 16}), target);
      loss.backward();
    }
    synchronize(kCUDA);
  });
  EXPECT_EQ(live(), 0);
}

// Every allocation of a step fails once: an error each time, nothing is left behind, and the next step works.
TEST_F(CudaMemory, FailuresLeaveNothingBehind) {
  Tensor x = sample_on(kCUDA, {4, 16}), target = classes(kCUDA, {4}, 5);
  Tensor image = sample_on(kCUDA, {2, 3, 8, 8}), two = classes(kCUDA, {2}, 5);
  for (bool convolution : {false, true}) {
    int failures = 0;
    for (int n = 0; n < 2000; ++n) {
      bool failed = false;
      Alive before;
      try {
        Mlp mlp(kCUDA, DType::f32);
        Cnn cnn(kCUDA, DType::f32);
        fail_allocation_after(n);
        (convolution ? cnn.loss(image, two) : mlp.loss(x, target)).backward();
      } catch (const OutOfMemoryError&) {
        failed = true;
      }
      fail_allocation_after(-1);
      synchronize(kCUDA);
      ASSERT_EQ(Alive(), before) << "allocation " << n;
      if (!failed) break;
      ++failures;
    }
    EXPECT_GT(failures, 10);
    EXPECT_LT(failures, 2000);
  }
}

}  // namespace
}  // namespace deft
