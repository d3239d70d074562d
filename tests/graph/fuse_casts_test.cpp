// Results of 16-bit matmuls that are stored in f32: what the eager function rounds is not rounded, and nothing else.
#include <gtest/gtest.h>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "graph/training_util.h"
#include "ops/packed_linear.h"

namespace deft {
namespace {

using F = std::function<Tensor(const Tensor&)>;
struct Case {
  const char* name;
  F f;
};

constexpr const char* kOne = "fuse_casts: 1 results of matmuls stored in f32";

Tensor bf16(const Shape& sizes) { return randn(sizes).to(DType::bf16); }

// The wide result, rounded, is what the eager function rounded; and it was not rounded before.
void expect_wider(const Case& c, const Tensor& x) {
  auto compiled = compile(c.f);
  compiled(x);
  EXPECT_TRUE(contains(compiled.explain(), kOne)) << c.name << "\n" << compiled.explain();
  const Tensor found = compiled(x), eager = c.f(x);
  ASSERT_EQ(found.dtype(), DType::f32) << c.name;
  EXPECT_TRUE(same_bits(found.to(DType::bf16), eager.to(DType::bf16))) << c.name;
  EXPECT_FALSE(same_bits(found, eager)) << c.name;
}

TEST(FuseCasts, ProductsOfMatrices) {
  NoGradGuard no_grad;
  const Tensor x = bf16({6, 8, 40}), w = bf16({33, 40}), b = bf16({33}), right = bf16({40, 37}), rows = bf16({48, 35});
  const Case cases[] = {
      {"linear", [&](const Tensor& t) { return linear(t, w, b).to(DType::f32); }},
      {"relu", [&](const Tensor& t) { return linear(t, w, b).relu().to(DType::f32); }},
      {"matmul", [&](const Tensor& t) { return matmul(t, right).to(DType::f32); }},
      {"left by columns",
       [&](const Tensor& t) {
         return matmul(t.reshape({48, 40}).t(), rows).to(DType::f32);
       }},
      {"both by columns",
       [&](const Tensor& t) {
         return matmul(t.reshape({48, 40}).t(), rows.t().contiguous().t()).to(DType::f32);
       }},
      {"transposed",
       [&](const Tensor& t) {
         return linear(t.reshape({48, 40}), w, b).t().to(DType::f32);
       }},
      {"transposed and back",
       [&](const Tensor& t) {
         return matmul(t.reshape({48, 40}), right).t().to(DType::f32).t() * 1;
       }},
  };
  for (const Case& c : cases) expect_wider(c, x);
}

// Constant weights are packed once, as for results of the narrow type.
TEST(FuseCasts, KeptWeights) {
  NoGradGuard no_grad;
  const Tensor x = bf16({64, 128}), w = bf16({128, 128});
  auto compiled = compile([&](const Tensor& t) { return linear(t, w).to(DType::f32); });
  compiled(x);
  EXPECT_TRUE(contains(compiled.explain(), kOne));
  EXPECT_TRUE(contains(compiled.explain(), "prepack_weights: 1 weights")) << compiled.explain();
}

TEST(FuseCasts, WhatMustStay) {
  NoGradGuard no_grad;
  const Tensor x = bf16({40, 40}), w = bf16({36, 40}), few = bf16({8, 40}), other = bf16({40, 36});
  const F stay[] = {
      [&](const Tensor& t) { return linear(t, few).to(DType::f32); },  // small
      [&](const Tensor& t) { return linear(t, w).to(DType::f64); },
      [&](const Tensor& t) {  // read by others too
        Tensor y = linear(t, w);
        return y.to(DType::f32) + y.softmax(-1).to(DType::f32);
      },
      [&](const Tensor& t) {  // transposed, and read by others too
        Tensor y = linear(t, w);
        return y.t().to(DType::f32) + y.t().softmax(-1).to(DType::f32);
      },
      [&](const Tensor& t) {  // transposed, and read by others before the cast
        Tensor y = linear(t, w).t(), soft = y.softmax(-1);
        return y.to(DType::f32) + soft.to(DType::f32);
      },
      [&](const Tensor& t) {  // and after it
        Tensor y = linear(t, w).t(), wide = y.to(DType::f32);
        return wide + y.softmax(-1).to(DType::f32);
      },
      [&](const Tensor& t) {  // a part of it, transposed
        return linear(t, w).narrow(0, 2, 18).t().to(DType::f32);
      },
      [&](const Tensor& t) {  // transposed, and written between
        Tensor y = linear(t, w);
        y.mul_(2);
        return y.t().to(DType::f32);
      },
      [&](const Tensor& t) {  // written between
        Tensor y = linear(t, w);
        y.mul_(2);
        return y.to(DType::f32);
      },
  };
  for (const F& f : stay) {
    auto compiled = compile(f);
    compiled(x);
    EXPECT_TRUE(same_bits(compiled(x), f(x))) << compiled.explain();
    EXPECT_FALSE(contains(compiled.explain(), "done: fuse_casts")) << compiled.explain();
  }
  auto residual = compile([&](const Tensor& t) { return (linear(t, w) + other).to(DType::f32); });
  residual(x);
  EXPECT_FALSE(contains(residual.explain(), "done: fuse_casts")) << "its residual is of the narrow type";
  auto off = compile([&](const Tensor& t) { return linear(t, w).to(DType::f32); },
                     {.passes = graph::without({}, "fuse_casts")});
  off(x);
  EXPECT_TRUE(contains(off.explain(), "fuse_casts: switched off"));
}

// Gradients are those of the eager step before rounding.
struct Step {
  std::unique_ptr<nn::Module> model;
  Data data;
};
void expect_wider_gradients(const std::function<Step()>& make, const char* note) {
  auto gradients = [&](bool compiled, std::string& explained) {
    RngScope random({5, 0});
    Step s = make();
    AutocastGuard amp(DType::bf16);
    auto step = [&](const Tensor& x, const Tensor& y) {
      Tensor loss = cross_entropy((*s.model)(x), y);
      loss.backward();
      return loss.detach();
    };
    auto fast = compile(step);
    for (int i = 0; i < 2; ++i) {
      s.model->zero_grad();
      compiled ? fast(s.data.x, s.data.y) : step(s.data.x, s.data.y);
    }
    explained = fast.explain();
    std::vector<Tensor> found;
    for (const Tensor& p : s.model->parameters()) found.push_back(p.grad());
    return found;
  };
  std::string eager, explained;
  const std::vector<Tensor> narrow = gradients(false, eager), wide = gradients(true, explained);
  EXPECT_TRUE(contains(explained, note)) << explained;
  ASSERT_EQ(narrow.size(), wide.size());
  size_t wider = 0;
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_TRUE(same_bits(narrow[i].to(DType::bf16), wide[i].to(DType::bf16))) << note << ", tensor " << i;
    wider += !same_bits(narrow[i], wide[i]);
  }
  EXPECT_GT(wider, 0u) << note;
}

struct Classifier : nn::Module {
  nn::Linear& last = add<nn::Linear>("last", 48, 40);
  Tensor forward(const Tensor& x) override { return last(x); }
};
struct Transposed : nn::Module {
  Tensor& weight = parameter("weight", randn({48, 40}));
  Tensor forward(const Tensor& x) override { return linear(x, weight.t()); }
};
struct Convolutions : nn::Module {
  explicit Convolutions(int64_t kernel, int64_t groups = 1)
      : first(add<nn::Conv2d>("first", 4, 8, kernel, nn::ConvOptions{.padding = {kernel / 2}, .groups = groups})) {}
  nn::Conv2d& first;
  Tensor forward(const Tensor& x) override { return first(x).mean({2, 3}); }
};

TEST(FuseCasts, GradientsOfWeights) {
  const Data data{randn({16, 48}), randint(0, 40, {16})};
  expect_wider_gradients([&] { return Step{std::make_unique<Classifier>(), data}; }, kOne);
  expect_wider_gradients([&] { return Step{std::make_unique<Transposed>(), data}; }, kOne);
  for (int64_t kernel : {1, 3})
    for (int64_t side : {9, 40})  // the larger one is summed in parts
      for (bool last : {false, true}) {
        expect_wider_gradients(
            [&] {
              Tensor x = randn({4, 4, side, side});
              if (last) x = x.contiguous(MemoryFormat::channels_last);
              return Step{std::make_unique<Convolutions>(kernel), {x, randint(0, 8, {4})}};
            },
            kOne);
      }
}
TEST(FuseCasts, GroupsStay) {
  Convolutions model(3, 2);
  AutocastGuard amp(DType::bf16);
  auto fast = compile([&](const Tensor& x) {
    Tensor loss = model(x).sum();
    loss.backward();
    return loss.detach();
  });
  fast(randn({2, 4, 9, 9}));
  EXPECT_FALSE(contains(fast.explain(), "done: fuse_casts")) << fast.explain();
}

TEST(FuseCasts, Errors) {
  const Tensor x = randn({4, 8}), w = randn({5, 8});
  EXPECT_THROW(call<FusedLinear>(Site::current(), {.wide_result = true}, x, w, Tensor(), Tensor()), DTypeError);
  ConvBackwardWeight::Params p;
  p.geometry.spatial = 2;
  p.wide_result = true;
  EXPECT_THROW(call<ConvBackwardWeight>(Site::current(), p, randn({1, 2, 3, 3}), randn({1, 2, 3, 3})), DTypeError);
}

}  // namespace
}  // namespace deft
