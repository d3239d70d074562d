// What samples cannot say about norms: running statistics under every mode, memory order, precision of statistics.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "ops/creation.h"
#include "ops/norm.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace deft {
namespace {

Tensor ramp(Shape sizes, DType t = f32) {
  int64_t n = checked_numel(sizes, t);
  return arange(0, n, 1, {f64}).mul(0.7).sin().to(t).reshape(sizes);
}
double largest_difference(const Tensor& a, const Tensor& b) { return (a.to(f64) - b.to(f64)).abs().amax().item(); }

TEST(BatchNorm, UpdatesStatisticsInEveryMode) {
  Tensor x = ramp({4, 3, 5}).requires_grad_();
  auto run = [&] {
    Tensor mean = zeros({3}), var = ones({3});
    uint32_t before = mean.version();
    Tensor y = batch_norm(x, mean, var, {}, {}, true, 0.1);
    EXPECT_GT(mean.version(), before);
    EXPECT_FALSE(mean.requires_grad());
    EXPECT_FALSE(var.requires_grad());
    return std::pair(mean, var);
  };
  auto [mean, var] = run();
  Tensor wanted_mean = x.detach().mean({0, 2}).mul(0.1);
  Tensor wanted_var = x.detach().var({0, 2}, 1).mul(0.1).add(0.9);
  EXPECT_LE(largest_difference(mean, wanted_mean), 1e-6);
  EXPECT_LE(largest_difference(var, wanted_var), 1e-6);
  no_grad([&] { EXPECT_EQ(run().first.to_vector<float>(), mean.to_vector<float>()); });
  Tensor outside_mean = zeros({3}), outside_var = ones({3});
  inference_mode([&] { batch_norm(x, outside_mean, outside_var, {}, {}, true, 0.1); });
  EXPECT_EQ(outside_mean.to_vector<float>(), mean.to_vector<float>());
  EXPECT_GT(outside_mean.version(), 0u);
}

TEST(BatchNorm, EvalLeavesStatisticsAndStillTrainsWeights) {
  Tensor x = ramp({4, 3, 5}), mean = ramp({3}), var = ones({3});
  Tensor weight = ones({3}).requires_grad_(), bias = zeros({3}).requires_grad_();
  uint32_t before = mean.version();
  Tensor y = batch_norm(x, mean, var, weight, bias, false);
  EXPECT_EQ(mean.version(), before);
  auto g = grad({y.sum()}, {weight, bias});
  EXPECT_EQ(g[1].to_vector<float>(), std::vector<float>(3, 20.0f));
  EXPECT_GT(g[0].abs().sum().item(), 0);
}

TEST(BatchNorm, F32FactorsOf16BitInputs) {
  Tensor x = ramp({4, 3, 5}, bf16), g = ramp({4, 3, 5}, bf16).add(0.3);
  auto run = [&](const Tensor& input, const Tensor& of_y) {
    Tensor in = input.detach().requires_grad_(), weight = ramp({3}).add(1).requires_grad_(),
           bias = ramp({3}).requires_grad_();
    Tensor y = batch_norm(in, {}, {}, weight, bias, true);
    std::vector<Tensor> all = grad({y}, {in, weight, bias}, {of_y});
    all.push_back(y.detach());
    return all;
  };
  auto low = run(x, g), wide = run(x.to(f32), g.to(f32));
  for (size_t i : {0, 3}) {  // rounded once, to bf16
    EXPECT_EQ(low[i].dtype(), bf16);
    EXPECT_LE(largest_difference(low[i], wide[i]), wide[i].abs().amax().item() / 256);
  }
  for (size_t i : {1, 2}) {  // never in bf16
    EXPECT_EQ(low[i].dtype(), f32);
    EXPECT_LE(largest_difference(low[i], wide[i]), 1e-5);
  }
  EXPECT_THROW(batch_norm(x, {}, {}, ramp({3}), ramp({3}, bf16), true), DTypeError);
  EXPECT_THROW(batch_norm(x.to(f32), {}, {}, ramp({3}, bf16), {}, true), DTypeError);
}

TEST(BatchNorm, RefusesStatisticsOfInferenceModeOutside) {
  Tensor mean, var;
  inference_mode([&] { mean = zeros({3}), var = ones({3}); });
  EXPECT_THROW(batch_norm(ramp({4, 3}), mean, var, {}, {}, true), InferenceError);
  EXPECT_NO_THROW(batch_norm(ramp({4, 3}), mean, var, {}, {}, false));
  EXPECT_THROW(batch_norm(ramp({4, 3}), zeros({1}).expand({3}), ones({3}), {}, {}, true), InplaceError);
}

TEST(BatchNorm, KeepsChannelsLast) {
  Tensor x = ramp({2, 3, 4, 5}).requires_grad_();
  Tensor last = x.detach().contiguous(MemoryFormat::channels_last).requires_grad_();
  Tensor a = batch_norm(x, {}, {}, {}, {}, true), b = batch_norm(last, {}, {}, {}, {}, true);
  EXPECT_TRUE(b.is_contiguous(MemoryFormat::channels_last));
  EXPECT_LE(largest_difference(a, b), 1e-6);
  Tensor u = ramp({2, 3, 4, 5}).cos();
  Tensor ga = grad({a}, {x}, {u})[0], gb = grad({b}, {last}, {u})[0];
  EXPECT_TRUE(gb.is_contiguous(MemoryFormat::channels_last));
  EXPECT_LE(largest_difference(ga, gb), 1e-6);
  EXPECT_TRUE(group_norm(last, 3).is_contiguous(MemoryFormat::channels_last));
}

TEST(BatchNorm, OneValuePerChannelIsNamed) {
  try {
    batch_norm(ramp({1, 3}), {}, {}, {}, {}, true);
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("[1, 3]"), std::string::npos);
  }
}

TEST(Norms, OfNoChannels) {
  EXPECT_EQ(instance_norm(zeros({2, 0, 4})).sizes(), (Shape{2, 0, 4}));
  EXPECT_EQ(group_norm(zeros({2, 0, 4}), 1).sizes(), (Shape{2, 0, 4}));
}

// Large images are normalised some at a time: each as if it were alone.
TEST(Norms, ImagesOfAGroupNormDoNotDependOnTheBatch) {
  NoGradGuard no_grad;
  Tensor weight = randn({8}), bias = randn({8});
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    Tensor x = randn({5, 8, 64, 64}).contiguous(format), y = group_norm(x, 4, weight, bias);
    for (int64_t i = 0; i < 5; ++i) {
      Tensor alone = group_norm(x.narrow(0, i, 1).contiguous(format), 4, weight, bias);
      EXPECT_EQ(alone.ne(y.narrow(0, i, 1)).to(DType::i64).sum().item(), 0) << i;
    }
  }
}

TEST(Norms, StatisticsOf16BitsAreWide) {
  for (DType t : {bf16, f16}) {
    Tensor x = ramp({2, 4, 300}).to(t);
    EXPECT_EQ(call<LayerNorm>(Site::current(), {{300}, 1e-5}, x, Tensor(), Tensor())[1].dtype(), f32);
    EXPECT_EQ(call<BatchNorm>(Site::current(), {true, 0.1, 1e-5}, x, Tensor(), Tensor(), Tensor(), Tensor())[2].dtype(),
              f32);
    Tensor mean = zeros({4}), var = ones({4});  // f32 statistics of a 16-bit input
    batch_norm(x, mean, var, {}, {}, true, 1);
    EXPECT_LE(largest_difference(mean, x.to(f64).mean({0, 2})), 1e-6);
  }
}

TEST(Norms, LargeOffsetsDoNotCancel) {
  Tensor x = ramp({8, 4, 64}, f64);
  Tensor far = x.add(4096).to(f32);
  double tolerance = 2 * 4096 * 0x1p-24;  // a mean of 4096 rounded to f32, over a spread of about 0.7
  Tensor want = batch_norm(far.to(f64), {}, {}, {}, {}, true);
  EXPECT_LE(largest_difference(batch_norm(far, {}, {}, {}, {}, true), want), tolerance);
  EXPECT_LE(largest_difference(group_norm(far, 2), group_norm(far.to(f64), 2)), tolerance);
  EXPECT_LE(largest_difference(layer_norm(far, {64}), layer_norm(far.to(f64), {64})), tolerance);
  Tensor last = far.unsqueeze(3).contiguous(MemoryFormat::channels_last);
  EXPECT_LE(largest_difference(batch_norm(last, {}, {}, {}, {}, true).squeeze(3), want), tolerance);
}

TEST(Norms, OnlyWhatIsNeededIsSaved) {
  Tensor x = ramp({4, 3}), weight = ones({3}), bias = zeros({3}).requires_grad_();
  Tensor y = layer_norm(x, {3}, weight, bias);
  EXPECT_EQ(y.grad_fn()->saved, 0);
  Tensor z = batch_norm(x, {}, {}, weight, bias, true);
  EXPECT_EQ(z.grad_fn()->saved, 0);
  EXPECT_EQ(grad({z.sum()}, {bias})[0].to_vector<float>(), std::vector<float>(3, 4.0f));
  EXPECT_EQ(grad({y.sum()}, {bias})[0].to_vector<float>(), std::vector<float>(3, 4.0f));
}

// An infinity counts the same wherever in a row it lies: the mean is infinite, the variance NaN.
TEST(Norm, AnInfinityAnywhereInARow) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (DType t : {f32, f64, bf16, f16})
    for (int64_t n : {3, 17, 50, 300})
      for (int64_t at : {int64_t{0}, int64_t{1}, n / 2, n - 1})
        for (double value : {kInf, -kInf}) {
          SCOPED_TRACE(std::string(name_of(t)) + " " + std::to_string(at) + " of " + std::to_string(n));
          Tensor x = rand({2, 2, n}, t), mean = zeros({2}, t), var = ones({2}, t);
          x[1][0].narrow(0, at, 1).fill_(value);
          for (bool by_instance : {true, false}) {
            mean.zero_();
            Tensor y = by_instance ? instance_norm(x, mean, var, {}, {}, true, 1.0)
                                   : batch_norm(x, mean, var, {}, {}, true, 1.0);
            EXPECT_EQ(mean[0].item(), value);
            EXPECT_TRUE(std::isfinite(mean[1].item()));
            EXPECT_TRUE(std::isnan(var[0].item()));
            EXPECT_FALSE(isnan(y).select(1, 1).any().item<bool>());
            EXPECT_TRUE(isnan(y[1][0]).all().item<bool>());
          }
          EXPECT_EQ(isnan(layer_norm(x, {n})).to(i64).sum().item<int64_t>(), n);
        }
}

}  // namespace
}  // namespace deft
