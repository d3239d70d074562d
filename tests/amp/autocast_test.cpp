#include "amp/autocast.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "core/checkpoint.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "ops/all_ops.h"
#include "runtime/cpu_isa.h"

namespace deft {
namespace {

Tensor input(IntList sizes, uint64_t seed) {
  RngScope rng({seed, 0});
  return randn(sizes);
}
double largest_difference(const Tensor& a, const Tensor& b) {
  return (a.to(DType::f64) - b.to(DType::f64)).abs().amax().item();
}

TEST(Autocast, ProductsRunInLowPrecision) {
  Tensor x = input({8, 16}, 1), w = input({4, 16}, 2);
  Tensor exact = linear(x, w);
  AutocastGuard guard(DType::bf16);
  Tensor y = linear(x, w);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(matmul(x, w.t()).dtype(), DType::bf16);
  EXPECT_EQ(conv2d(input({1, 3, 8, 8}, 3), input({2, 3, 3, 3}, 4)).dtype(), DType::bf16);
  // 16 products of numbers rounded to 8 bits, then the sum rounded.
  EXPECT_LE(largest_difference(y, exact), 16 * 3 * 4.0 / 256);
  EXPECT_GT(largest_difference(y, exact), 0);
}

TEST(Autocast, RangeNeedsF32) {
  Tensor x = input({4, 8}, 1).to(DType::bf16);
  AutocastGuard guard(DType::bf16);
  EXPECT_EQ(softmax(x, -1).dtype(), DType::f32);
  EXPECT_EQ(layer_norm(x, {8}).dtype(), DType::f32);
  EXPECT_EQ(exp(x).dtype(), DType::f32);
  EXPECT_EQ(sum(x).dtype(), DType::f32);
  EXPECT_EQ(cross_entropy(x, randint(0, 8, {4})).dtype(), DType::f32);
}

// As from a copy of the logits in f32, which is never made, but for the order of sums; also where they are
// differentiated twice.
TEST(Autocast, CrossEntropyTakesLogitsAsTheyAre) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    Tensor x = (input({6, 40}, 1) * 3).to(dtype), target = randint(0, 40, {6});
    Tensor wide = x.detach().requires_grad_(), narrow = x.detach().requires_grad_();
    Tensor want = cross_entropy(wide.to(DType::f32), target, {.ignore_index = 3, .label_smoothing = 0.1});
    Tensor want_grad = grad({want}, {wide}, {}, {.create_graph = true})[0];
    AutocastGuard guard(dtype);
    Tensor loss = cross_entropy(narrow, target, {.ignore_index = 3, .label_smoothing = 0.1});
    Tensor found_grad = grad({loss}, {narrow}, {}, {.create_graph = true})[0];
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_EQ(found_grad.dtype(), dtype);
    EXPECT_LE(largest_difference(loss, want), 1e-5);
    EXPECT_LE(largest_difference(found_grad, want_grad), dtype == DType::bf16 ? 0x1p-10 : 0x1p-13);
    Tensor again = grad({(found_grad * found_grad).to(DType::f32).sum()}, {narrow})[0];
    Tensor want_again = grad({(want_grad * want_grad).to(DType::f32).sum()}, {wide})[0];
    EXPECT_LE(largest_difference(again, want_again), 0.01);
  }
}

TEST(Autocast, OthersTakeTheWidestType) {
  Tensor low = input({4}, 1).to(DType::bf16), wide = input({4}, 2);
  AutocastGuard guard(DType::bf16);
  EXPECT_EQ((low + low).dtype(), DType::bf16);
  EXPECT_EQ((low + wide).dtype(), DType::f32);
  EXPECT_EQ(relu(low).dtype(), DType::bf16);
  EXPECT_EQ(relu(wide).dtype(), DType::f32);
}

// The list of ops that need range is that of PyTorch on CUDA.
TEST(Autocast, RangeNeedsF32AsInPyTorch) {
  Tensor x = (input({4, 8}, 1).abs() + 0.5).to(DType::bf16);
  AutocastGuard guard(DType::bf16);
  const std::pair<const char*, Tensor> found[] = {{"pow", pow(x, 2)},
                                                  {"pow of a number", pow(2, x)},
                                                  {"pow of two", pow(x, x)},
                                                  {"1 / x", 1 / x},
                                                  {"reciprocal", reciprocal(x)},
                                                  {"cumsum", cumsum(x, 0)},
                                                  {"cumprod", cumprod(x, 0)},
                                                  {"softplus", softplus(x)},
                                                  {"rsqrt", rsqrt(x)},
                                                  {"prod", prod(x)},
                                                  {"norm", norm(x)},
                                                  {"log1p", log1p(x)},
                                                  {"erfinv", erfinv(x * 0.25)},
                                                  {"log_softmax", log_softmax(x, 0)}};
  for (const auto& [name, y] : found) EXPECT_EQ(y.dtype(), DType::f32) << name;
  EXPECT_EQ((x / x).dtype(), DType::bf16);
  EXPECT_EQ((x / 2).dtype(), DType::bf16);
  Tensor wide = x.to(DType::f32);
  EXPECT_EQ(largest_difference(1 / x, 1 / wide), 0);
  EXPECT_EQ(largest_difference(pow(x, 3), pow(wide, 3)), 0);
}

TEST(Autocast, SumsWithProductsAndEinsumMixTypes) {
  Tensor x = input({4, 6}, 1), a = input({4, 5}, 2), b = input({5, 6}, 3), low = b.to(DType::bf16);
  Tensor want = addmm(x, a, b), product = matmul(a, b);
  AutocastGuard guard(DType::bf16);
  for (const Tensor& right : {b, low}) {
    Tensor y = addmm(x, a, right), z = baddbmm(x.unsqueeze(0), a.unsqueeze(0), right.unsqueeze(0));
    Tensor e = einsum("ij,jk->ik", {a, right}), t = tensordot(a, right, 1);
    for (const Tensor& found : {y, z, e, t}) EXPECT_EQ(found.dtype(), DType::bf16);
    EXPECT_LE(largest_difference(y, want), 0.2);
    EXPECT_LE(largest_difference(z.squeeze(0), want), 0.2);
    EXPECT_LE(largest_difference(e, product), 0.2);
    EXPECT_LE(largest_difference(t, product), 0.2);
  }
  EXPECT_EQ(einsum("ij->ji", {x}).dtype(), DType::f32);
  Tensor w = b.detach().requires_grad_();
  addmm(x, a, w, 1, 2).sum().backward();
  EXPECT_EQ(w.grad().dtype(), DType::f32);
}

TEST(Autocast, LeavesF64AndInPlaceAlone) {
  Tensor a = input({4, 4}, 1).to(DType::f64), sum = input({4, 4}, 2), b = input({4, 4}, 3);
  AutocastGuard guard(DType::bf16);
  EXPECT_EQ(matmul(a, a).dtype(), DType::f64);
  sum += b;
  EXPECT_EQ(sum.dtype(), DType::f32);
}

TEST(Autocast, F16AndOff) {
  Tensor x = input({4, 4}, 1);
  AutocastGuard outer(DType::f16);
  EXPECT_EQ(matmul(x, x).dtype(), DType::f16);
  {
    AutocastGuard off(DType::f32);
    EXPECT_FALSE(is_autocast_enabled());
    EXPECT_EQ(matmul(x, x).dtype(), DType::f32);
    AutocastGuard inner(DType::bf16);
    EXPECT_EQ(matmul(x, x).dtype(), DType::bf16);
  }
  EXPECT_EQ(matmul(x, x).dtype(), DType::f16);
  EXPECT_EQ(autocast_dtype(), DType::f16);
}

TEST(Autocast, RefusesOtherTypes) { EXPECT_THROW(AutocastGuard(DType::i32), DTypeError); }

TEST(Autocast, GradientsArriveInTheParametersType) {
  Tensor x = input({8, 16}, 1), w = input({4, 16}, 2).requires_grad_();
  {
    AutocastGuard guard(DType::bf16);
    linear(x, w).sum().backward();  // inside the guard too: backward does not cast
  }
  ASSERT_TRUE(w.grad().defined());
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  Tensor expected = x.to(DType::bf16).to(DType::f32).sum({0}).expand({4, 16});
  EXPECT_LE(largest_difference(w.grad(), expected), 8 * 4.0 / 256);
}

TEST(Autocast, BackwardComputesInTheTypesOfForward) {
  Tensor x = input({8, 16}, 1), w = input({4, 16}, 2).requires_grad_();
  linear(x, w).square().sum().backward();
  Tensor plain = w.grad().clone();
  w.zero_grad();
  Tensor loss = linear(x, w).square().sum();
  AutocastGuard guard(DType::bf16);
  loss.backward();
  EXPECT_EQ(largest_difference(plain, w.grad()), 0);
}

// PyTorch's oldest open autocast bug: a cast made under no_grad is found again with gradients on.
TEST(Autocast, NoGradBeforeGradKeepsGradients) {
  Tensor x = input({8, 16}, 1), w = input({64, 16}, 2).requires_grad_();
  AutocastGuard guard(DType::bf16);
  for (int i = 0; i < 3; ++i) {
    NoGradGuard off;
    linear(x, w);
  }
  {
    InferenceModeGuard inference;
    linear(x, w);
  }
  linear(x, w).sum().backward();
  ASSERT_TRUE(w.grad().defined());
  EXPECT_GT(w.grad().abs().sum().item(), 0);
}

TEST(Autocast, SeesInPlaceUpdates) {
  Tensor x = input({8, 16}, 1), w = input({64, 16}, 2).requires_grad_();
  AutocastGuard guard(DType::bf16);
  NoGradGuard off;
  for (int i = 0; i < 4; ++i) {
    Tensor before = linear(x, w);
    EXPECT_EQ(largest_difference(before, linear(x, w)), 0);
    w.mul_(2);
    EXPECT_EQ(largest_difference(linear(x, w), before * 2), 0);  // a power of two: exact
    w.detach().view({1024}).mul_(0.5);                           // through an alias
    EXPECT_EQ(largest_difference(linear(x, w), before), 0);
  }
}

TEST(Autocast, WeightsAreConvertedOnceInEvaluation) {
  Tensor x = input({4, 256}, 1), w = input({256, 256}, 2).requires_grad_();
  auto conversions = [&] {  // of the weight: the input is converted every time
    AutocastReport report;
    AutocastGuard guard(DType::bf16);
    linear(x, w);
    return report.rows()[0].casts - 1;
  };
  {
    NoGradGuard off;
    conversions(), conversions();  // seen, kept
    EXPECT_EQ(conversions(), 0);
    {
      InferenceModeGuard inference;
      EXPECT_EQ(conversions(), 0);
    }
    w.mul_(0.5);
    EXPECT_EQ(conversions(), 1);
  }
  EXPECT_EQ(conversions(), 1);  // with gradients every use has its own
  EXPECT_EQ(conversions(), 1);
}

TEST(Autocast, TwoUsesAccumulate) {
  Tensor x = input({8, 16}, 1), w = input({16, 16}, 2).requires_grad_();
  {
    AutocastGuard guard(DType::bf16);
    Tensor y = linear(linear(x, w), w);
    y.sum().backward();
  }
  Tensor low = w.detach().to(DType::bf16).to(DType::f32).requires_grad_();
  linear(linear(x, low), low).sum().backward();
  EXPECT_LE(largest_difference(w.grad(), low.grad()), 0.05 * low.grad().abs().amax().item());
}

TEST(Autocast, CheckpointComputesTheSame) {
  Tensor x = input({8, 16}, 1).requires_grad_(), w = input({16, 16}, 2).requires_grad_();
  auto f = [&](const Tensors& in) { return Tensors{relu(linear(in[0], w))}; };
  AutocastGuard guard(DType::bf16);
  f({x})[0].sum().backward();
  Tensor plain = w.grad().clone();
  w.zero_grad();
  Tensor loss = checkpoint(f, {x})[0].sum();
  {
    AutocastGuard off(DType::f32);
    loss.backward();
  }
  EXPECT_EQ(largest_difference(plain, w.grad()), 0);
}

TEST(Autocast, ChoiceLooksAtTheCpu) {
  AutocastChoice choice = choose_autocast();
  EXPECT_FALSE(choice.reason.empty());
  IsaGuard lowest(isa_choice().levels[0].name);
  choice = choose_autocast();
  EXPECT_EQ(choice.dtype, DType::f32);
  EXPECT_NE(choice.reason.find("no bf16"), std::string::npos);
  AutocastGuard guard;
  EXPECT_FALSE(is_autocast_enabled());
}

TEST(Autocast, ReportSaysWhatRanInWhichType) {
  Tensor x = input({8, 16}, 1), w = input({4, 16}, 2);
  AutocastReport report;
  {
    AutocastGuard guard(DType::bf16);
    softmax(linear(x, w), -1);
    softmax(linear(x, w), -1);
  }
  linear(x, w);  // not under autocast
  ASSERT_EQ(report.rows().size(), 2u);
  const AutocastReport::Row& product = report.rows()[0];
  EXPECT_STREQ(product.op, "linear");
  EXPECT_EQ(product.dtype, DType::bf16);
  EXPECT_EQ(product.calls, 2);
  EXPECT_EQ(product.casts + product.cached, 4);
  EXPECT_EQ(report.rows()[1].dtype, DType::f32);
  EXPECT_NE(report.to_string().find("needs the range of f32"), std::string::npos);
}

}  // namespace
}  // namespace deft
