// Gradients of matrices that are used transposed, as in x.matmul(w.t()): made in the leaf's own layout, and not copied.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string_view>

#include "core/hooks.h"
#include "core/observer.h"
#include "ops/binary.h"
#include "ops/matmul.h"
#include "ops/random.h"
#include "ops/reduce.h"
#include "ops/sample_cases.h"
#include "ops/shape_ops.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "runtime/context.h"

namespace deft {
namespace {

struct Clones : Observer {
  int count = 0;
  void kernel_ran(const KernelCall& call, const Site&) override {
    count += std::string_view(call.def.info.name) == "clone";
  }
};
int clones_of(const std::function<void()>& f) {
  Clones seen;
  set_observer(&seen);
  context().bits |= kProfile;
  f();
  context().bits &= ~kProfile;
  set_observer(nullptr);
  return seen.count;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

struct Case {
  const char* name;
  Shape leaf;  // transposed in f
  std::function<Tensor(const Tensor& transposed)> f;
};

TEST(TransposedGrad, IsMadeInTheLayoutOfTheLeaf) {
  manual_seed(3);
  const Tensor x = randn({2, 20, 40}), row = randn({20}), left = randn({5, 33, 40}), narrow = x.to(DType::bf16);
  const Case cases[] = {
      {"linear", {40, 33}, [&](const Tensor& t) { return linear(x, t); }},
      {"right", {33, 40}, [&](const Tensor& t) { return matmul(x, t); }},
      {"left", {20, 33}, [&](const Tensor& t) { return matmul(t, x[0]); }},
      {"left of a vector", {20, 33}, [&](const Tensor& t) { return matmul(t, row); }},
      {"batches", {5, 20, 40}, [&](const Tensor& t) { return matmul(left, t); }},
      {"left of batches", {5, 40, 20}, [&](const Tensor& t) { return matmul(t, left.t()); }},
      {"behind a cast", {40, 33}, [&](const Tensor& t) { return linear(narrow, t.to(DType::bf16)); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Tensor leaf = randn(c.leaf).requires_grad_(true), other = leaf.detach().t().contiguous().requires_grad_(true);
    Tensor y = c.f(leaf.t());
    const Tensor g = randn(y.sizes()).to(y.dtype());
    EXPECT_EQ(clones_of([&] { y.backward(g); }), 0);
    c.f(other).backward(g);
    EXPECT_TRUE(leaf.grad().is_contiguous());
    EXPECT_FALSE(leaf.grad().is_view());
    EXPECT_TRUE(same_bits(leaf.grad().t(), other.grad()));
    leaf.grad().add_(1);  // its own
  }
}

// Whoever else sees the gradient keeps what he saw.
TEST(TransposedGrad, IsCopiedWhereOthersSeeIt) {
  manual_seed(4);
  const Tensor x = randn({8, 6});
  const TensorHook none;
  Tensor kept;
  const TensorHook keep = [&](const Tensor& g) { return kept = g; };
  const TensorHook keep_alias = [&](const Tensor& g) { return kept = g.detach(), g; };
  for (const auto& [of_leaf, of_view] : {std::pair{keep, none}, {none, keep}, {keep_alias, none}, {none, keep_alias}}) {
    Tensor w = randn({6, 4}).requires_grad_(true), transposed = w.t();
    if (of_leaf) w.register_hook(of_leaf);
    if (of_view) transposed.register_hook(of_view);
    linear(x, transposed).sum().backward();
    const Tensor before = kept.clone();
    w.grad().add_(1);
    EXPECT_TRUE(same_bits(kept, before));
  }
  Tensor w = randn({6, 4}).requires_grad_(true), v = randn({6, 4}).requires_grad_(true);
  linear(x, w.t() + v.t()).sum().backward();
  ASSERT_TRUE(same_bits(w.grad(), v.grad()));
  w.grad().add_(1);
  EXPECT_FALSE(same_bits(w.grad(), v.grad()));
}

// A part of a gradient does not keep the memory of all of it.
TEST(TransposedGrad, IsCopiedWhereItIsAPart) {
  Tensor w = randn({6, 4}).requires_grad_(true), v = randn({60, 4}).requires_grad_(true);
  linear(randn({8, 4}), cat({w, v}, 0)).sum().backward();
  EXPECT_EQ(w.grad().impl()->storage->nbytes, 6u * 4 * sizeof(float));
  EXPECT_EQ(v.grad().impl()->storage->nbytes, 60u * 4 * sizeof(float));
}

TEST(TransposedGrad, OfTheGradient) {
  manual_seed(5);
  Tensor w = randn({6, 4}, {DType::f64}).requires_grad_(true), x = randn({8, 6}, {DType::f64}).requires_grad_(true);
  auto second = [&](const Tensor& weight, const Tensor& leaf) {
    const Tensor first = grad({linear(x, weight).tanh().sum()}, {leaf}, {}, {.create_graph = true})[0];
    return grad({first.square().sum()}, {x})[0];
  };
  const Tensor u = w.detach().t().contiguous().requires_grad_(true);
  EXPECT_LE((second(w.t(), w) - second(u, u)).abs().amax().item<double>(), 1e-12);
}

}  // namespace
}  // namespace deft
