#include <gtest/gtest.h>

#include "amp/autocast.h"
#include "core/grad_mode.h"
#include "graph/compile.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
double far(const Tensor& a, const Tensor& b) {
  return (a.to(DType::f64) - b.to(DType::f64)).abs().amax().item() / b.to(DType::f64).abs().amax().item();
}
CompileOptions without(const std::string& names) { return {.passes = graph::without({}, names)}; }

// Convolutions, norms, pooling, a residual, and a head that needs NCHW.
struct Net {
  nn::Conv2d a{3, 16, 3, {.padding = 1}}, b{16, 16, 3, {.padding = 1}}, c{16, 32, 1};
  nn::BatchNorm2d norm{16};
  Tensor head = randn({10, 32 * 7 * 7});
  Net() { norm.eval(); }
  Tensor features(const Tensor& x) {
    Tensor y = max_pool2d(a(x).relu(), {2});
    y = norm(b(y) + y);
    return avg_pool2d(silu(c(y)), {2});
  }
  Tensor classes(const Tensor& x) { return linear(features(x).flatten(1), head); }
};

TEST(AssignLayout, FollowsTheNetwork) {
  NoGradGuard no_grad;
  Net net;
  auto f = [&](const Tensor& x) { return net.classes(x); };
  Tensor x = randn({2, 3, 28, 28}), y = randn({2, 3, 28, 28});
  auto compiled = compile(f, without("cost_model"));
  compiled(x);
  EXPECT_LE(far(compiled(y), f(y)), 1e-4);
  std::string text = compiled.explain();
  // The image comes in, and the last result goes out for flatten().
  EXPECT_TRUE(contains(text, "3 convolutions with channels innermost, 1 conversions in, 1 out, 0 inside")) << text;
}

TEST(AssignLayout, ResultsKeepTheirOrder) {
  NoGradGuard no_grad;
  Net net;
  auto f = [&](const Tensor& x) { return net.features(x); };
  Tensor x = randn({2, 3, 28, 28});
  auto compiled = compile(f, without("cost_model"));
  compiled(x);
  Tensor found = compiled(x), wanted = f(x);
  EXPECT_TRUE(found.strides() == wanted.strides());
  EXPECT_LE(far(found, wanted), 1e-4);
  EXPECT_TRUE(contains(compiled.explain(), "1 conversions in, 1 out")) << compiled.explain();
  // Nothing to do: the caller has this order already.
  auto last = compile(f, without("cost_model"));
  Tensor transposed = x.contiguous(MemoryFormat::channels_last);
  last(transposed);
  EXPECT_LE(far(last(transposed), wanted), 1e-4);
  EXPECT_FALSE(contains(last.explain(), "assign_layout:")) << last.explain();
}

// An image of one channel is in both layouts: its convolution writes the layout that the network needs next.
TEST(AssignLayout, OneChannel) {
  NoGradGuard no_grad;
  nn::Conv2d first(1, 16, 3, {.padding = 1}), second(16, 16, 3);
  auto f = [&](const Tensor& x) { return second(first(x).relu().contiguous(MemoryFormat::channels_last)); };
  Tensor x = randn({2, 1, 20, 20});
  auto compiled = compile(f);
  compiled(x);
  Tensor found = compiled(x), wanted = f(x);
  EXPECT_LE(far(found, wanted), 1e-5);
  EXPECT_TRUE(found.strides() == wanted.strides());
  std::string text = compiled.explain();
  EXPECT_TRUE(contains(text, "1 convolutions with channels innermost, 0 conversions in, 0 out, 0 inside")) << text;
  EXPECT_FALSE(contains(text, " clone(")) << text;
  // Where the result must be NCHW, it pays to keep it so.
  auto alone = compile([&](const Tensor& t) { return first(t); });
  alone(x);
  EXPECT_TRUE(alone(x).is_contiguous());
  EXPECT_TRUE(contains(alone.explain(), "left: assign_layout: 1 convolutions")) << alone.explain();
}

TEST(AssignLayout, WritesAndViews) {
  NoGradGuard no_grad;
  Net net;
  using F = std::function<Tensor(const Tensor&)>;
  const F functions[] = {[&](const Tensor& x) {
                           Tensor y = net.a(x);
                           y.relu_();
                           return net.b(y).mean({2, 3});
                         },
                         [&](const Tensor& x) {  // written through a view
                           Tensor y = net.a(x), part = y.narrow(1, 0, 4);
                           part.mul_(2);
                           return net.b(y) + y;
                         },
                         [&](const Tensor& x) {  // and after it was read
                           Tensor y = net.a(x), z = net.b(y);
                           y.add_(1);
                           return z + y;
                         },
                         [&](const Tensor& x) {  // written by what lies in another order
                           Tensor y = net.a(x) * 1;
                           y.add_(x.narrow(1, 0, 1));
                           return net.b(y).view({2, 16, -1}).softmax(-1);
                         },
                         [&](const Tensor& x) {
                           return cat({net.a(x), x}, 1).sum({1}) + net.a(x).amax({1});
                         },
                         [&](const Tensor& x) {
                           Tensor y = net.a(x);
                           y.relu_();
                           return y;
                         }};
  const char* conversions[] = {"1 conversions in, 0 out, 1 inside", "2 conversions in, 2 out, 0 inside",
                               "1 conversions in, 1 out, 0 inside", "1 conversions in, 1 out, 0 inside",
                               "1 conversions in, 0 out, 2 inside", "1 conversions in, 1 out, 0 inside"};
  Tensor x = randn({2, 3, 12, 12}), y = randn({2, 3, 12, 12});
  for (size_t i = 0; i < std::size(functions); ++i) {
    auto compiled = compile(functions[i], without("cost_model"));
    compiled(x);
    Tensor found = compiled(y), wanted = functions[i](y);
    EXPECT_LE(far(found, wanted), 1e-4) << i << "\n" << compiled.explain();
    EXPECT_TRUE(found.strides() == wanted.strides()) << i;
    EXPECT_TRUE(contains(compiled.explain(), "done: assign_layout")) << i << "\n" << compiled.explain();
    EXPECT_TRUE(contains(compiled.explain(), conversions[i])) << i << "\n" << compiled.explain();
  }
}

TEST(AssignLayout, TheCostModelDecides) {
  NoGradGuard no_grad;
  nn::Conv2d small(3, 4, 1), large(64, 64, 3, {.padding = 1});
  auto tiny = compile([&](const Tensor& x) { return small(x); });
  Tensor x = randn({1, 3, 8, 8});
  tiny(x);
  EXPECT_TRUE(contains(tiny.explain(), "left: assign_layout: 1 convolutions")) << tiny.explain();
  EXPECT_LE(far(tiny(x), small(x)), 1e-5);
  AutocastGuard amp(DType::bf16);
  auto f = [&](const Tensor& t) { return large(large(large(t))); };
  auto deep = compile(f);
  Tensor image = randn({1, 64, 28, 28});
  deep(image);
  EXPECT_TRUE(contains(deep.explain(), "done: assign_layout: 3 convolutions")) << deep.explain();
  EXPECT_LE(far(deep(image), f(image)), 0x1p-6);
  auto off = compile(f, without("assign_layout"));
  off(image);
  EXPECT_TRUE(contains(off.explain(), "assign_layout: switched off"));
}

}  // namespace
}  // namespace deft
