#include "optim/clip_grad.h"

#include <limits>

#include "optim_util.h"

namespace deft::optim {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// All the ways a norm is computed: dense f32 and bf16, f64, f16, strided, channels last, empty, without gradient.
std::vector<Tensor> some_params() {
  std::vector<Tensor> params{param({40001}, 1), param({7}, 2, bf16), param({9}, 3, f64), param({5}, 4, f16),
                             param({0}, 5),     param({4}, 6),       param({3, 4}, 7)};
  for (size_t i = 0; i < 5; ++i) give_grad(params[i], 10 + i);
  params[6].set_grad(sample({4, 3}, 8, {f32}).t());
  Tensor image = param({2, 3, 4, 4}, 9);
  image.set_grad(sample({2, 3, 4, 4}, 10, {f32}).contiguous(MemoryFormat::channels_last));
  params.push_back(image);
  return params;
}
std::vector<double> all_gradients(const std::vector<Tensor>& params) {
  std::vector<double> all;
  for (const Tensor& p : params)
    if (p.grad().defined())
      for (double x : p.grad().to_vector<double>()) all.push_back(x);
  return all;
}
double reference_norm(const std::vector<double>& x, double p) {
  double sum = 0;
  for (double v : x) sum = std::isinf(p) ? std::max(sum, std::abs(v)) : sum + std::pow(std::abs(v), p);
  return std::isinf(p) ? sum : std::pow(sum, 1 / p);
}

TEST(ClipGradNorm, ScalesAllTogether) {
  for (double p : {2.0, 1.0, 3.0, kInf}) {
    std::vector<Tensor> params = some_params();
    const std::vector<double> before = all_gradients(params);
    const double norm = reference_norm(before, p);
    // Sums of squares of blocks of 4096 in 16 lanes of f32, or a tree of the reduction.
    const double tolerance = 300 * 0x1p-24;
    EXPECT_NEAR(grad_norm(params, p) / norm, 1, tolerance) << p;
    EXPECT_NEAR(clip_grad_norm_(params, 0.5 * norm, p) / norm, 1, tolerance) << p;
    const std::vector<double> after = all_gradients(params);
    size_t i = 0;
    for (const Tensor& param : params) {
      if (!param.grad().defined()) continue;
      const double eps = param.dtype() == bf16 ? 0x1p-8 : param.dtype() == f16 ? 0x1p-11 : 0x1p-24;
      // Halves of the smallest f16 numbers are rounded too.
      for (int64_t k = 0; k < param.numel(); ++k, ++i)
        ASSERT_NEAR(after[i], before[i] / 2, (eps + tolerance + 1e-6 / norm) * std::abs(before[i]) + 0x1p-24) << i;
    }
  }
}

TEST(ClipGradNorm, LeavesSmallGradientsAlone) {
  std::vector<Tensor> params = some_params();
  const uint32_t version = params[0].grad().version();
  const std::vector<double> before = all_gradients(params);
  clip_grad_norm_(params, 1e6);
  EXPECT_EQ(all_gradients(params), before);
  EXPECT_EQ(params[0].grad().version(), version);
  EXPECT_EQ(clip_factor(1, 1.5), 1);
  EXPECT_NEAR(clip_factor(1.5, 1), 2.0 / 3, 1e-6);
  clip_grad_norm_(params, 1);
  EXPECT_GT(params[0].grad().version(), version);
}

TEST(ClipGradNorm, FrozenParametersTakeNoPart) {
  Tensor a = param({1}, 1), frozen = param({1}, 2);
  a.set_grad(full({1}, 3.0)), frozen.set_grad(full({1}, 4.0));
  frozen.requires_grad_(false);
  EXPECT_EQ(clip_grad_norm_({a, frozen}, 100), 3);
  clip_grad_norm_({a, frozen}, 1.5);
  EXPECT_VALUES(frozen.grad(), 4);
  EXPECT_NEAR(a.grad().item(), 1.5, 1e-6);
  EXPECT_EQ(clip_grad_norm_({}, 1), 0);
  EXPECT_EQ(clip_grad_norm_({}, 1, kInf), 0);
}

TEST(ClipGradNorm, NonFiniteNorms) {
  for (double bad : {kInf, double(NAN)}) {
    for (double p : {2.0, kInf}) {
      Tensor a = param({2}, 1), b = param({2}, 2);
      a.set_grad(full({2}, bad)), b.set_grad(ones({2}));
      EXPECT_THROW(clip_grad_norm_({a, b}, 1, p, true), ValueError);
      EXPECT_VALUES(b.grad(), 1, 1);
      const double norm = clip_grad_norm_({a, b}, 1, p);
      EXPECT_TRUE(std::isnan(bad) ? std::isnan(norm) : std::isinf(norm)) << p;
      EXPECT_TRUE(std::isnan(a.grad().to_vector<double>()[0]));
      Tensor swapped = param({2}, 1);
      swapped.set_grad(full({2}, bad));
      EXPECT_FALSE(std::isfinite(grad_norm({swapped, b}, p)));
    }
  }
  expect_error<ValueError>([] { clip_grad_norm_({}, -1); }, "max_norm must not be negative");
  expect_error<ValueError>([] { clip_grad_norm_({}, 1, 0); }, "must be positive");
}

TEST(ClipGradNorm, MayBeFusedIntoTheStep) {
  Tensor a = param({100}, 1), b = a.detach().clone().requires_grad_();
  SGD one({a}, {.lr = 0.1, .momentum = 0.9}), two({b}, {.lr = 0.1, .momentum = 0.9});
  give_grad(a, 5), give_grad(b, 5);
  two.step({.grad_scale = clip_factor(grad_norm({b}), 1.0)});
  clip_grad_norm_({a}, 1.0);
  one.step();
  expect_close(a.detach(), b.detach(), "", 0x1p-22);
}

TEST(ClipGradValue, LimitsEachElement) {
  Tensor a = param({3}, 1), none = param({2}, 2), frozen = param({1}, 3);
  a.set_grad(tensor<float>({-3, 0.5, 2}));
  frozen.set_grad(full({1}, 5.0)), frozen.requires_grad_(false);
  clip_grad_value_({a, none, frozen}, 1);
  EXPECT_VALUES(a.grad(), -1, 0.5, 1);
  EXPECT_VALUES(frozen.grad(), 5);
  expect_error<ValueError>([&] { clip_grad_value_({a}, -1); }, "must not be negative");
}

}  // namespace
}  // namespace deft::optim
