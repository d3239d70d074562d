// Ops of which only some rows are read compute those only.
#include <gtest/gtest.h>

#include "deft/deft.h"
#include "graph/compile.h"

namespace deft {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

struct Weights {
  Tensor up = randn({24, 16}), bias = randn({24}), down = randn({16, 24}), scale = randn({16}), shift = randn({16});
  Tensor q = randn({16, 16}), kv = randn({16, 16});
};

Tensor block(const Weights& w, const Tensor& x) {
  Tensor y = linear(gelu(linear(x, w.up, w.bias)), w.down);
  return layer_norm(x + y, {16}, w.scale, w.shift);
}
Tensor heads(const Tensor& x) { return x.view({x.size(0), x.size(1), 2, 8}).permute({0, 2, 1, 3}); }
Tensor attend(const Weights& w, const Tensor& x, const Tensor& mask = {}, bool causal = false) {
  Tensor k = heads(linear(x, w.kv)), y = scaled_dot_product_attention(heads(linear(x, w.q)), k, k, mask, 0, causal);
  return y.permute({0, 2, 1, 3}).reshape({x.size(0), x.size(1), 16});
}

// The plan's results against the function's; what explain() says of it.
std::string check(const Function& f, const Tensor& x) {
  InferenceModeGuard inference;
  Compiled plan = compile(f);
  Tensor want = f(x);
  plan(x);
  for (int i = 0; i < 2; ++i) {
    Tensor found = plan(x);
    EXPECT_EQ(found.sizes(), want.sizes());
    double error = (found - want).abs().amax().item(), size = want.abs().amax().item();
    EXPECT_LE(error, 64 * 1.2e-7 * size);  // sums of 24 terms, three after each other
  }
  return plan.explain();
}
bool narrowed(const std::string& text) { return text.find("done: narrow_early") != text.npos; }

TEST(NarrowEarly, OneTokenOfALayer) {
  Weights w;
  Tensor x = randn({3, 10, 16});
  for (int64_t token : {0, 4, -1}) {
    std::string text = check([&](const Tensor& t) { return tanh(block(w, t).select(1, token)); }, x);
    EXPECT_TRUE(narrowed(text));
    EXPECT_NE(text.find("view slice(%0)"), text.npos) << text;  // the first thing that is done
  }
}

// Queries are some of its rows, keys and values all of them.
TEST(NarrowEarly, OneTensorThatIsReadInPartAndWhole) {
  Weights w;
  auto f = [&](const Tensor& t) { return relu(linear(scaled_dot_product_attention(t, t, t), w.q).narrow(1, 4, 3)); };
  EXPECT_TRUE(narrowed(check(f, randn({3, 10, 16}))));
}

TEST(NarrowEarly, SlicesAndTheOtherDimension) {
  Weights w;
  Tensor x = randn({3, 10, 16});
  EXPECT_TRUE(narrowed(check([&](const Tensor& t) { return relu(block(w, t).narrow(1, 2, 3)); }, x)));
  EXPECT_TRUE(narrowed(check([&](const Tensor& t) { return relu(block(w, t).select(0, 1)); }, x)));
  // The rows' own dimension is needed in full.
  EXPECT_FALSE(narrowed(check([&](const Tensor& t) { return relu(layer_norm(t, {16}).narrow(2, 0, 4)); }, x)));
}

TEST(NarrowEarly, QueriesOfAttention) {
  Weights w;
  Tensor x = randn({2, 6, 16}), mask = randn({6, 6}), row = randn({1, 6});
  auto first = [](const Tensor& t) { return relu(t.select(1, 0)); };
  EXPECT_TRUE(narrowed(check([&](const Tensor& t) { return first(block(w, attend(w, t))); }, x)));
  EXPECT_TRUE(narrowed(check([&](const Tensor& t) { return first(attend(w, t, mask)); }, x)));
  EXPECT_TRUE(narrowed(check([&](const Tensor& t) { return first(attend(w, t, row)); }, x)));
  std::string causal = check([&](const Tensor& t) { return first(attend(w, t, {}, true)); }, x);
  EXPECT_FALSE(narrowed(causal)) << causal;
}

TEST(NarrowEarly, NotWhereOtherRowsAreRead) {
  Weights w;
  Tensor x = randn({3, 10, 16});
  auto both = [&](const Tensor& t) {
    Tensor y = linear(t, w.up);
    return relu(y.select(1, 0)) + y.sum({1});
  };
  EXPECT_FALSE(narrowed(check(both, x)));
  auto two = [&](const Tensor& t) {
    Tensor y = linear(t, w.up);
    return relu(y.select(1, 0)) + relu(y.select(1, 1));
  };
  EXPECT_FALSE(narrowed(check(two, x)));
  auto written = [&](const Tensor& t) {
    Tensor y = linear(t, w.up);
    y.select(1, 0).add_(1);
    return relu(y.select(1, 0));
  };
  EXPECT_FALSE(narrowed(check(written, x)));
}

}  // namespace
}  // namespace deft
