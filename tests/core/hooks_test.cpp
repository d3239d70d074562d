// Hooks of tensors, leaves and nodes: when they run, in which order, what they may change, and that they keep nothing
// alive.
#include "core/hooks.h"

#include "core_util.h"

namespace deft {
namespace {

TEST(TensorHook, SeesAndReplacesTheGradient) {
  Tensor x = leaf({2});
  Tensor h = x * 2, seen;
  h.register_hook([&](const Tensor& g) {
    seen = g;
    return g * 10;
  });
  (h * 3).sum().backward();
  EXPECT_VALUES(seen, 3, 3);
  EXPECT_VALUES(x.grad(), 60, 60);
}

TEST(TensorHook, UndefinedResultLeavesTheGradient) {
  Tensor x = leaf({2});
  int calls = 0;
  x.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  (x * 3).sum().backward();
  EXPECT_VALUES(x.grad(), 3, 3);
  EXPECT_EQ(calls, 1);
}

TEST(TensorHook, OnALeafRunsOncePerBackwardWithTheSum) {
  Tensor x = leaf({2});
  std::vector<std::vector<double>> seen;
  x.register_hook([&](const Tensor& g) {
    seen.push_back(values(g));
    return g * 2;
  });
  for (int pass = 0; pass < 2; ++pass) (x * 3 + x * 4 + x).sum().backward();
  EXPECT_EQ(seen, (std::vector<std::vector<double>>{{8, 8}, {8, 8}}));
  EXPECT_VALUES(x.grad(), 32, 32);
  Tensor g = grad({(x * 5).sum()}, {x})[0];
  EXPECT_VALUES(g, 10, 10);
}

TEST(TensorHook, OrderIsThatOfRegistrationAndRetainGradIsLast) {
  Tensor x = leaf({1});
  Tensor h = x * 1;
  std::string order;
  h.retain_grad();
  h.register_hook([&](const Tensor& g) {
    order += 'a';
    return g * 2;
  });
  h.register_hook([&](const Tensor& g) {
    order += 'b';
    return g + 1;
  });
  register_node_hook(
      h, [&](std::vector<Tensor>&) { order += 'c'; },
      [&](std::vector<Tensor>&, const std::vector<Tensor>&) { order += 'd'; });
  h.sum().backward();
  EXPECT_EQ(order, "abcd");
  EXPECT_VALUES(h.grad(), 3);
  EXPECT_VALUES(x.grad(), 3);
}

TEST(TensorHook, CanBeRemovedAlsoByItself) {
  Tensor x = leaf({1});
  int a = 0, b = 0;
  HookHandle first, second;
  first = x.register_hook([&](const Tensor&) {
    ++a;
    x.remove_hook(first);
    return Tensor();
  });
  second = x.register_hook([&](const Tensor&) {
    ++b;
    return Tensor();
  });
  for (int i = 0; i < 3; ++i) (x * 1).sum().backward();
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, 3);
  x.remove_hook(second);
  (x * 1).sum().backward();
  EXPECT_EQ(b, 3);
  x.remove_hook(second);  // again: nothing happens
}

TEST(TensorHook, WrongResultIsAnError) {
  Tensor x = leaf({2});
  x.register_hook([](const Tensor&) { return zeros({3}, DType::f64); });
  EXPECT_THROW((x * 1).sum().backward(), GradError);
  Tensor y = leaf({2});
  y.register_hook([](const Tensor&) { return zeros({2}, DType::f32); });
  EXPECT_THROW((y * 1).sum().backward(), GradError);
  EXPECT_FALSE(y.grad().defined());
}

TEST(TensorHook, NeedsATensorThatRequiresGrad) {
  EXPECT_THROW(sample({2}).register_hook([](const Tensor& g) { return g; }), GradError);
  EXPECT_THROW(leaf({2}).register_hook(nullptr), ValueError);
}

TEST(TensorHook, RunsOnlyForItsOutputAndItsValue) {
  Tensor x = leaf({2});
  Tensor y = x * 2;
  int old_value = 0, new_value = 0;
  y.register_hook([&](const Tensor&) {
    ++old_value;
    return Tensor();
  });
  Tensor before = y * 1;
  y.mul_(3);
  y.register_hook([&](const Tensor&) {
    ++new_value;
    return Tensor();
  });
  before.sum().backward({.retain_graph = true});
  EXPECT_EQ(old_value, 1);
  EXPECT_EQ(new_value, 0);
  y.sum().backward();
  EXPECT_EQ(new_value, 1);
  EXPECT_EQ(old_value, 2);
}

TEST(TensorHook, ExceptionPassesThrough) {
  expect_leaves_nothing([] {
    Tensor x = leaf({2});
    Tensor h = x * 1;
    h.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("hook"); });
    EXPECT_THROW(h.exp().sum().backward(), std::runtime_error);
    EXPECT_TRUE(is_grad_enabled());
    EXPECT_FALSE(in_backward());
    EXPECT_FALSE(x.grad().defined());
  });
}

TEST(TensorHook, MayCallBackwardItself) {
  Tensor x = leaf({2}), w = leaf({2}, 2);
  Tensor h = x * 1;
  h.register_hook([&](const Tensor& g) {
    EXPECT_TRUE(in_backward());
    enable_grad([&] { (w * 5).sum().backward(); });
    return g;
  });
  h.sum().backward();
  EXPECT_VALUES(w.grad(), 5, 5);
  EXPECT_VALUES(x.grad(), 1, 1);
}

TEST(RetainGrad, KeepsIntermediateGradients) {
  Tensor x = leaf({2});
  Tensor h = x * 2;
  h.retain_grad();
  h.retain_grad();  // twice is once
  Tensor y = (h * 3).sum();
  EXPECT_FALSE(h.grad().defined());
  y.backward({.retain_graph = true});
  EXPECT_VALUES(h.grad(), 3, 3);
  y.backward();
  EXPECT_VALUES(h.grad(), 6, 6);
  x.retain_grad();  // a leaf has its gradient anyway
  EXPECT_VALUES(x.grad(), 12, 12);
}

TEST(RetainGrad, FollowsInPlaceWrites) {
  Tensor x = leaf({2});
  Tensor h = x * 2;
  h.retain_grad();
  h.mul_(5);
  h.sum().backward();
  EXPECT_VALUES(h.grad(), 1, 1);
  EXPECT_VALUES(x.grad(), 10, 10);
}

TEST(RetainGrad, DoesNotKeepTheTensorAlive) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    Tensor y;
    {
      Tensor h = x * 2;
      h.retain_grad();
      y = h.sum();
    }
    y.backward();
  });
}

TEST(NodeHook, ChangesGradientsBeforeAndAfter) {
  Tensor x = leaf({2});
  Tensor y = x * 2;
  HookHandle handle = register_node_hook(
      y.grad_fn(), [](std::vector<Tensor>& g) { g[0] = g[0] + 1; },
      [](std::vector<Tensor>& in, const std::vector<Tensor>& out) {
        EXPECT_VALUES(out[0], 2, 2);
        in[0] = in[0] * 100;
      });
  y.sum().backward({.retain_graph = true});
  EXPECT_VALUES(x.grad(), 400, 400);
  remove_node_hook(y.grad_fn(), handle);
  x.zero_grad();
  y.sum().backward();
  EXPECT_VALUES(x.grad(), 2, 2);
}

TEST(NodeHook, OnALeafRunsAroundTheAccumulation) {
  Tensor x = leaf({2});
  std::vector<double> after;
  HookHandle handle = register_node_hook(
      x, [](std::vector<Tensor>& g) { g[0] = g[0] * 2; },
      [&](std::vector<Tensor>& in, const std::vector<Tensor>& out) {
        EXPECT_TRUE(in.empty());
        EXPECT_VALUES(out[0], 8, 8);
        after = values(x.grad());
        x.zero_grad();  // an optimizer in backward would do this
      });
  (x * 3 + x).sum().backward();
  EXPECT_EQ(after, (std::vector<double>{8, 8}));
  EXPECT_FALSE(x.grad().defined());
  remove_node_hook(x, handle);
  x.sum().backward();
  EXPECT_VALUES(x.grad(), 1, 1);
}

TEST(NodeHook, WrongUseIsAnError) {
  Tensor x = leaf({2});
  EXPECT_THROW(register_node_hook(NodePtr(), [](std::vector<Tensor>&) {}), ValueError);
  EXPECT_THROW(register_node_hook(x, nullptr), ValueError);
  EXPECT_THROW(register_node_hook(sample({2}), [](std::vector<Tensor>&) {}), GradError);
  Tensor y = x * 1;
  register_node_hook(y, [](std::vector<Tensor>& g) { g.clear(); });
  EXPECT_THROW(y.sum().backward(), GradError);
}

}  // namespace
}  // namespace deft
