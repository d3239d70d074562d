#include "data/normalize_images.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/binary.h"
#include "ops/creation.h"
#include "ops/random.h"

namespace deft::data {
namespace {

const std::vector<double> kMean{0.485, 0.456, 0.406}, kStd{0.229, 0.224, 0.225};

Tensor pictures(const Shape& sizes) {
  RngScope rng({3, 0});
  return randint(0, 256, sizes).to(DType::u8);
}

Tensor expected(const Tensor& images) {
  Tensor mean = tensor(kMean).view({1, 3, 1, 1}), std = tensor(kStd).view({1, 3, 1, 1});
  return (images.to(DType::f64) / 255 - mean) / std;
}

TEST(NormalizeImages, AllLayoutsAndTypes) {
  for (Shape sizes : {Shape{2, 3, 5, 7}, Shape{40, 3, 33, 17}, Shape{0, 3, 2, 2}, Shape{1, 3, 0, 4}}) {
    Tensor planes = pictures(sizes), mixed = planes.contiguous(MemoryFormat::channels_last);
    std::vector<double> wanted = expected(planes).to_vector<double>();
    for (const Tensor& images : {planes, mixed})
      for (MemoryFormat format : {MemoryFormat::channels_last, MemoryFormat::contiguous, MemoryFormat::preserve})
        for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
          Tensor out = normalize_images(images, kMean, kStd, type, format);
          EXPECT_EQ(out.sizes(), sizes);
          EXPECT_EQ(out.dtype(), type);
          EXPECT_TRUE(format == MemoryFormat::preserve || out.numel() == 0 || out.is_contiguous(format));
          std::vector<double> found = out.to_vector<double>();
          for (size_t i = 0; i < wanted.size(); ++i)
            ASSERT_LE(std::abs(found[i] - wanted[i]), epsilon_of(type) * (std::abs(wanted[i]) + 1e-30)) << i;
        }
  }
}

TEST(NormalizeImages, ABatchWithChannelsBehind) {
  Tensor batch = pictures({4, 6, 5, 3});  // [n, height, width, channels]
  Tensor out = normalize_images(batch.permute({0, 3, 1, 2}), kMean, kStd);
  EXPECT_EQ(out.sizes(), (Shape{4, 3, 6, 5}));
  EXPECT_TRUE(out.is_contiguous(MemoryFormat::channels_last));
  EXPECT_NEAR(out[1][2][3][4].item<double>(), (batch[1][3][4][2].item<double>() / 255 - 0.406) / 0.225, 1e-6);
}

TEST(NormalizeImages, Refuses) {
  EXPECT_THROW(normalize_images(Tensor(), kMean, kStd), ValueError);
  EXPECT_THROW(normalize_images(zeros({1, 3, 2, 2}), kMean, kStd), ValueError);
  EXPECT_THROW(normalize_images(pictures({3, 2, 2}), kMean, kStd), ValueError);
  EXPECT_THROW(normalize_images(pictures({1, 4, 2, 2}), kMean, kStd), ValueError);
  EXPECT_THROW(normalize_images(pictures({1, 3, 2, 2}), kMean, {1, 0, 1}), ValueError);
  EXPECT_THROW(normalize_images(pictures({1, 3, 2, 2}), kMean, kStd, DType::u8), DTypeError);
}

}  // namespace
}  // namespace deft::data
