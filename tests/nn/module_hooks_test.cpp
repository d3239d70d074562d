// Hooks of modules: when they run, what they may replace, and that removing one takes it off.
#include "nn/module_hooks.h"

#include "graph/compile.h"
#include "nn/activation.h"
#include "nn/compile_module.h"
#include "nn/containers.h"
#include "nn/linear.h"
#include "nn_util.h"

namespace deft::nn {
namespace {

struct Doubler : Module {
  Tensor forward(const Tensor& x) override { return x * 2; }
};

TEST(ModuleHooks, SeeAndReplaceInputAndOutput) {
  Doubler m;
  std::vector<std::string> order;
  ModuleHookHandle before = m.register_forward_pre_hook([&](Module& self, std::vector<Tensor>& in) {
    EXPECT_EQ(&self, &m);
    order.push_back("before");
    in[0] = in[0] + 1;
  });
  m.register_forward_pre_hook([&](Module&, std::vector<Tensor>& in) {
    order.push_back("second");
    EXPECT_VALUES(in[0], 2);
  });
  ModuleHookHandle after = m.register_forward_hook([&](Module&, const std::vector<Tensor>& in, Tensor& y) {
    order.push_back("after");
    EXPECT_VALUES(in[0], 2);
    EXPECT_VALUES(y, 4);
    y = y * 10;
  });
  EXPECT_VALUES(m(ones({1}, DType::f64)), 40);
  EXPECT_EQ(order, (std::vector<std::string>{"before", "second", "after"}));
  EXPECT_VALUES(m.forward(ones({1}, DType::f64)), 2);  // hooks belong to calls
  before.remove();
  before.remove();
  after.remove();
  order.clear();
  m.register_forward_pre_hook([](Module&, std::vector<Tensor>& in) { in.clear(); });
  expect_error<ValueError>([&] { m(full({1}, 2, DType::f64)); }, "one defined input");
  EXPECT_EQ(order, (std::vector<std::string>{"second"}));
  expect_error<ValueError>([&] { m.register_forward_hook(nullptr); }, "empty");
}

TEST(ModuleHooks, SeeAndReplaceGradients) {
  Doubler m;
  int calls = 0;
  ModuleHookHandle handle =
      m.register_full_backward_hook([&](Module&, std::vector<Tensor>& grad_in, const std::vector<Tensor>& grad_out) {
        ++calls;
        EXPECT_VALUES(grad_out[0], 3, 3);
        EXPECT_VALUES(grad_in[0], 6, 6);
        grad_in[0] = grad_in[0] + 1;
      });
  Tensor x = leaf({2});
  (m(x) * 3).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_VALUES(x.grad(), 7, 7);
  {
    NoGradGuard no_grad;
    EXPECT_FALSE(m(x).requires_grad());
  }
  handle.remove();
  x.zero_grad();
  (m(x) * 3).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_VALUES(x.grad(), 6, 6);
}

TEST(ModuleHooks, OfGradientsWithoutOneOfTheInput) {
  Linear m(2, 1);
  int calls = 0;
  m.register_full_backward_hook([&](Module&, std::vector<Tensor>& grad_in, const std::vector<Tensor>& grad_out) {
    ++calls;
    EXPECT_EQ(grad_in.size(), 1u);
    EXPECT_FALSE(grad_in[0].defined());
    EXPECT_VALUES(grad_out[0], 1);
  });
  m(ones({1, 2})).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_VALUES(m.weight.grad(), 1, 1);
}

TEST(ModuleHooks, RunInChildrenAndOutliveTheirModule) {
  ModuleHookHandle handle;
  {
    Sequential net;
    Linear& first = net.add<Linear>(2, 3);
    net.add<ReLU>();
    int seen = 0;
    handle = first.register_forward_hook([&](Module&, const std::vector<Tensor>&, Tensor&) { ++seen; });
    net(ones({1, 2}));
    EXPECT_EQ(seen, 1);
    EXPECT_EQ(net.named_parameters().size(), 2u);
  }
  handle.remove();  // the module is gone
}

TEST(ModuleHooks, ChangeCompiledModules) {
  Doubler m;
  auto fast = compile(m);
  Tensor x = sample({3});
  expect_close(fast(x), x * 2);
  ModuleHookHandle handle = m.register_forward_hook([](Module&, const std::vector<Tensor>&, Tensor& y) { y = y + 5; });
  expect_close(fast(x), x * 2 + 5);
  expect_close(fast(x), x * 2 + 5);
  handle.remove();
  expect_close(fast(x), x * 2);
}

}  // namespace
}  // namespace deft::nn
