// The loader's way to a device: pinned memory, a stream of its own, nobody waits.
#include "cuda_util.h"
#include "data/loader_util.h"
#include "data/normalize_images.h"
#include "ops/random.h"

namespace deft::data {
namespace {

class CudaLoader : public GpuTest {};

TEST_F(CudaLoader, BatchesAreTheSameAsOnTheHost) {
  auto set = std::make_shared<MixedSet>(103);
  LoaderOptions options{.batch_size = 8, .shuffle = true, .seed = 4, .workers = 2};
  DataLoader host(set, options);
  options.device = kCUDA;
  for (int workers : {0, 1, 3})
    for (bool ordered : {true, false}) {
      options.workers = workers;
      options.ordered = ordered;
      DataLoader loader(set, options);
      Hashes expected, found;
      host.start(0);
      for (Batch& batch : host) note(expected, batch);
      for (Batch& batch : loader) {
        EXPECT_EQ(batch["fixed"].device(), kCUDA);
        EXPECT_EQ(batch.lengths("varying").device(), kCUDA);
        EXPECT_TRUE(batch.indices.device().is_cpu());
        batch.to(kCPU);
        synchronize(kCUDA);
        note(found, batch);
      }
      EXPECT_EQ(found, expected) << workers << " workers, ordered " << ordered;
    }
}

TEST_F(CudaLoader, NobodyWaits) {
  DataLoader loader(std::make_shared<MixedSet>(400), {.batch_size = 8, .workers = 2, .device = kCUDA});
  Batch batch;
  Tensor sum = zeros({}, on_gpu(DType::f64));
  {
    SyncGuard guard(SyncPolicy::forbid);
    while (loader.next(batch)) sum.add_(batch["fixed"].select(1, 0).sum());
  }
  EXPECT_EQ(sum.item<double>(), 399 * 400 / 2);
}

TEST_F(CudaLoader, BatchesThatAreDroppedAtOnce) {
  expect_leaves_nothing([] {
    {
      DataLoader loader(std::make_shared<MixedSet>(400), {.batch_size = 8, .workers = 2, .device = kCUDA});
      Batch batch;
      for (int i = 0; i < 20; ++i) loader.next(batch);
      loader.start(3);
      loader.next(batch);
    }
    synchronize(kCUDA);  // pinned memory is kept until its copy is done
  });
}

TEST_F(CudaLoader, NormalizedImages) {
  Tensor images = randint(0, 256, {5, 3, 9, 7}).to(DType::u8);
  std::vector<double> mean{0.485, 0.456, 0.406}, std{0.229, 0.224, 0.225};
  for (MemoryFormat format : {MemoryFormat::channels_last, MemoryFormat::contiguous}) {
    std::vector<double> expected = normalize_images(images, mean, std, DType::f32, format).to_vector<double>();
    Tensor found = normalize_images(images.to(kCUDA), mean, std, DType::f32, format);
    EXPECT_TRUE(found.is_contiguous(format));
    std::vector<double> values = found.to_vector<double>();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values[i], expected[i], 4e-6);
  }
}

}  // namespace
}  // namespace deft::data
