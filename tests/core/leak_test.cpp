// Cycles that other frameworks leak through leave no node and no byte here.
#include "core/checkpoint.h"
#include "core/function.h"
#include "core/hooks.h"
#include "core_util.h"

namespace deft {
namespace {

TEST(Leak, CreateGraphThroughDotGrad) {
  // x -> x.grad -> graph -> x would be a cycle as long as .grad is set; clearing it must free everything.
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    (x * x * x).sum().backward({.create_graph = true});
    EXPECT_TRUE(x.grad().requires_grad());
    (x.grad() * x.grad()).sum().backward();
    x.zero_grad();
  });
}

TEST(Leak, CreateGraphThroughGrad) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    for (int i = 0; i < 3; ++i) {
      Tensor g = grad({(x.exp() * x).tanh().sum()}, {x}, {}, {.create_graph = true})[0];
      g = grad({g.sum()}, {x}, {}, {.create_graph = true})[0];
    }
  });
}

TEST(Leak, HooksThatHoldTensors) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64}), other = sample({64}, 2);
    Tensor y = x.exp();
    y.register_hook([other](const Tensor& g) { return g * other; });
    x.register_hook([other](const Tensor& g) { return g * other; });
    register_node_hook(y, [other](std::vector<Tensor>&) {});
    y.sum().backward();
  });
}

TEST(Leak, HooksOfAGraphThatIsDropped) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    Tensor y = x.exp();
    Tensor captured = sample({64}, 3);
    y.register_hook([captured](const Tensor& g) { return g * captured; });
  });
}

TEST(Leak, ExceptionsInTheMiddleOfBackward) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    Tensor h = x.exp(), k = h.tanh();
    Tensor branch = (h * k).exp();
    h.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("hook"); });
    Tensor loss = (branch + k).sum();
    EXPECT_THROW(loss.backward(), std::runtime_error);
    EXPECT_THROW(loss.backward(), GradError) << "part of it was freed";
  });
}

TEST(Leak, InPlaceAndViews) {
  expect_leaves_nothing([] {
    Tensor x = leaf({8, 8});
    Tensor y = x * 2;
    for (int i = 0; i < 8; ++i) y[i].mul_(y[(i + 1) % 8]);
    Tensor v = y.view({64});
    y.add_(v.view({8, 8}));
  });
}

TEST(Leak, SavedOutputOfAnInPlaceOp) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    Tensor y = x * 1;
    y.tanh_();  // its node keeps the bytes of y, whose grad_fn it is
    Tensor z = x * 1;
    z[3].exp_();
  });
}

TEST(Leak, LeafGradientsGoWithTheLeaf) {
  expect_leaves_nothing([] {
    for (int i = 0; i < 3; ++i) {
      Tensor x = leaf({64});
      (x * x).sum().backward();
    }
  });
}

TEST(Leak, TrainingLoopIsFlat) {
  Tensor w = leaf({64});
  auto step = [&] {
    Tensor loss = (w * w).exp().sum();
    loss.backward();
    NoGradGuard off;
    w.sub_(w.grad() * 1e-3);
    w.zero_grad();
  };
  step();
  Alive before;
  int64_t system = system_allocations();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(Alive(), before);
#ifndef DEFT_ASAN
  EXPECT_EQ(system_allocations(), system) << "steady state takes nothing from the system";
#else
  (void)system;
#endif
}

}  // namespace
}  // namespace deft
