#include "optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/all_ops.h"
#include "optim/adam.h"
#include "optim/clip_grad.h"
#include "optim/sgd.h"

namespace deft::optim {
namespace {

Tensor parameter(double value) { return full({3}, value, with_grad()); }
void give_gradient(const Tensor& p, double value) { p.set_grad(full({3}, value)); }

TEST(GradScaler, StepsAsWithoutScaling) {
  Tensor a = parameter(1), b = parameter(1);
  Adam plain({a}, {.lr = 0.1}), scaled({b}, {.lr = 0.1});
  GradScaler scaler;
  for (int i = 0; i < 5; ++i) {
    plain.zero_grad();
    scaled.zero_grad();
    (a * a).sum().backward();
    plain.step();
    scaler.scale((b * b).sum()).backward();
    ScaledStep done = scaler.step(scaled);
    scaler.update();
    EXPECT_TRUE(done.stepped);
    EXPECT_FALSE(done.found_inf);
    EXPECT_EQ(done.scale, 65536);
    EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());  // powers of two scale exactly
  }
}

TEST(GradScaler, SkipsAndSaysWhichParameter) {
  for (double bad : {INFINITY, -INFINITY, NAN}) {
    Tensor a = parameter(1), b = parameter(2);
    Adam adam({a, b});
    GradScaler scaler({.growth_interval = 2});
    give_gradient(a, 1);
    give_gradient(b, bad);
    ScaledStep done = scaler.step(adam);
    EXPECT_FALSE(done.stepped);
    EXPECT_TRUE(done.found_inf);
    EXPECT_EQ(done.first_bad, 1);
    EXPECT_NE(done.to_string().find("parameter 1"), std::string::npos);
    scaler.update();
    EXPECT_EQ(scaler.current_scale(), 32768);
    EXPECT_EQ(a.to_vector<float>(), std::vector<float>(3, 1));
    EXPECT_EQ(adam.state().tensors.size(), Adam({a, b}).state().tensors.size());  // nothing was made for it either
  }
}

TEST(GradScaler, GrowsAfterCleanSteps) {
  Tensor a = parameter(1);
  SGD sgd({a}, {.lr = 0});
  GradScaler scaler({.scale = 8, .growth_interval = 2});
  auto run = [&](double gradient) {
    give_gradient(a, gradient);
    scaler.step(sgd);
    scaler.update();
    return scaler.current_scale();
  };
  EXPECT_EQ(run(1), 8);
  EXPECT_EQ(run(1), 16);
  EXPECT_EQ(run(1), 16);
  EXPECT_EQ(run(INFINITY), 8);  // and the count starts anew
  EXPECT_EQ(run(1), 8);
  EXPECT_EQ(run(1), 16);
}

TEST(GradScaler, ClipsUnscaledGradients) {
  Tensor a = parameter(0);
  SGD sgd({a}, {.lr = 1});
  GradScaler scaler({.scale = 1024});
  scaler.scale((a * 4).sum()).backward();
  scaler.unscale_(sgd);
  EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>(3, 4));
  clip_grad_norm_({a}, std::sqrt(3.0));
  EXPECT_TRUE(scaler.step(sgd).stepped);
  for (float v : a.to_vector<float>()) EXPECT_NEAR(v, -1, 1e-5);
}

TEST(GradScaler, SeveralOptimizersOneUpdate) {
  Tensor a = parameter(1), b = parameter(1);
  SGD first({a}, {.lr = 1}), second({b}, {.lr = 1});
  GradScaler scaler({.scale = 2});
  give_gradient(a, INFINITY);
  give_gradient(b, 2);
  EXPECT_FALSE(scaler.step(first).stepped);
  EXPECT_TRUE(scaler.step(second).stepped);
  scaler.update();
  EXPECT_EQ(scaler.current_scale(), 1);
  EXPECT_EQ(b.to_vector<float>(), std::vector<float>(3, 0));
}

TEST(GradScaler, WrongOrderIsNamed) {
  Tensor a = parameter(1);
  SGD sgd({a}, {.lr = 1});
  GradScaler scaler;
  EXPECT_THROW(scaler.step(sgd), GradError);  // no gradients at all
  EXPECT_THROW(scaler.update(), GradError);
  give_gradient(a, 1);
  scaler.unscale_(sgd);
  EXPECT_THROW(scaler.unscale_(sgd), GradError);
  scaler.step(sgd);
  EXPECT_THROW(scaler.step(sgd), GradError);
  EXPECT_THROW(scaler.unscale_(sgd), GradError);
  scaler.update();
  EXPECT_NO_THROW(scaler.unscale_(sgd));
}

TEST(GradScaler, RefusesF16Gradients) {
  Tensor a = full({3}, 1, with_grad(DType::f16));
  SGD sgd({a}, {.lr = 1});
  GradScaler scaler;
  a.set_grad(full({3}, 1, DType::f16));
  EXPECT_THROW(scaler.unscale_(sgd), DTypeError);
}

TEST(GradScaler, Disabled) {
  Tensor a = parameter(1);
  SGD sgd({a}, {.lr = 1});
  GradScaler scaler({.enabled = false});
  scaler.scale(a.sum()).backward();
  EXPECT_TRUE(scaler.step(sgd).stepped);
  scaler.update();
  EXPECT_EQ(a.to_vector<float>(), std::vector<float>(3, 0));
}

TEST(GradScaler, StateComesBack) {
  Tensor a = parameter(1);
  SGD sgd({a}, {.lr = 0});
  GradScaler one({.scale = 8, .growth_interval = 3}), two;
  give_gradient(a, 1);
  one.step(sgd);
  one.update();
  two.load_state(one.state());
  for (int i = 0; i < 2; ++i) {
    for (GradScaler* s : {&one, &two}) {
      s->step(sgd);
      s->update();
    }
    EXPECT_EQ(one.current_scale(), two.current_scale());
  }
  EXPECT_EQ(two.current_scale(), 16);
}

TEST(GradScaler, BadOptions) {
  EXPECT_THROW(GradScaler({.scale = 0}), ValueError);
  EXPECT_THROW(GradScaler({.growth = 1}), ValueError);
  EXPECT_THROW(GradScaler({.backoff = 1}), ValueError);
}

}  // namespace
}  // namespace deft::optim
