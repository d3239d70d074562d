// Passes over constant weights: matmuls of one input merged, weights packed before the first run.
#include <gtest/gtest.h>

#include <cstring>

#include "amp/autocast.h"
#include "core/derived_cache.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
double far(const Tensor& a, const Tensor& b) { return (a - b).abs().amax().item() / b.abs().amax().item(); }
size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct Projections {
  Tensor w[3], b[3];
  explicit Projections(int64_t features = 64, DType type = DType::f32) {
    for (int i = 0; i < 3; ++i) w[i] = randn({features, features}).to(type), b[i] = randn({features}).to(type);
  }
  Tensor heads(const Tensor& x, int i) const {
    Tensor y = linear(x, w[i], b[i]);
    return y.view({y.size(0), y.size(1), 4, -1}).transpose(1, 2);
  }
  Tensor attend(const Tensor& x) const {
    Tensor y = scaled_dot_product_attention(heads(x, 0), heads(x, 1), heads(x, 2));
    return y.transpose(1, 2).reshape(x.sizes());
  }
};

TEST(MergeSiblings, ProjectionsBecomeOneProduct) {
  NoGradGuard no_grad;
  for (DType type : {DType::f32, DType::bf16}) {
    for (int64_t length : {1, 7, 40}) {
      Projections p(64, type);
      auto f = compile([&](const Tensor& x) { return p.attend(x); });
      f(randn({2, length, 64}).to(type));
      Tensor x = randn({2, length, 64}).to(type);
      EXPECT_LE(far(f(x).to(DType::f32), p.attend(x).to(DType::f32)), type == DType::f32 ? 1e-4 : 0x1p-6);
      std::string text = f.explain();
      EXPECT_TRUE(contains(text, "merge_siblings: 3 matmuls into 1")) << text;
      EXPECT_EQ(count(text, "= linear("), 1u);
      EXPECT_EQ(count(text, " view slice("), 3u) << "each result is a part of the matmul's";
      EXPECT_FALSE(contains(text, "= clone(")) << text;
    }
  }
}

TEST(MergeSiblings, SumsAreTheSame) {
  NoGradGuard no_grad;
  Projections p;
  auto matmuls = [&](const Tensor& x) {
    return matmul(linear(x, p.w[0]), linear(x, p.w[1]).t()) + matmul(x, p.w[2]).mean();
  };
  auto f = compile(matmuls);
  Tensor x = randn({33, 64});
  f(x);
  EXPECT_TRUE(same(f(x), matmuls(x)));
  EXPECT_TRUE(contains(f.explain(), "2 matmuls into 1")) << f.explain();
}

TEST(MergeSiblings, OfMatmul) {
  NoGradGuard no_grad;
  Projections p;
  auto g = [&](const Tensor& x) {
    return scaled_dot_product_attention(matmul(x, p.w[0]), matmul(x, p.w[1]), matmul(x, p.w[2]));
  };
  auto f = compile(g);
  Tensor x = randn({3, 9, 64});
  f(x);
  EXPECT_LE(far(f(x), g(x)), 1e-5);
  EXPECT_TRUE(contains(f.explain(), "3 matmuls into 1")) << f.explain();
}

TEST(MergeSiblings, WeightsAreGuarded) {
  NoGradGuard no_grad;
  Projections p;
  auto f = compile([&](const Tensor& x) { return p.attend(x); });
  Tensor x = randn({2, 8, 64});
  f(x);
  f(x);
  p.w[1].mul_(2);
  EXPECT_LE(far(f(x), p.attend(x)), 1e-5);
  p.b[2].add_(1);
  EXPECT_LE(far(f(x), p.attend(x)), 1e-5);
  EXPECT_EQ(f.stats().captures, 3);
  EXPECT_TRUE(contains(f.misses().back(), "was written"));
}

TEST(MergeSiblings, WhatMustStay) {
  NoGradGuard no_grad;
  Projections p, large(1024);
  using F = std::function<Tensor(const Tensor&)>;
  const std::pair<const char*, F> cases[] = {
      // Readers that want rows next to each other, or that end the matmul.
      {"lost to readers", [&](const Tensor& x) { return linear(x, p.w[0]).relu() * linear(x, p.w[1]); }},
      {"read across its rows",
       [&](const Tensor& x) {
         return matmul(linear(x, p.w[0]).view({-1, 8}), linear(x, p.w[1]).view({8, -1}));
       }},
      {"written later",
       [&](const Tensor& x) {
         Tensor a = linear(x, p.w[0]), b = linear(x, p.w[1]);
         a.relu_();
         b.add_(1);
         return matmul(a, b.t());
       }},
      // Other inputs, and an input that is written between.
      {"", [&](const Tensor& x) { return matmul(linear(x, p.w[0]), linear(x + 1, p.w[1]).t()); }},
      {"",
       [&](const Tensor& x) {
         Tensor y = x * 1, a = linear(y, p.w[0]);
         y.add_(1);
         return matmul(a, linear(y, p.w[1]).t());
       }},
      // One has a bias, the other none.
      {"", [&](const Tensor& x) { return matmul(linear(x, p.w[0], p.b[0]), linear(x, p.w[1]).t()); }},
  };
  Tensor x = randn({32, 64}), y = randn({32, 64});
  for (const auto& [why, function] : cases) {
    auto f = compile(function);
    f(x);
    EXPECT_LE(far(f(y), function(y)), 1e-5) << why;
    EXPECT_FALSE(contains(f.explain(), "done: merge_siblings")) << why << f.explain();
    EXPECT_TRUE(contains(f.explain(), why)) << why << f.explain();
  }
  // A result that goes to the caller.
  auto two = compile(Compiled::Function([&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{linear(in[0], p.w[0]), linear(in[0], p.w[1])};
  }));
  two.run({x});
  EXPECT_TRUE(same(two.run({y})[1], linear(y, p.w[1])));
  EXPECT_TRUE(contains(two.explain(), "a result goes to the caller")) << two.explain();
  // Much to multiply: packing x again is nothing beside it, and the weights would be there twice.
  auto g = compile([&](const Tensor& in) { return large.attend(in); });
  g(randn({1, 16, 1024}));
  EXPECT_TRUE(contains(g.explain(), "would be saved")) << g.explain();
}

TEST(PrepackWeights, TheFirstRunFindsThemPacked) {
  clear_derived_cache();
  Tensor w = randn({256, 256}), kernel = randn({32, 16, 3, 3}), image = randn({1, 16, 12, 12});
  auto f = [&](const Tensor& x) { return linear(x, w).sum() + conv2d(image * x[0][0], kernel).sum(); };
  for (bool inference : {false, true}) {
    NoGradGuard no_grad;
    InferenceModeGuard mode(inference);
    NoGradGuard again;
    auto compiled = compile(f);
    compiled(randn({64, 256}));
    EXPECT_TRUE(contains(compiled.explain(), "prepack_weights: 2 weights")) << compiled.explain();
    DerivedCacheStats before = derived_cache_stats();
    Tensor x = randn({64, 256});
    Tensor found = compiled(x);
    DerivedCacheStats after = derived_cache_stats();
    EXPECT_EQ(after.kept, before.kept);
    EXPECT_EQ(after.misses, before.misses);
    EXPECT_EQ(after.hits, before.hits + 2);
    EXPECT_LE(std::abs(found.item() - f(x).item()), 1e-4 * std::abs(f(x).item()) + 1e-2);
  }
}

// Constants that passes made are packed too, whatever mode the plan was made in.
TEST(PrepackWeights, FoldedWeights) {
  clear_derived_cache();
  Tensor w = randn({128, 128});
  InferenceModeGuard inference;
  AutocastGuard amp(DType::bf16);
  auto f = [&](const Tensor& x) { return linear(x, w); };
  auto compiled = compile(f);
  Tensor x = randn({16, 128});
  compiled(x);
  EXPECT_TRUE(contains(compiled.explain(), "prepack_weights: 1 weights")) << compiled.explain();
  EXPECT_LE(far(compiled(x).to(DType::f32), f(x).to(DType::f32)), 0x1p-7);
}

TEST(PrepackWeights, AWriteIsSeenWithoutANewPlan) {
  NoGradGuard no_grad;
  Tensor w = randn({128, 128});
  auto f = compile([&](const Tensor& x) { return linear(x, w); });
  Tensor x = randn({16, 128});
  f(x);
  f(x);
  for (int i = 0; i < 4; ++i) {
    if (i % 2 == 0) w.mul_(2);
    EXPECT_LE(far(f(x), linear(x, w)), 1e-5) << i;
  }
  EXPECT_EQ(f.stats().captures, 1);
}

TEST(PrepackWeights, WhatMustStay) {
  Tensor plain = randn({128, 128}), x = randn({16, 128});
  Tensor unseen = [] {
    InferenceModeGuard inference;
    return randn({128, 128});
  }();
  InferenceModeGuard inference;
  const std::pair<const char*, std::function<Tensor(const Tensor&)>> cases[] = {
      {"made in inference mode", [&](const Tensor& t) { return linear(t, unseen); }},
      {"it is not constant", [&](const Tensor& t) { return matmul(t, t.t()); }},
      {"reads it as it lies", [&](const Tensor& t) { return linear(t.narrow(0, 0, 1), plain); }},
  };
  for (const auto& [why, function] : cases) {
    auto f = compile(function);
    f(x);
    EXPECT_TRUE(contains(f.explain(), why)) << f.explain();
    EXPECT_FALSE(contains(f.explain(), "done: prepack")) << f.explain();
    EXPECT_LE(far(f(x), function(x)), 1e-5);
  }
  auto off = compile([&](const Tensor& t) { return linear(t, plain); },
                     {.passes = graph::without({}, "prepack_weights,merge_siblings")});
  off(x);
  EXPECT_TRUE(contains(off.explain(), "prepack_weights: switched off"));
  EXPECT_TRUE(contains(off.explain(), "merge_siblings: switched off"));
}

}  // namespace
}  // namespace deft
