#include "optim/ema.h"

#include "optim_util.h"

namespace deft::optim {
namespace {

TEST(EMA, AveragesWithDecay) {
  Tensor p = tensor<float>({1, 2}).requires_grad_();
  ExponentialMovingAverage ema({p}, {.decay = 0.75});
  no_grad([&] { p.copy_(tensor<float>({5, -2})); });
  ema.update();
  EXPECT_VALUES(ema.averages()[0], 2, 1);
  ema.update();
  EXPECT_VALUES(ema.averages()[0], 2.75, 0.25);
  EXPECT_VALUES(p, 5, -2);
  EXPECT_EQ(ema.updates(), 2);
  EXPECT_FALSE(ema.averages()[0].requires_grad());
  EXPECT_EQ(ema.averages()[0].memory_category(), MemoryCategory::optimizer);
}

TEST(EMA, WarmUpForgetsTheBeginning) {
  Tensor p = zeros({1}, with_grad(f64));
  ExponentialMovingAverage ema({p}, {.decay = 0.5, .warmup = true});
  EXPECT_DOUBLE_EQ(ema.decay(), 2.0 / 11);
  no_grad([&] { p.fill_(1); });
  ema.update();
  EXPECT_DOUBLE_EQ(ema.averages()[0].item(), 9.0 / 11);
  for (int i = 0; i < 20; ++i) ema.update();
  EXPECT_EQ(ema.decay(), 0.5);
}

TEST(EMA, SwapRestoresBitForBit) {
  for (DType dtype : {f32, f64, bf16}) {
    Tensor p = param({33}, 1, dtype), q = param({2, 3, 2, 2}, 2, dtype);
    q = q.detach().contiguous(MemoryFormat::channels_last).requires_grad_();
    ExponentialMovingAverage ema({p, q}, {.decay = 0.9});
    no_grad([&] { p.mul_(3), q.add_(0.1); });
    ema.update();
    const Tensor p0 = p.detach().clone(), q0 = q.detach().clone(), average = ema.averages()[0].clone();
    {
      auto guard = ema.swap_in();
      EXPECT_TRUE(same_bits(p, average.to(dtype)));
      EXPECT_FALSE(same_bits(p, p0));
      EXPECT_TRUE(p.requires_grad() && p.is_leaf());
      expect_error<ValueError>([&] { ema.update(); }, "swapped in");
      expect_error<ValueError>([&] { auto second = ema.swap_in(); }, "already");
      no_grad([&] { p.zero_(); });
    }
    EXPECT_TRUE(same_bits(p, p0));
    EXPECT_TRUE(same_bits(q, q0));
    EXPECT_TRUE(same_bits(ema.averages()[0], average));
    ema.update();
  }
}

TEST(EMA, SwapIsSeenBySavedGraphsAndEndsWithExceptions) {
  Tensor w = param({3}, 1), x = param({3}, 2);
  ExponentialMovingAverage ema({w});
  Tensor loss = (w * x).sum();
  const Tensor before = w.detach().clone();
  try {
    auto guard = ema.swap_in();
    no_grad([&] { w.zero_(); });
    throw ValueError("stop");
  } catch (const ValueError&) {
  }
  EXPECT_TRUE(same_bits(w, before));
  EXPECT_THROW(loss.backward(), InplaceError);
}

TEST(EMA, SixteenBitsAreAveragedInF32) {
  Tensor p = ones({1}, with_grad(bf16));
  ExponentialMovingAverage ema({p}, {.decay = 0.999});
  no_grad([&] { p.fill_(2); });
  for (int i = 0; i < 3; ++i) ema.update();
  EXPECT_EQ(ema.averages()[0].dtype(), f32);
  EXPECT_NEAR(ema.averages()[0].item(), 2 - std::pow(0.999, 3), 1e-6);
}

TEST(EMA, LivesOnAfterInferenceMode) {
  Tensor p = param({3}, 1);
  std::unique_ptr<ExponentialMovingAverage> ema;
  inference_mode([&] {
    ema = std::make_unique<ExponentialMovingAverage>(std::vector<Tensor>{p});
    auto guard = ema->swap_in();
  });
  ema->update();
  EXPECT_FALSE(ema->averages()[0].is_inference());
  EXPECT_EQ((p * p).sum().requires_grad(), true);
}

// Each of several, floating or not, in every call that goes over them.
TEST(EMA, SeveralParameters) {
  Tensor count = zeros({2}, i64);
  std::vector<Tensor> params{param({3}, 1), param({2, 2}, 2, f64), count, param({5}, 3, bf16), param({1}, 4)};
  const size_t n = params.size();
  auto copies = [](const std::vector<Tensor>& from) {
    std::vector<Tensor> all;
    for (const Tensor& t : from) all.push_back(t.detach().clone());
    return all;
  };
  auto expect_equal = [&](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i].to(b[i].dtype()), b[i])) << i;
  };
  ExponentialMovingAverage ema(params, {.decay = 0.5});
  const std::vector<Tensor> start = copies(ema.averages());
  no_grad([&] {
    for (size_t i = 0; i < n; ++i) params[i].fill_(static_cast<double>(8 + i));
  });
  ema.update();
  for (size_t i = 0; i < n; ++i) {
    const double now = static_cast<double>(8 + i);
    const Tensor want = i == 2 ? full({2}, now, i64) : start[i] + (now - start[i]) * 0.5;
    expect_close(ema.averages()[i].to(f64), want.to(f64), std::to_string(i), 0x1p-22);
  }
  const std::vector<Tensor> trained = copies(params), averages = copies(ema.averages());
  {
    auto guard = ema.swap_in();
    expect_equal(averages, params);
  }
  expect_equal(trained, params);
  const State state = ema.state();
  ASSERT_EQ(state.tensors.size(), n);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(state.tensors[i].name, std::to_string(i));
    EXPECT_TRUE(state.tensors[i].tensor.is_same(ema.averages()[i]));
  }
  ExponentialMovingAverage other(params);
  other.load_state(state);
  expect_equal(other.averages(), averages);
  ema.copy_to_params();
  expect_equal(averages, params);
}

TEST(EMA, IntegerBuffersAreCopied) {
  Tensor count = zeros({1}, i64);
  ExponentialMovingAverage ema({count});
  count.fill_(7);
  ema.update();
  EXPECT_EQ(ema.averages()[0].item<int64_t>(), 7);
}

TEST(EMA, StateRoundTrip) {
  Tensor p = param({5}, 1), q = param({5}, 2);
  const EMAOptions options{.decay = 0.9, .warmup = true};
  ExponentialMovingAverage a({p}, options), b({q}, options);
  for (uint64_t i = 0; i < 4; ++i) {
    no_grad([&] { p.copy_(sample({5}, 20 + i, {f32})); });
    a.update();
  }
  b.load_state(a.state());
  EXPECT_TRUE(same_bits(a.averages()[0], b.averages()[0]));
  EXPECT_EQ(b.updates(), 4);
  no_grad([&] { q.copy_(p); });
  a.update(), b.update();
  EXPECT_TRUE(same_bits(a.averages()[0], b.averages()[0]));
  ExponentialMovingAverage other({param({4}, 1)});
  expect_error<ValueError>([&] { other.load_state(a.state()); }, "average 0 is [5]");
  a.copy_to_params();
  EXPECT_TRUE(same_bits(p, a.averages()[0]));
  expect_error<ValueError>([&] { ExponentialMovingAverage({p}, {.decay = 2}); }, "[0, 1]");
}

}  // namespace
}  // namespace deft::optim
