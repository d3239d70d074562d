#include "graph/symbolic.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "nn/compile_module.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

using Tensors = std::vector<Tensor>;

bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// All calls but the last are captured; that one comes from the template, and is what a capture there gives, bit by bit.
void expect_last_is_instantiated(const Compiled::Function& f, const std::vector<Tensors>& calls) {
  Compiled symbolic = compile(f), exact = compile(f, {.symbolic = false});
  for (const Tensors& inputs : calls) {
    exact.run(inputs);
    Tensors wanted = exact.run(inputs), found = symbolic.run(inputs);
    if (&inputs == &calls.back()) {
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same(found[i], wanted[i])) << i;
    }
  }
  EXPECT_EQ(symbolic.stats().captures, static_cast<int64_t>(calls.size()) - 1)
      << symbolic.explain().substr(symbolic.explain().rfind("template of"));
  EXPECT_EQ(symbolic.stats().instantiated, 1) << symbolic.explain().substr(symbolic.explain().rfind("template of"));
  EXPECT_TRUE(contains(symbolic.misses().back(), "instantiated for ")) << symbolic.misses().back();
}

TEST(Symbolic, ASizeAfterThreeIsInstantiated) {
  NoGradGuard no_grad;
  Tensor w = randn({6, 5}), b = randn({6});
  auto f = [&](const Tensors& x) { return Tensors{linear(x[0], w, b).relu().sum({-1}, true) * x[0]}; };
  expect_last_is_instantiated(f, {{randn({2, 5})}, {randn({3, 5})}, {randn({7, 5})}, {randn({4, 5})}});
}

TEST(Symbolic, DeclaredDimsNeedTwoCaptures) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return x.exp() + x.sum({0}); }, {.dynamic = {{0, 0}}});
  f(randn({2, 4}));
  f(randn({3, 4}));
  Tensor x = randn({9, 4});
  Tensor y = f(x);
  EXPECT_EQ(f.stats().captures, 2);
  EXPECT_EQ(f.stats().instantiated, 1);
  EXPECT_TRUE(same(y, f(x)));
  EXPECT_LT((y - (x.exp() + x.sum({0}))).abs().amax().item(), 1e-4);
  f(randn({9, 6}));  // was always 4
  EXPECT_EQ(f.stats().captures, 3);
  EXPECT_TRUE(contains(f.misses().back(), "always the same")) << f.misses().back();
  f(randn({2, 5}));
  EXPECT_EQ(f.stats().captures, 4) << "dimension 1 was not declared";
}

TEST(Symbolic, SeveralSymbols) {
  NoGradGuard no_grad;
  Tensor table = randn({50, 8}), w = randn({8, 8});
  // Flattened matmuls, transposes, the last position, another input of the same sizes, a mask of two lengths.
  auto f = [&](const Tensors& x) {
    int64_t n = x[0].size(0), length = x[0].size(1);
    Tensor h = embedding(x[0], table) + table.narrow(0, 3, length);
    h = matmul(h.view({n * length, 8}), w).view({n, length, 2, 4}).transpose(1, 2);
    Tensor scores = matmul(h, h.transpose(2, 3)) + tril(ones({length, length}));
    h = matmul(softmax(scores, -1), h).transpose(1, 2).reshape({n, length, 8});
    Tensor weighed = h * x[1].unsqueeze(-1);
    return Tensors{weighed, h.select(1, length - 1), scores.sum({0}) / static_cast<double>(n)};
  };
  auto call = [](int64_t n, int64_t length) { return Tensors{randint(0, 50, {n, length}), randn({n, length})}; };
  expect_last_is_instantiated(f, {call(2, 6), call(3, 10), call(5, 7), call(6, 12), call(4, 20)});
}

TEST(Symbolic, TensorsThatTheFunctionFills) {
  NoGradGuard no_grad;
  auto f = [](const Tensors& x) {
    int64_t n = x[0].size(0);
    Tensor down = arange(n - 1, -1, -1).to(DType::f32), half = full({n}, 0.5);
    return Tensors{x[0] * down.unsqueeze(1) + half.unsqueeze(1), x[0].sum({0}) / n};
  };
  expect_last_is_instantiated(f, {{randn({2, 3})}, {randn({4, 3})}, {randn({5, 3})}, {randn({11, 3})}});
}

TEST(Symbolic, WhatDoesNotFollowFromSizesIsNamed) {
  NoGradGuard no_grad;
  auto half = compile([](const Tensor& x) { return x.narrow(0, 0, x.size(0) / 2).exp(); });
  for (int64_t n : {4, 7, 10, 12}) half(randn({n, 3}));
  EXPECT_EQ(half.stats().captures, 4);
  EXPECT_TRUE(contains(half.explain(), "not in use: ")) << half.explain();
  EXPECT_TRUE(contains(half.explain(), "does not follow from the sizes")) << half.explain();

  auto scaled = compile([](const Tensor& x) { return leaky_relu(x, 1 / static_cast<double>(x.size(0))); });
  for (int64_t n : {2, 3, 4}) scaled(randn({n}));
  EXPECT_TRUE(contains(scaled.explain(), "op 0, leaky_relu")) << scaled.explain();
  EXPECT_TRUE(contains(scaled.misses().back(), "no template: op 0, leaky_relu")) << scaled.misses().back();
}

TEST(Symbolic, FunctionsThatBranchOnSizesStayExact) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return x.size(0) > 4 ? x.relu() : x.tanh(); });
  for (int64_t n : {2, 3, 6, 8}) {
    Tensor x = randn({n}), eager = n > 4 ? x.relu() : x.tanh();
    f(x);
    EXPECT_TRUE(same(f(x), eager)) << n;
  }
  EXPECT_EQ(f.stats().captures, 4);
  EXPECT_TRUE(contains(f.misses().back(), "op 0 is tanh")) << f.misses().back();
}

TEST(Symbolic, AGuessThatFailsIsNotUsed) {
  NoGradGuard no_grad;
  // All rows but the last, up to four: two captures below that cannot show it.
  auto rows = [](int64_t n) { return std::min<int64_t>(4, n - 1); };
  auto f = compile([&](const Tensor& x) { return x.narrow(0, 0, rows(x.size(0))).exp(); });
  for (int64_t n : {3, 4, 6, 8, 9}) EXPECT_EQ(f(randn({n, 2})).size(0), rows(n));
  EXPECT_EQ(f.stats().instantiated, 0);
}

// Half of 2 and half of 3 are the same: that another size was foretold says nothing of this one.
TEST(Symbolic, EachSymbolIsForetoldBeforeItIsUsed) {
  NoGradGuard no_grad;
  auto f = [](const Tensor& x) { return x.cumsum(1).narrow(0, x.size(0) / 2, 1); };
  auto fast = compile(f);
  for (Shape sizes : {Shape{2, 4}, Shape{3, 4}, Shape{3, 5}, Shape{2, 6}, Shape{3, 7}, Shape{7, 5}, Shape{6, 8}}) {
    Tensor x = randn(sizes);
    EXPECT_TRUE(same(fast(x), f(x))) << to_string(sizes);
  }
  EXPECT_GE(fast.stats().instantiated, 1);  // 3 x 7: both sizes are known or were foretold
}

// Rows that are not there at a smaller size, of an input and of what is made from it.
TEST(Symbolic, ViewsStayWithinWhatTheyLookAt) {
  NoGradGuard no_grad;
  auto rows = [](const Tensor& x) { return std::min<int64_t>(x.size(0), 6); };
  const std::function<Tensor(const Tensor&)> functions[] = {
      [&](const Tensor& x) { return x.narrow(0, 0, rows(x)).sum({0}); },
      [&](const Tensor& x) { return (x * 2).narrow(0, 0, rows(x)).sum({0}); },
      [&](const Tensor& x) { return x.as_strided({rows(x)}, {8}).sum(); }};
  for (const auto& f : functions) {
    auto fast = compile(f, {.dynamic = {{0, 0}}});
    for (int64_t n : {7, 8, 5}) {
      Tensor x = randn({n, 8});
      EXPECT_LE((fast(x) - f(x)).abs().amax().item(), 1e-5) << n;
    }
    EXPECT_TRUE(contains(fast.misses().back(), "not from the template")) << fast.misses().back();
  }
  // Further than a table: the function's own error, not what lies behind it.
  Tensor table = randn({8, 8});
  auto fast = compile([&](const Tensor& x) { return x.sum() + table.select(0, 0).narrow(0, 0, x.size(0)).sum(); });
  for (int64_t n : {4, 5, 6}) fast(randn({n, 8}));
  EXPECT_THROW(fast(randn({12, 8})), Error);
}

TEST(Symbolic, SizesThatMoveTogetherAreToldApart) {
  NoGradGuard no_grad;
  auto f =
      compile([](const Tensor& x) { return x.transpose(0, 1).reshape({-1}).exp(); }, {.dynamic = {{0, 0}, {0, 1}}});
  f(randn({2, 4}));
  f(randn({4, 8}));  // both doubled: a product of one or of the other
  f(randn({3, 5}));
  EXPECT_EQ(f.stats().captures, 3) << f.explain();
  Tensor x = randn({7, 3});
  EXPECT_TRUE(same(f(x), x.transpose(0, 1).reshape({-1}).exp()));
  EXPECT_EQ(f.stats().instantiated, 1) << f.explain();
  // The offset of the last column, which no rule of an op could tell from 16 n - 12 bytes.
  auto last = compile([](const Tensor& t) { return t.select(1, t.size(1) - 1).exp(); }, {.dynamic = {{0, 0}, {0, 1}}});
  for (Shape sizes : {Shape{2, 6}, Shape{3, 10}, Shape{2, 20}, Shape{7, 5}}) {
    Tensor t = randn(sizes);
    EXPECT_TRUE(same(last(t), t.select(1, sizes[1] - 1).exp())) << to_string(sizes);
  }
  EXPECT_EQ(last.stats().captures, 3) << last.explain();
}

TEST(Symbolic, WhatDoesNotFitTheTemplateIsNamed) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensors& x) { return Tensors{x[0].sum({0}) + x[1].sum({0}) + x[2].sum({0})}; },
                   {.dynamic = {{0, 0}, {1, 0}, {2, 0}}});
  auto miss = [&](int64_t a, int64_t b, int64_t c) {
    f.run({randn({a, 4}), randn({b, 4}), randn({c, 4})});
    return f.misses().back();
  };
  miss(2, 2, 2), miss(3, 3, 3);
  const std::string why = "; not from the template: dimension 0 of input ";
  EXPECT_TRUE(contains(miss(7, 6, 7), why + "1 was always dimension 0 of input 0")) << f.misses().back();
  EXPECT_TRUE(contains(miss(7, 7, 6), why + "2 was always dimension 0 of input 0")) << f.misses().back();
}

TEST(Symbolic, SizesOfOneAreTheirOwn) {
  NoGradGuard no_grad;
  Tensor row = randn({1, 3});
  auto f = compile([&](const Tensor& x) { return x + row.expand(x.sizes()); });
  for (int64_t n : {2, 3, 4, 5}) f(randn({n, 3}));
  EXPECT_EQ(f.stats().instantiated, 1);
  Tensor x = randn({1, 3}), none = randn({0, 3});
  EXPECT_TRUE(same(f(x), x + row));
  EXPECT_EQ(f(none).numel(), 0);
  EXPECT_EQ(f.stats().captures, 5);
}

TEST(Symbolic, StridesThatReachNothingAreNoMiss) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return x.exp(); });
  Tensor x = randn({4, 1, 3});
  f(x);
  Tensor odd = x.as_strided({4, 1, 3}, {3, 77, 1});
  EXPECT_TRUE(same(f(odd), x.exp()));
  EXPECT_EQ(f.stats().captures, 1);
  // The same the other way round, and as a capture of another size.
  auto g = compile([](const Tensor& t) { return t.transpose(0, 1).exp(); });
  for (int64_t n : {2, 3, 4, 5}) g(randn({n, 1, 3}).as_strided({n, 1, 3}, {3, n * n, 1}));
  EXPECT_EQ(g.stats().captures, 3);
  EXPECT_EQ(g.stats().instantiated, 1) << g.explain();
}

TEST(Symbolic, InputsThatShareMemoryKeepTheirDistance) {
  NoGradGuard no_grad;
  Tensor all = arange(8).to(DType::f32);
  auto f = compile([](const Tensor& a, const Tensor& b) { return a - b; });
  f(all.narrow(0, 0, 4), all.narrow(0, 4, 4));
  EXPECT_EQ(f(all.narrow(0, 0, 4), all.narrow(0, 0, 4)).abs().sum().item(), 0);
  EXPECT_TRUE(contains(f.misses().back(), "shares memory")) << f.misses().back();
}

TEST(Symbolic, WeightsAreReadAsTheyAre) {
  NoGradGuard no_grad;
  Tensor w = ones({3});
  auto f = compile([&](const Tensor& x) { return x * (w + 1); });
  for (int64_t n : {2, 3, 4}) f(ones({n, 3}));
  w.fill_(5);
  EXPECT_EQ(f(ones({5, 3})).sum().item(), 5 * 3 * 6);
  EXPECT_EQ(f.stats().instantiated, 1) << f.explain();
}

TEST(Symbolic, DropoutInAnInstantiatedPlanDrawsFreshNumbers) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return dropout(x, 0.5, true); });
  for (int64_t n : {64, 96, 128}) f(ones({n}));
  Tensor x = ones({256}), a, b, eager;
  {
    RngScope rng({7, 0});
    a = f(x), b = f(x);
  }
  {
    RngScope rng({7, 0});
    eager = dropout(x, 0.5, true);
  }
  EXPECT_EQ(f.stats().instantiated, 1) << f.explain();
  EXPECT_TRUE(same(a, eager));
  EXPECT_FALSE(same(a, b));
}

TEST(Symbolic, Bert) {
  InferenceModeGuard inference;
  models::BertOptions options{
      .vocabulary = 60, .hidden = 16, .layers = 2, .heads = 2, .intermediate = 32, .positions = 32};
  models::Bert bert(options);
  bert.eval();
  auto f = [&](const Tensors& x) {
    auto out = bert.encode(x[0], {}, x[1], {});
    return Tensors{out.hidden, out.pooled};
  };
  auto call = [](int64_t n, int64_t length) {
    return Tensors{randint(0, 60, {n, length}), ones({n, length}, {DType::boolean})};
  };
  expect_last_is_instantiated(f, {call(2, 8), call(5, 10), call(3, 12), call(4, 30)});
  Compiled fast = compile(f, {.dynamic = {{0, 0}, {0, 1}}});
  fast.run(call(2, 8));
  fast.run(call(3, 11));
  fast.run(call(9, 7));
  EXPECT_EQ(fast.stats().instantiated, 1) << fast.explain();
  EXPECT_THROW(fast.run(call(2, 33)), ShapeError);  // more than there are positions: the model says so itself
}

TEST(Symbolic, PicturesInBatchesAndChannelsLast) {
  InferenceModeGuard inference;
  models::Cnn cnn;
  cnn.eval();
  auto f = [&](const Tensors& x) { return Tensors{cnn(x[0])}; };
  std::vector<Tensors> calls, last;
  for (int64_t n : {2, 3, 4, 6}) {
    calls.push_back({randn({n, 1, 28, 28})});
    last.push_back({randn({n, 1, 28, 28}).contiguous(MemoryFormat::channels_last)});
  }
  expect_last_is_instantiated(f, calls);
  expect_last_is_instantiated(f, last);
}

}  // namespace
}  // namespace deft
