// Running out of memory at every single allocation of a training step: a clean error, nothing leaked, the next call
// works.
#include "core/checkpoint.h"
#include "core/function.h"
#include "core/hooks.h"
#include "core_util.h"

namespace deft {
namespace {

// Runs f with the n-th allocation failing, for n = 0, 1, ... until f gets through. Returns the number of failures.
template <class F>
int fail_everywhere(F&& f) {
  f();  // caches and working memory are there
  Alive before;
  int failures = 0;
  for (bool through = false; !through && failures < 10000;) {
    fail_allocation_after(failures);
    try {
      f();
      through = true;
    } catch (const OutOfMemoryError&) {
      ++failures;
    }
    fail_allocation_after(-1);
    EXPECT_EQ(Alive(), before) << "after failure of allocation " << failures;
    EXPECT_TRUE(is_grad_enabled());
    EXPECT_FALSE(is_inference_mode_enabled());
    EXPECT_FALSE(in_backward());
    EXPECT_NO_THROW(f()) << "the next call works";
    EXPECT_EQ(Alive(), before);
    if (testing::Test::HasFailure()) break;
  }
  return failures;
}

struct Model {
  Tensor w1 = leaf({4, 8}, 1), b = leaf({8}, 2), w2 = leaf({4, 8}, 3), x = sample({4, 8}, 4);
  void zero_grad() const {
    for (const Tensor& t : {w1, b, w2}) t.zero_grad();
  }
  Tensor forward() const { return ((x * w1 + b).tanh() * w2).exp().sum({1}).sum(); }
  void update() const {
    NoGradGuard off;
    for (Tensor t : {w1, b, w2}) t.sub_(t.grad() * 1e-3);
  }
};
struct ZeroAtExit {
  const Model& m;
  ~ZeroAtExit() { m.zero_grad(); }
};

TEST(Fault, TrainStep) {
  Model m;
  int n = fail_everywhere([&] {
    ZeroAtExit cleanup{m};
    m.forward().backward();
    m.update();
  });
  EXPECT_GT(n, 30);
}

TEST(Fault, CreateGraph) {
  Model m;
  int n = fail_everywhere([&] {
    Tensors g = grad({m.forward()}, {m.w1, m.b}, {}, {.create_graph = true});
    ZeroAtExit cleanup{m};
    (g[0] * g[0]).sum().backward();
  });
  EXPECT_GT(n, 50);
}

TEST(Fault, InPlaceOnViews) {
  Model m;
  int n = fail_everywhere([&] {
    ZeroAtExit cleanup{m};
    Tensor h = m.x * m.w1, row = h[1];
    h[0].mul_(m.b);
    row.add_(h[0]);
    h.mul_(h);
    (h * row).sum().backward();
  });
  EXPECT_GT(n, 30);
}

struct Square : Function<Square> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    Tensor y = x * x;
    ctx.save_for_backward({x, y});
    return y;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) { return {grads[0] * ctx.saved()[0] * 2}; }
};

TEST(Fault, CustomFunctionAndCheckpointAndHooks) {
  Model m;
  int n = fail_everywhere([&] {
    ZeroAtExit cleanup{m};
    Tensor h = checkpoint([&](const Tensors& in) { return Tensors{Square::apply(in[0] * m.w1).tanh()}; }, {m.x})[0];
    h.retain_grad();
    h.register_hook([](const Tensor& g) { return g * 2; });
    (h * m.w2).sum().backward();
  });
  EXPECT_GT(n, 30);
}

TEST(Fault, LargeBuffers) {
  int n = fail_everywhere([] {
    Tensor w = ones({1000, 100}, with_grad());
    ((w * 2).exp() * w).sum().backward();
  });
  EXPECT_GT(n, 5);
}

TEST(Fault, ParametersAreUnchangedByAFailedForwardOrBackward) {
  Model m;
  std::vector<double> before = values(m.w1);
  for (int n = 0; n < 25; ++n) {
    fail_allocation_after(n);
    try {
      m.forward().backward();
    } catch (const OutOfMemoryError&) {
    }
    fail_allocation_after(-1);
    m.zero_grad();
    EXPECT_EQ(values(m.w1), before);
  }
}

}  // namespace
}  // namespace deft
