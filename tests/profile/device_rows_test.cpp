// Names and buckets of what a GPU did.
#include <gtest/gtest.h>

#include "profile/device_time.h"

namespace deft::profile {
namespace {

TEST(DeviceRows, NamesAreShort) {
  EXPECT_EQ(short_kernel_name("_ZN4deft4cuda8map_lastIfEEvPKT_"), "map_last");
  EXPECT_EQ(short_kernel_name("void deft::cuda::(anonymous namespace)::last_moments<float, 4>(float const*)"),
            "last_moments");
  EXPECT_EQ(short_kernel_name("nvjet_sm90_tst_64x128_64x8_2x1_v_bz_NTN"), "nvjet_sm90_tst_64x128_64x8_2x1_v_bz_NTN");
}

TEST(DeviceRows, ProductsAreLinearAlgebra) {
  using Kind = DeviceActivity::Kind;
  EXPECT_EQ(bucket_of({Kind::kernel, "sm90_xmma_wgrad_indexed_implicit_gemm_bf16", 0, 1}), Bucket::linear_algebra);
  EXPECT_EQ(bucket_of({Kind::kernel, "convert_kernel<float>", 0, 1}), Bucket::kernel);
  EXPECT_EQ(bucket_of({Kind::kernel, "map_last<float>", 0, 1}), Bucket::kernel);
  EXPECT_EQ(bucket_of({Kind::copy, "copy", 0, 1}), Bucket::copy);
}

TEST(DeviceRows, AddUpByKernel) {
  using Kind = DeviceActivity::Kind;
  const auto rows = device_rows({{Kind::kernel, "a", 0, 10}, {Kind::kernel, "b", 10, 40}, {Kind::kernel, "a", 40, 45}});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "b");
  EXPECT_EQ(rows[1].calls, 2);
  EXPECT_DOUBLE_EQ(rows[1].seconds, 15e-9);
}

}  // namespace
}  // namespace deft::profile
