// Matmuls of one row with small weights: in panels that follow the weights.
#include <gtest/gtest.h>

#include "core/derived_cache.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "models/mlp.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

double difference(const Tensor& a, const Tensor& b) { return (a - b).abs().amax().item(); }

class PackRows : public testing::Test {
 protected:
  NoGradGuard no_grad_;
  nn::Linear layer_{40, 30};
  Compiled fast_ = compile([this](const Tensor& x) { return layer_(x).tanh(); });
  Tensor x_ = randn({1, 40});
  double error() { return difference(fast_(x_), layer_(x_).tanh()); }
};

TEST_F(PackRows, IsUsedForOneRow) {
  EXPECT_LE(error(), 1e-6);
  EXPECT_LE(error(), 1e-6);
  EXPECT_NE(fast_.explain().find("pack_rows: 1 matmuls"), std::string::npos);
  fast_(randn({2, 40}));
  EXPECT_EQ(fast_.explain().find("pack_rows: 1 matmuls"), fast_.explain().rfind("pack_rows: 1 matmuls"));
}

TEST_F(PackRows, FollowsTheWeight) {
  for (int i = 0; i < 3; ++i) fast_(x_);
  layer_.weight.mul_(-2);
  EXPECT_LE(error(), 1e-6);
  EXPECT_LE(error(), 1e-6);
  float* values = layer_.weight.data<float>();  // no version counts these writes
  for (int i = 0; i < 40 * 30; ++i) values[i] = 0.01f * static_cast<float>(i % 17);
  EXPECT_LE(error(), 1e-6);
  layer_(x_);
  EXPECT_LE(error(), 1e-6);
}

TEST_F(PackRows, GivesTheSameBitsWithoutRoom) {
  for (int i = 0; i < 3; ++i) fast_(x_);
  Tensor kept = fast_(x_).clone();
  size_t limit = derived_cache_limit();
  clear_derived_cache();
  set_derived_cache_limit(100);
  Tensor without = fast_(x_).clone();
  set_derived_cache_limit(limit);
  EXPECT_EQ(difference(kept, without), 0);
}

TEST_F(PackRows, CanBeSwitchedOff) {
  CompileOptions o;
  o.passes = graph::without({}, "pack_rows,fuse_epilogues");
  auto plain = compile([this](const Tensor& x) { return layer_(x); }, o);
  plain(x_);
  EXPECT_EQ(difference(plain(x_), layer_(x_)), 0);
}

TEST(PackRowsOfModels, Mlp) {
  models::Mlp mlp({20, 64, 33, 10});
  mlp.eval();
  InferenceModeGuard inference;
  auto fast = compile([&](const Tensor& x) { return mlp(x); });
  Tensor x = randn({1, 20});
  for (int i = 0; i < 3; ++i) EXPECT_LE(difference(fast(x), mlp(x)), 1e-5);
}

}  // namespace
}  // namespace deft
