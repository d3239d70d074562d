// Pooling as in PyTorch.
#include "nn/pool.h"

#include "nn_util.h"
#include "runtime/memory.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("pool");
  return all;
}
void expect_case(const char* name, Module&& module) {
  SCOPED_TRACE(name);
  expect_as_pytorch(cases().part(name), module, 27);
}

TEST(NnPool, Max) {
  expect_case("max1d", MaxPool1d(3, {.stride = 2, .padding = 1}));
  expect_case("max2d", MaxPool2d(2));
  expect_case("max2d_full",
              MaxPool2d({3, 2}, {.stride = Sizes{2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .ceil_mode = true}));
  expect_case("max3d", MaxPool3d(2, {.stride = 1}));
  MaxPool2d pool(2);
  expect_as_pytorch(
      cases().part("max2d_indices"), pool,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        auto [values, indices] = pool.forward_with_indices(in[0]);
        return {values, indices};
      },
      1);
}

// Positions are eight bytes each, and only backward reads them.
TEST(NnPool, NoPositionsWithoutGradients) {
  MaxPool2d pool(2);
  AdaptiveMaxPool2d adaptive(16);
  Tensor x = sample({1, 16, 32, 32}, 1, DType::f32), flat = sample({16, 32, 32}, 1, DType::f32);
  const int64_t values = 16 * 16 * 16 * 4;
  auto growth = [](auto&& f) {
    MemoryScope peak;
    Tensor y = f();
    return peak.peak_growth();
  };
  EXPECT_LT(growth([&] { return pool(x); }), values * 2);
  EXPECT_LT(growth([&] { return adaptive(x); }), values * 2);
  EXPECT_LT(growth([&] { return pool(flat); }), values * 2);
  Tensor leaf = x.clone().requires_grad_();
  EXPECT_GE(growth([&] { return pool(leaf); }), values * 3);
  NoGradGuard no_grad;
  EXPECT_LT(growth([&] { return pool(leaf); }), values * 2);
  EXPECT_EQ(deft::values(pool(leaf)), deft::values(pool.forward_with_indices(leaf)[0]));
}

TEST(NnPool, Average) {
  expect_case("avg1d", AvgPool1d(3, {.stride = 2, .padding = 1}));
  expect_case("avg2d", AvgPool2d(2));
  expect_case("avg2d_full", AvgPool2d(3, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}));
  expect_case("avg2d_divisor", AvgPool2d(2, {.divisor_override = 3}));
  expect_case("avg3d", AvgPool3d(2));
}

TEST(NnPool, Adaptive) {
  expect_case("adaptive_avg1d", AdaptiveAvgPool1d(3));
  expect_case("adaptive_avg2d", AdaptiveAvgPool2d({3, 2}));
  expect_case("adaptive_avg3d", AdaptiveAvgPool3d(2));
  expect_case("adaptive_max1d", AdaptiveMaxPool1d(3));
  expect_case("adaptive_max2d", AdaptiveMaxPool2d({3, 2}));
  expect_case("adaptive_max3d", AdaptiveMaxPool3d(2));
}

TEST(NnPool, DescribesItself) {
  EXPECT_EQ(MaxPool2d(2).describe(), "MaxPool2d(kernel=2, stride=2)");
  EXPECT_EQ(AvgPool1d(3, {.stride = 2, .padding = 1, .count_include_pad = false}).describe(),
            "AvgPool1d(kernel=3, stride=2, padding=1, count_include_pad=false)");
  EXPECT_EQ(AdaptiveAvgPool2d({3, 2}).describe(), "AdaptiveAvgPool2d(output=[3, 2])");
}

}  // namespace
}  // namespace deft::nn
