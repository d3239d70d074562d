// Batch norms of inference go into the convolutions before them, if all that makes them up stays what it is.
#include <gtest/gtest.h>

#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
double far(const Tensor& a, const Tensor& b) { return (a - b).abs().amax().item() / b.abs().amax().item(); }

// What a convolution and a norm are made of, by name.
struct Parts {
  Tensor weight = randn({8, 3, 3, 3}), bias = randn({8});
  Tensor gamma = randn({8}) + 2, beta = randn({8}), mean = randn({8}), var = rand({8}) + 0.5;
  std::vector<std::pair<const char*, Tensor*>> all() {
    return {{"weight", &weight}, {"bias", &bias}, {"gamma", &gamma}, {"beta", &beta}, {"mean", &mean}, {"var", &var}};
  }
};
using F = std::function<Tensor(const Tensor& x, Parts& p)>;
Tensor norm(const Tensor& y, Parts& p, bool training = false, double eps = 1e-5) {
  return batch_norm(y, p.mean, p.var, p.gamma, p.beta, training, 0.1, eps);
}

// The same values as eager mode, folded or left for that reason.
void expect(const std::string& what, const F& f, const std::string& note) {
  NoGradGuard no_grad;
  Parts p, q;
  for (size_t i = 0; i < p.all().size(); ++i) *q.all()[i].second = p.all()[i].second->clone();
  Compiled fast = compile([&](const Tensor& x) { return f(x, p); });
  for (int i = 0; i < 3; ++i) {
    Tensor x = randn({2, 3, 7, 7});
    EXPECT_LE(far(fast(x), f(x, q)), 1e-5) << what << i;
  }
  EXPECT_TRUE(contains(fast.explain(), note)) << what << "\n" << fast.explain();
}
constexpr const char* kFolded = "done: fold_batch_norm: 1 into the convolutions before them";

TEST(FoldBatchNorm, EveryPartCounts) {
  for (double eps : {1e-5, 0.25, 4.0})
    expect(
        "eps", [=](const Tensor& x, Parts& p) { return norm(conv2d(x, p.weight, p.bias), p, false, eps); }, kFolded);
  expect(
      "without a bias", [](const Tensor& x, Parts& p) { return norm(conv2d(x, p.weight), p); }, kFolded);
  expect(
      "without factors",
      [](const Tensor& x, Parts& p) { return batch_norm(conv2d(x, p.weight, p.bias), p.mean, p.var); }, kFolded);
}

TEST(FoldBatchNorm, WhatMustStay) {
  const std::pair<const char*, F> cases[] = {
      {"its statistics come from the batch",
       [](const Tensor& x, Parts& p) { return norm(conv2d(x, p.weight, p.bias), p, true); }},
      {"there is no convolution before it",
       [](const Tensor& x, Parts& p) { return norm(conv2d(x, p.weight, p.bias).relu(), p); }},
      {"the convolution's result is used elsewhere too",
       [](const Tensor& x, Parts& p) {
         Tensor y = conv2d(x, p.weight, p.bias);
         return norm(y, p) + y;
       }},
      {"what the convolution reads is written",
       [](const Tensor& x, Parts& p) {
         Tensor z = x * 1, y = conv2d(z, p.weight, p.bias);
         z.add_(1);
         return norm(y, p) + z.sum();
       }},
  };
  for (const auto& [why, f] : cases) expect(why, f, std::string(": ") + why);
}

// Each of them in turn is made from the input.
TEST(FoldBatchNorm, PartsThatAreNotConstant) {
  Parts names;
  for (size_t i = 0; i < names.all().size(); ++i) {
    expect(
        names.all()[i].first,
        [i](const Tensor& x, Parts& p) {
          Parts now = p;
          Tensor& part = *now.all()[i].second;
          part = part * x.square().mean();
          return norm(conv2d(x, now.weight, now.bias), now);
        },
        i < 2 ? ": the convolution's weights are not constant" : ": its weights are not constant");
  }
}

}  // namespace
}  // namespace deft
