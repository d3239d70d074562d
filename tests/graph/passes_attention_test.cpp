#include <gtest/gtest.h>

#include <cmath>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
double far(const Tensor& a, const Tensor& b) {
  return (a.to(DType::f64) - b.to(DType::f64)).abs().amax().item() / b.to(DType::f64).abs().amax().item();
}

using F = std::function<Tensor(const std::vector<Tensor>&)>;
struct Case {
  const char* name;
  F f;
};
Compiled compile_list(const F& f, CompileOptions options = {}) {
  return compile([f](const std::vector<Tensor>& x) { return std::vector<Tensor>{f(x)}; }, options);
}

Tensor hidden_ahead(int64_t n) { return logical_not(tril(ones({n, n}, {DType::boolean}))); }

// q, k, v [2, 3, 40, 16], an additive mask [2, 1, 1, 40], one of bool.
std::vector<Tensor> inputs(DType type) {
  std::vector<Tensor> x;
  for (int i = 0; i < 3; ++i) x.push_back(randn({2, 3, 40, 16}).to(type));
  x.push_back((randn({2, 1, 1, 40}) * 2).to(type));
  x.push_back(randn({2, 1, 1, 40}).gt(-1));
  return x;
}

std::vector<Case> fused_cases() {
  static const Tensor ahead = hidden_ahead(40), low = zeros({40, 40}).masked_fill(ahead, -INFINITY);
  return {
      {"plain", [](const auto& x) { return matmul(matmul(x[0], x[1].t()).softmax(-1), x[2]); }},
      {"scale after", [](const auto& x) { return matmul((matmul(x[0], x[1].t()) * 0.25).softmax(-1), x[2]); }},
      {"divided", [](const auto& x) { return matmul((matmul(x[0], x[1].t()) / 4).softmax(-1), x[2]); }},
      {"scale before", [](const auto& x) { return matmul(matmul(x[0] * 0.25, x[1].t()).softmax(-1), x[2]); }},
      {"scale twice", [](const auto& x) { return matmul((matmul(x[0] / 2, x[1].t()) * 0.5).softmax(-1), x[2]); }},
      {"mask added", [](const auto& x) { return matmul((matmul(x[0], x[1].t()) / 4 + x[3]).softmax(-1), x[2]); }},
      {"mask first", [](const auto& x) { return matmul((x[3] + matmul(x[0], x[1].t()) / 4).softmax(-1), x[2]); }},
      {"masked_fill",
       [](const auto& x) {
         return matmul((matmul(x[0], x[1].t()) / 4).masked_fill(logical_not(x[4]), -INFINITY).softmax(-1), x[2]);
       }},
      {"where, scaled after",
       [](const auto& x) { return matmul((where(x[4], matmul(x[0], x[1].t()), -INFINITY) / 4).softmax(-1), x[2]); }},
      {"causal constant",
       [](const auto& x) {
         return matmul((matmul(x[0], x[1].t()) / 4).masked_fill(ahead, -INFINITY).softmax(-1), x[2]);
       }},
      {"causal numbers",
       [](const auto& x) { return matmul((matmul(x[0], x[1].t()) / 4 + low.to(x[0].dtype())).softmax(-1), x[2]); }},
      {"in place",
       [](const auto& x) {
         Tensor s = matmul(x[0], x[1].t());
         s.mul_(0.25);
         s.add_(x[3]);
         return matmul(s.softmax(-1), x[2]);
       }},
      {"bmm of heads",
       [](const auto& x) {
         Tensor q = x[0].reshape({6, 40, 16}), k = x[1].reshape({6, 40, 16}), v = x[2].reshape({6, 40, 16});
         return bmm((bmm(q, k.transpose(1, 2)) * 0.25).softmax(-1), v).view({2, 3, 40, 16});
       }},
      {"heads of projections",
       [](const auto& x) {
         auto heads = [](const Tensor& t) { return t.reshape({2, 40, 3, 16}).transpose(1, 2); };
         Tensor y = matmul((matmul(heads(x[0]), heads(x[1]).t()) * 0.25).softmax(-1), heads(x[2]));
         return y.transpose(1, 2).reshape({2, 40, 48});
       }},
  };
}

TEST(FuseAttention, EveryFormBecomesOneOp) {
  NoGradGuard no_grad;
  for (DType type : {DType::f32, DType::f64, DType::bf16}) {
    std::vector<Tensor> x = inputs(type), y = inputs(type);
    for (const Case& c : fused_cases()) {
      Compiled compiled = compile_list(c.f);
      compiled.run(x);
      Tensor found = compiled.run(y)[0], wanted = c.f(y);
      std::string text = compiled.explain();
      EXPECT_TRUE(contains(text, "fuse_attention: 1 of two matmuls")) << c.name << "\n" << text;
      EXPECT_TRUE(contains(text, "scaled_dot_product_attention(")) << c.name;
      EXPECT_FALSE(contains(text, "= matmul(") || contains(text, "= softmax(")) << c.name << "\n" << text;
      ASSERT_EQ(found.sizes(), wanted.sizes());
      EXPECT_TRUE(found.strides() == wanted.strides()) << c.name;
      // bf16 eager rounds scores and weights, each to 2^-9.
      double bound = type == DType::f64 ? 1e-13 : type == DType::f32 ? 1e-5 : 0x1p-5;
      EXPECT_LE(far(found, wanted), bound) << c.name << " " << name_of(type);
    }
  }
}

TEST(FuseAttention, CausalMasksGo) {
  NoGradGuard no_grad;
  std::vector<Tensor> x = inputs(DType::f32);
  for (const Case& c : fused_cases()) {
    if (!contains(c.name, "causal")) continue;
    Compiled compiled = compile_list(c.f);
    compiled.run(x);
    EXPECT_TRUE(contains(compiled.explain(), ", -)")) << c.name << "\n" << compiled.explain();
  }
  // A mask that is not quite causal stays a mask.
  Tensor almost = hidden_ahead(40).clone();
  almost[3][7].fill_(false);
  F f = [&](const auto& t) { return matmul(matmul(t[0], t[1].t()).masked_fill(almost, -INFINITY).softmax(-1), t[2]); };
  Compiled compiled = compile_list(f);
  compiled.run(x);
  EXPECT_FALSE(contains(compiled.explain(), ", -)"));
  EXPECT_LE(far(compiled.run(x)[0], f(x)), 1e-5);
  almost[3][8].fill_(false);  // went into the plan
  EXPECT_LE(far(compiled.run(x)[0], f(x)), 1e-5);
  EXPECT_TRUE(contains(compiled.misses().back(), "was written"));
}

TEST(FuseAttention, UnderAutocast) {
  NoGradGuard no_grad;
  AutocastGuard amp(DType::bf16);
  std::vector<Tensor> x = inputs(DType::f32);
  F f = [](const auto& t) { return matmul((matmul(t[0], t[1].t()) / 4).softmax(-1), t[2]); };
  Compiled compiled = compile_list(f);
  compiled.run(x);
  EXPECT_TRUE(contains(compiled.explain(), "fuse_attention: 1 of")) << compiled.explain();
  EXPECT_LE(far(compiled.run(x)[0], f(x)), 0x1p-5);
}

TEST(FuseAttention, WhatMustStay) {
  NoGradGuard no_grad;
  Tensor blind = zeros({40, 40}, {DType::boolean});
  blind[3].fill_(true);
  const std::pair<const char*, F> cases[] = {
      {"the mask is scaled too",
       [](const auto& x) { return matmul(((matmul(x[0], x[1].t()) + x[3]) / 4).softmax(-1), x[2]); }},
      {"the scores are used elsewhere too",
       [](const auto& x) {
         Tensor s = matmul(x[0], x[1].t());
         return matmul(s.softmax(-1), x[2]) + s.mean();
       }},
      {"hidden scores get a finite number",
       [](const auto& x) { return matmul(matmul(x[0], x[1].t()).masked_fill(x[4], -1e9).softmax(-1), x[2]); }},
      {"there are two masks",
       [](const auto& x) {
         return matmul((matmul(x[0], x[1].t()).masked_fill(logical_not(x[4]), -INFINITY) + x[3]).softmax(-1), x[2]);
       }},
      {"the mask hides all keys from a query",
       [&](const auto& x) { return matmul(matmul(x[0], x[1].t()).masked_fill(blind, -INFINITY).softmax(-1), x[2]); }},
      {"what it reads is written meanwhile",
       [](const auto& x) {
         Tensor q = x[0] * 1, w = matmul(q, x[1].t()).softmax(-1);
         q.zero_();
         return matmul(w, x[2]) + q;
       }},
      {"a mask makes the scores larger",
       [](const auto& x) { return matmul((matmul(x[0][0][0], x[1][0][0].t()) + x[3]).softmax(-1), x[2]); }},
      {"it would take",  // few queries: the fused kernel's tiles would be mostly empty
       [](const auto& x) { return matmul(matmul(x[0].narrow(2, 0, 2), x[1].t()).softmax(-1), x[2]); }},
      // Weights that are read, another dim, a negative factor after the mask: no attention at all.
      {"",
       [](const auto& x) {
         Tensor w = matmul(x[0], x[1].t()).softmax(-1);
         return matmul(w, x[2]) + w.sum();
       }},
      {"", [](const auto& x) { return matmul(matmul(x[0], x[1].t()).softmax(-2), x[2]); }},
      {"", [](const auto& x) { return matmul(matmul(x[0], x[1].t()).exp().softmax(-1), x[2]); }},
  };
  std::vector<Tensor> x = inputs(DType::f32), y = inputs(DType::f32);
  for (const auto& [why, f] : cases) {
    Compiled compiled = compile_list(f);
    compiled.run(x);
    std::string text = compiled.explain();
    EXPECT_FALSE(contains(text, "= scaled_dot_product_attention(")) << why;
    EXPECT_TRUE(contains(text, why)) << why << "\n" << text;
    Tensor found = compiled.run(y)[0], wanted = f(y);
    Tensor nan = ne(wanted, wanted);
    EXPECT_EQ(ne(nan, ne(found, found)).to(DType::i64).sum().item<int64_t>(), 0) << why;
    EXPECT_LE(far(found.masked_fill(nan, 0), wanted.masked_fill(nan, 0)), 1e-5) << why;
  }
  Compiled off = compile_list(fused_cases()[0].f, {.passes = graph::without({}, "fuse_attention")});
  off.run(x);
  EXPECT_TRUE(contains(off.explain(), "fuse_attention: switched off"));
  EXPECT_TRUE(contains(off.explain(), "= softmax("));
}

// What was read for one that stays is no part of the plan.
TEST(FuseAttention, NumbersOfThoseThatStayAreFree) {
  NoGradGuard no_grad;
  Tensor scale = full({}, 0.25);
  F f = [&](const auto& t) {
    Tensor masked = matmul(((matmul(t[0], t[1].t()) + t[3]) * scale).softmax(-1), t[2]);  // the mask is scaled too
    return matmul((matmul(masked, t[1].t()) * 0.5).softmax(-1), t[2]);
  };
  Compiled compiled = compile_list(f);
  std::vector<Tensor> x = inputs(DType::f32);
  compiled.run(x);
  EXPECT_TRUE(contains(compiled.explain(), "fuse_attention: 1 of two matmuls")) << compiled.explain();
  scale.fill_(1);
  EXPECT_LE(far(compiled.run(x)[0], f(x)), 1e-4);
  EXPECT_EQ(compiled.stats().captures, 1) << compiled.misses().back();
}

// A temperature that is a tensor goes into the plan.
TEST(FuseAttention, NumbersAreGuarded) {
  NoGradGuard no_grad;
  Tensor scale = full({}, 0.25);
  F f = [&](const auto& t) { return matmul((matmul(t[0], t[1].t()) * scale).softmax(-1), t[2]); };
  Compiled compiled = compile_list(f);
  std::vector<Tensor> x = inputs(DType::f32);
  compiled.run(x);
  EXPECT_LE(far(compiled.run(x)[0], f(x)), 1e-5);
  scale.fill_(1);
  EXPECT_LE(far(compiled.run(x)[0], f(x)), 1e-5);
  EXPECT_EQ(compiled.stats().captures, 2);
}

}  // namespace
}  // namespace deft
