// Norms as in PyTorch; statistics in training and eval mode.
#include "nn/norm.h"

#include "nn_util.h"

namespace deft::nn {
namespace {

const State& cases() {
  static const State all = fixture("norm");
  return all;
}
void expect_case(const char* name, Module& module, bool training = true) {
  SCOPED_TRACE(name);
  module.train(training);
  expect_as_pytorch(cases().part(name), module, 80);
}
void expect_case(const char* name, Module&& module, bool training = true) { expect_case(name, module, training); }

TEST(NnNorm, BatchNorm) {
  expect_case("batch1d", BatchNorm1d(4));
  expect_case("batch1d_3d", BatchNorm1d(4, {.momentum = 0.3}));
  expect_case("batch2d", BatchNorm2d(3));
  expect_case("batch2d_eval", BatchNorm2d(3), false);
  expect_case("batch2d_plain", BatchNorm2d(3, {.eps = 1e-3, .affine = false}));
  expect_case("batch2d_untracked", BatchNorm2d(3, {.track_running_stats = false}), false);
  expect_case("batch3d", BatchNorm3d(2));
}

TEST(NnNorm, BatchNormWithoutMomentumAverages) {
  BatchNorm2d norm(3, {.momentum = std::nullopt});
  expect_as_pytorch(
      cases().part("batch2d_cumulative"), norm,
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {norm(in[0]), norm(in[1]), norm(in[2])};
      },
      80);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 3);
}

TEST(NnNorm, OthersAsInPyTorch) {
  expect_case("instance1d", InstanceNorm1d(4));
  expect_case("instance1d_unbatched", InstanceNorm1d(4, {.affine = true}));
  expect_case("instance2d", InstanceNorm2d(3, {.affine = true}));
  expect_case("instance2d_tracked", InstanceNorm2d(3, {.affine = true, .track_running_stats = true}));
  expect_case("instance2d_tracked_eval", InstanceNorm2d(3, {.track_running_stats = true}), false);
  expect_case("instance3d", InstanceNorm3d(2));
  expect_case("layer", LayerNorm(6));
  expect_case("layer_2d", LayerNorm({3, 4}, 1e-3));
  expect_case("layer_plain", LayerNorm(6, 1e-5, false));
  expect_case("rms", RMSNorm(6, 1e-6));
  expect_case("group", GroupNorm(2, 6));
  expect_case("group_plain", GroupNorm(3, 6, 1e-5, false));
}

TEST(NnNorm, TrainingForwardCountsOnceAlsoUnderNoGrad) {
  BatchNorm1d norm(2);
  Tensor x = sample({4, 2}, 1, DType::f32);
  norm(x);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  no_grad([&] { return norm(x); });
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 2);
  inference_mode([&] { return norm(x); });
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 3);
  Tensor mean = x.mean({0}), expected = mean * (1 - 0.9 * 0.9 * 0.9);
  expect_near(norm.running_mean, expected, 0x1p-23, 8, "running mean");
  norm.eval();
  norm(x);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 3);
  expect_near(norm.running_mean, expected, 0x1p-23, 8, "running mean after eval");
}

TEST(NnNorm, EvalStillGivesGradientsToItsParameters) {
  BatchNorm1d norm(2);
  norm.eval();
  norm(sample({4, 2}, 1, DType::f32)).sum().backward();
  EXPECT_TRUE(norm.weight.grad().defined());
  EXPECT_VALUES(norm.bias.grad(), 4, 4);
}

TEST(NnNorm, RunningVarianceIsUnbiased) {
  BatchNorm1d norm(1, {.momentum = 1});
  Tensor x = tensor({1.0f, 3.0f}).view({2, 1});
  Tensor y = norm(x);
  EXPECT_VALUES(norm.running_var, 2);  // (1 + 1) / (2 - 1); the normalisation divides by 2
  EXPECT_NEAR(y[0].item(), -1, 1e-5);
}

TEST(NnNorm, OneValuePerChannelIsAnErrorThatChangesNothing) {
  BatchNorm2d norm(3);
  expect_error<ValueError>([&] { norm(zeros({1, 3, 1, 1})); }, "one value per channel");
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 0);
  EXPECT_VALUES(norm.running_var, 1, 1, 1);
  norm.eval();
  EXPECT_NO_THROW(norm(zeros({1, 3, 1, 1})));
}

TEST(NnNorm, WrongInputs) {
  expect_error<ShapeError>([] { BatchNorm2d(3)(zeros({2, 3})); }, "BatchNorm2d(3): takes N,C,spatial with 3 channels");
  expect_error<ShapeError>([] { BatchNorm1d(3)(zeros({2, 4})); }, "takes N,C or N,C,L with 3 channels");
  expect_error<ShapeError>([] { InstanceNorm2d(3)(zeros({3, 4})); }, "InstanceNorm2d(3): takes");
  expect_error<ValueError>([] { GroupNorm(4, 6); }, "6 channels cannot be cut into 4 groups");
}

TEST(NnNorm, RMSNormTakesTheEpsOfTheType) {
  Tensor x = zeros({1, 4}) + 1e-4;
  RMSNorm norm(4);
  double expected = 1e-4 / std::sqrt(1e-8 + 0x1p-23);
  EXPECT_NEAR(norm(x)[0][0].item(), expected, 1e-6 * expected);
}

TEST(NnNorm, DescribesItself) {
  EXPECT_EQ(BatchNorm2d(8).describe(), "BatchNorm2d(8)");
  EXPECT_EQ(BatchNorm1d(8, {.eps = 0.01, .momentum = {}, .affine = false, .track_running_stats = false}).describe(),
            "BatchNorm1d(8, eps=0.01, momentum=none, affine=false, track_running_stats=false)");
  EXPECT_EQ(InstanceNorm2d(4, {.affine = true}).describe(), "InstanceNorm2d(4, affine=true)");
  EXPECT_EQ(LayerNorm({3, 4}).describe(), "LayerNorm([3, 4], eps=1e-05)");
  EXPECT_EQ(RMSNorm(4, 1e-6).describe(), "RMSNorm(4, eps=1e-06)");
  EXPECT_EQ(GroupNorm(2, 6).describe(), "GroupNorm(groups=2, channels=6, eps=1e-05)");
}

}  // namespace
}  // namespace deft::nn
