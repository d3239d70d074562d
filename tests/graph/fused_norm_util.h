// fused_batch_norm and its gradient against the ops that they stand for, on any device: the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/core_util.h"
#include "core/grad_mode.h"
#include "ops/all_ops.h"
#include "optim/optim_util.h"

namespace deft {

struct NormCase {
  Shape sizes;
  bool last;     // channels innermost
  bool factors;  // weight and bias, and running statistics
};
inline std::vector<NormCase> norm_cases() {
  return {{{4, 8, 6, 6}, false, true},  {{4, 8, 6, 6}, true, true},   {{3, 5, 7, 3}, false, false},
          {{3, 5, 7, 3}, true, true},   {{2, 70, 33, 9}, true, true}, {{2, 3, 33, 32}, false, true},
          {{40, 64}, false, true},      {{5, 19, 4}, false, true},    {{2, 530, 3, 2}, true, false},
          {{1, 16, 70, 70}, true, true}};
}

class FusedNormCheck {
 public:
  FusedNormCheck(const NormCase& c, DType dtype, Device device) : dtype_(dtype), device_(device), last_(c.last) {
    x_ = made(c.sizes, 2, 0.25), g_ = made(c.sizes), other_ = made(c.sizes), more_ = made(c.sizes);
    if (!c.factors) return;
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    auto channels = [&](double offset) { return (randn({c.sizes[1]}) + offset).to(wide).to(device); };
    weight_ = channels(1), bias_ = channels(0), running_mean_ = channels(0), running_var_ = channels(3);
    weight_.select(0, 0).fill_(0);  // results that are exactly zero, of which no gradient comes back
    bias_.select(0, 0).fill_(0);
    weight_.select(0, 1).fill_(dtype == DType::f16 ? 2e-8 : 4e-41);  // and some that only become so when stored
    bias_.select(0, 1).fill_(0);
  }

  void run(const std::string& what) {
    for (bool residual : {false, true}) {
      const std::string name = what + (residual ? " with a residual" : " alone");
      Tensor means[2], vars[2];
      for (int i : {0, 1}) means[i] = copy_of(running_mean_), vars[i] = copy_of(running_var_);
      const Tensor other = residual ? other_ : Tensor();
      auto single = call<BatchNorm>(Site::current(), kParams, x_, weight_, bias_, means[0], vars[0]);
      auto fused = call<FusedBatchNorm>(Site::current(), kParams, x_, weight_, bias_, means[1], vars[1], other);
      const Tensor y = (residual ? single[0] + other : single[0]).relu();
      expect_same(fused[0], y, name + ": y");
      expect_same(fused[1], single[1], name + ": mean");
      expect_same(fused[2], single[2], name + ": rstd");
      expect_same(means[1], means[0], name + ": running mean");
      expect_same(vars[1], vars[0], name + ": running variance");
      if (!residual) gradients(single[1], single[2], fused[3], Tensor(), Tensor(), y, name + ", from x");
      gradients(single[1], single[2], Tensor(), y, Tensor(), y, name + ", from y");
      gradients(single[1], single[2], Tensor(), y, more_, y, name + ", from y, of a sum");
    }
  }

 private:
  static constexpr BatchNorm::Params kParams{true, 0.1, 1e-5};

  Tensor made(const Shape& sizes, double scale = 1, double offset = 0) const {
    Tensor t = (randn(sizes) * scale + offset).to(dtype_).to(device_);
    return last_ ? t.contiguous(MemoryFormat::channels_last) : t;
  }
  static Tensor copy_of(const Tensor& t) { return t.defined() ? t.clone() : t; }
  static void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
    ASSERT_EQ(got.defined(), want.defined()) << what;
    EXPECT_TRUE(!got.defined() || optim::same_bits(got.to(kCPU), want.to(kCPU))) << what;
  }
  void gradients(const Tensor& mean, const Tensor& rstd, const Tensor& affine, const Tensor& y, const Tensor& more,
                 const Tensor& result, const std::string& what) const {
    const DType factors = weight_.defined() ? weight_.dtype() : DType::f32;
    for (int wanted : {7, 6, 1}) {
      BatchNormBackward::Params p{true, 1e-5, static_cast<uint8_t>(wanted), factors};
      const Tensor sum = more.defined() ? g_ + more : g_;
      const Tensor masked = sum.masked_fill(result <= 0, 0);
      auto single = call<BatchNormBackward>(Site::current(), p, masked, x_, weight_, mean, rstd);
      auto fused = call<FusedBatchNormBackward>(Site::current(), p, g_, x_, weight_, mean, rstd, affine, y, more);
      for (size_t i = 0; i < 3; ++i) expect_same(fused[i], single[i], what + ", gradient " + std::to_string(i));
      if (y.defined()) expect_same(fused[3], masked, what + ", before the relu");
    }
  }

  DType dtype_;
  Device device_;
  bool last_;
  Tensor x_, g_, other_, more_, weight_, bias_, running_mean_, running_var_;
};

inline void check_fused_norms(Device device) {
  NoGradGuard guard;
  RngScope random({5, 0});
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const NormCase& c : norm_cases())
      FusedNormCheck(c, dtype, device)
          .run(std::string(name_of(dtype)) + to_string(c.sizes) + (c.last ? " channels last" : ""));
}

// NaN and infinities go through as they do one by one.
inline void check_fused_norms_keep_nan(Device device) {
  NoGradGuard guard;
  Tensor x = sample({3, 4, 5, 5}, 3, DType::f32), residual = sample({3, 4, 5, 5}, 4, DType::f32);
  x.select(1, 1).select(0, 0).fill_(std::nan(""));
  residual.select(1, 2).select(0, 1).fill_(std::nan(""));
  residual.select(1, 3).select(0, 1).fill_(-INFINITY);
  x = x.to(device), residual = residual.to(device);
  BatchNorm::Params p{true, 0.1, 1e-5};
  Tensor none;
  auto single = call<BatchNorm>(Site::current(), p, x, none, none, none, none);
  auto fused = call<FusedBatchNorm>(Site::current(), p, x, none, none, none, none, residual);
  Tensor want = (single[0] + residual).relu().to(kCPU), got = fused[0].to(kCPU);
  EXPECT_GT((want != want).to(DType::f32).sum().item(), 25);
  EXPECT_TRUE(optim::same_bits((got != got).to(DType::f32), (want != want).to(DType::f32)));
  EXPECT_TRUE(optim::same_bits(got.masked_fill((got != got), 0), want.masked_fill((want != want), 0)));
  // A NaN result lets its gradient pass.
  BatchNormBackward::Params q{true, 1e-5, kGradBias, DType::f32};
  Tensor g = full({3, 4, 5, 5}, 1, {DType::f32, device});
  auto grads = call<FusedBatchNormBackward>(Site::current(), q, g, x, none, fused[1], fused[2], none, fused[0], none);
  EXPECT_TRUE(optim::same_bits(grads[3].to(kCPU), ones({3, 4, 5, 5}).masked_fill(want <= 0, 0)));
}

}  // namespace deft
