// Custom functions: saving, in-place, non-differentiable outputs, wrong gradients, double backward, nothing leaked.
#include "core/function.h"

#include "core/checkpoint.h"
#include "core_util.h"

namespace deft {
namespace {

struct ScaledExp : Function<ScaledExp> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x, double scale) {
    EXPECT_FALSE(is_grad_enabled()) << "forward runs with gradients off";
    Tensor y = (x * scale).exp();
    ctx.set("scale", scale);
    ctx.save_for_backward({y});
    return y;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    return {grads[0] * ctx.saved()[0] * ctx.get<double>("scale")};
  }
};

struct Product : Function<Product> {  // saves inputs
  static Tensor forward(FunctionContext& ctx, const Tensor& a, const Tensor& b) {
    ctx.save_for_backward({a, b});
    return a * b;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    Tensors s = ctx.saved();
    return {ctx.needs_input_grad(0) ? grads[0] * s[1] : Tensor(), ctx.needs_input_grad(1) ? grads[0] * s[0] : Tensor()};
  }
};

TEST(CustomFunction, GradientAndName) {
  Tensor x = leaf({3});
  Tensor y = ScaledExp::apply(x, 2.0);
  EXPECT_TRUE(y.requires_grad());
  EXPECT_STREQ(y.grad_fn_name(), "ScaledExp");
  y.sum().backward();
  expect_close(x.grad(), (x.detach() * 2).exp() * 2);
  EXPECT_TRUE(is_grad_enabled());
}

TEST(CustomFunction, NothingIsRecordedWithoutNeed) {
  EXPECT_EQ(nodes_made_by([] { return ScaledExp::apply(sample({3}), 2.0); }), 0);
  Tensor x = leaf({3});
  EXPECT_EQ(nodes_made_by([&] { return no_grad([&] { return ScaledExp::apply(x, 2.0); }); }), 0);
  EXPECT_EQ(nodes_made_by([&] { return inference_mode([&] { return ScaledExp::apply(x, 2.0); }); }), 0);
}

TEST(CustomFunction, DoubleBackwardThroughInputsAndOutputs) {
  Tensor x = leaf({3});
  Tensor g = grad({ScaledExp::apply(x, 2.0).sum()}, {x}, {}, {.create_graph = true})[0];
  Tensor gg = grad({g.sum()}, {x})[0];
  expect_close(gg, (x.detach() * 2).exp() * 4);
  Tensor a = leaf({3}, 2), b = leaf({3}, 3);
  Tensor ga = grad({(Product::apply(a, b) * Product::apply(a, b)).sum()}, {a}, {}, {.create_graph = true})[0];
  auto second = grad({ga.sum()}, {a, b});
  expect_close(second[0], b.detach() * b.detach() * 2);
  expect_close(second[1], a.detach() * b.detach() * 4);
}

struct Leaks : Function<Leaks> {
  static inline Tensor inner;
  static Tensor forward(FunctionContext&, const Tensor& x) {
    inner = x * 2;
    return inner + 1;
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0] * 2}; }
};
TEST(CustomFunction, TensorsOfForwardNameTheCall) {
  Tensor x = leaf({});
  const int line = __LINE__ + 1;
  Leaks::apply(x);
  expect_error<GradError>([] { Leaks::inner.backward(); },
                          "gradients off, turned off at function_test.cpp:" + std::to_string(line));
  NoGradGuard outer;
  const int guard = __LINE__ - 1;
  Leaks::apply(x);
  GradModeGuard on(true);
  expect_error<GradError>([] { Leaks::inner.backward(); },
                          "gradients off, turned off at function_test.cpp:" + std::to_string(guard));
  Leaks::inner = {};
}

// What a formula returns may be a view of all of its memory, or of memory that is not ours: leaves get their own.
struct Returns : Function<Returns> {
  static inline std::function<Tensor()> gradient;
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 1; }
  static Tensors backward(FunctionContext&, const Tensors&) { return {gradient()}; }
};
TEST(CustomFunction, GradientsOfLeavesHaveMemoryOfTheirOwn) {
  std::vector<double> outside = {1, 2, 3, 4};
  Tensor kept = ones({4}, DType::f64);
  const std::function<Tensor()> gradients[] = {
      [] { return full({4}, 2, DType::f64).narrow(0, 0, 1).expand({4}); },
      [] { return ones({4}, DType::f64).as_strided({4}, {0}); },
      [&] { return from_blob(outside.data(), {4}, DType::f64); },
      [&] {
        return from_blob(outside.data(), {2, 2}, DType::f64).view({4});
      },
      [&] { return kept; },
      [&] {
        return kept.view({2, 2}).view({4});
      },
      [] {
        return ones({2, 2}, DType::f64).view({4});
      },
  };
  for (const auto& gradient : gradients) {
    Returns::gradient = gradient;
    const std::vector<double> want = values(gradient());
    Tensor x = leaf({4});
    Returns::apply(x).sum().backward();
    EXPECT_EQ(values(x.grad()), want);
    x.grad().add_(10);
    EXPECT_EQ(values(x.grad()), values(gradient() + 10));
    EXPECT_EQ(values(gradient()), want);
    EXPECT_FALSE(x.grad().is_view());
  }
  Returns::gradient = {};
}

TEST(CustomFunction, NeedsInputGrad) {
  Tensor a = leaf({3}), b = sample({3}, 2);
  Product::apply(a, b).sum().backward();
  expect_close(a.grad(), b);
}

TEST(CustomFunction, SavedInputIsCheckedForWrites) {
  Tensor a = leaf({3}), b = sample({3}, 2);
  Tensor y = Product::apply(a, b).sum();
  b.add_(1);
  expect_error<InplaceError>([&] { y.backward(); },
                             "Product: input 1 [3] f64, saved for backward at function_test.cpp:");
  Tensor z = ScaledExp::apply(a, 1.0);
  no_grad([&] { z.add_(1); });
  expect_error<InplaceError>([&] { z.sum().backward(); }, "ScaledExp: output 0 [3] f64");
}

TEST(CustomFunction, IsFreedAfterBackwardAndWhenDropped) {
  expect_leaves_nothing([] {
    Tensor x = leaf({100});
    Tensor y = ScaledExp::apply(x, 2.0);
    Alive held;
    y.sum().backward();
    EXPECT_LT(Alive().saved, held.saved);
    EXPECT_THROW(y.sum().backward(), GradError);
  });
  expect_leaves_nothing([] { ScaledExp::apply(leaf({100}), 2.0); });  // no cycle through the saved output
}

struct KeepsOutputByName : Function<KeepsOutputByName> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    Tensor y = x.exp();
    ctx.set("y", y);
    ctx.set("all", Tensors{y, y});
    return y;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) { return {grads[0] * ctx.get<Tensor>("y")}; }
};
TEST(CustomFunction, OutputKeptByNameIsNoCycle) {
  expect_leaves_nothing([] { KeepsOutputByName::apply(leaf({4})); });
  Tensor x = leaf({4});
  KeepsOutputByName::apply(x).sum().backward();
  expect_close(x.grad(), x.detach().exp());
}

TEST(CustomFunction, MissingValueIsAnError) {
  FunctionContext ctx;
  ctx.set("a", 1);
  EXPECT_EQ(ctx.get<int>("a"), 1);
  EXPECT_THROW(ctx.get<double>("a"), ValueError);
  EXPECT_THROW(ctx.get<int>("b"), ValueError);
  EXPECT_THROW(ctx.saved(), GradError);
}

struct SplitParts : Function<SplitParts> {  // several outputs, one without gradient
  static Tensors forward(FunctionContext& ctx, const Tensor& x) {
    Tensor positive = x > 0.0, sign = x * 0 + 1;
    ctx.mark_non_differentiable({sign});
    return {x * 2, x * 3, positive, sign};
  }
  static inline std::vector<bool> defined;
  static Tensors backward(FunctionContext&, const Tensors& grads) {
    defined.clear();
    for (const Tensor& g : grads) defined.push_back(g.defined());
    return {grads[0] * 2 + grads[1] * 3};
  }
};
TEST(CustomFunction, SeveralOutputs) {
  Tensor x = leaf({3});
  Tensors y = SplitParts::apply(x);
  EXPECT_TRUE(y[0].requires_grad() && y[1].requires_grad());
  EXPECT_FALSE(y[2].requires_grad()) << "bool";
  EXPECT_FALSE(y[3].requires_grad()) << "marked";
  for (const Tensor& t : y) EXPECT_FALSE(t.is_view()) << "each has memory of its own";
  y[1].sum().backward({.retain_graph = true});
  EXPECT_VALUES(x.grad(), 3, 3, 3);
  EXPECT_EQ(SplitParts::defined, (std::vector<bool>{true, true, false, true})) << "missing gradients arrive as zeros";
  x.zero_grad();
  (y[0] + y[1]).sum().backward();
  EXPECT_VALUES(x.grad(), 5, 5, 5);
}

struct Undefined : Function<Undefined> {
  static Tensors forward(FunctionContext& ctx, const Tensor& x, const Tensor& optional, const Tensors& more) {
    ctx.set_materialize_grads(false);
    EXPECT_FALSE(optional.defined());
    return {x * 1, more[0] * more[1]};
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) {
    EXPECT_FALSE(grads[0].defined());
    EXPECT_TRUE(grads[1].defined());
    return {Tensor(), Tensor(), Tensor(), grads[1] * 7};
  }
};
TEST(CustomFunction, UndefinedInAndOut) {
  Tensor x = leaf({2}), a = leaf({2}, 2), b = leaf({2}, 3);
  Tensors y = Undefined::apply(x, Tensor(), Tensors{a, b});
  y[1].sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(a.grad().defined());
  EXPECT_VALUES(b.grad(), 7, 7);
}

struct AddOne : Function<AddOne> {  // in place
  static Tensor forward(FunctionContext& ctx, Tensor x) {
    x.add_(1);
    ctx.mark_dirty({x});
    return x;
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0] * 10}; }
};
TEST(CustomFunction, MarkDirty) {
  Tensor x = leaf({3});
  Tensor y = x * 2;
  uint32_t before = y.version();
  Tensor z = AddOne::apply(y);
  EXPECT_TRUE(z.is_same(y));
  EXPECT_GT(y.version(), before);
  EXPECT_STREQ(y.grad_fn_name(), "AddOne");
  y.sum().backward();
  EXPECT_VALUES(x.grad(), 20, 20, 20);
  EXPECT_THROW(AddOne::apply(x), InplaceError) << "a leaf";
}
TEST(CustomFunction, MarkDirtyOnAView) {
  Tensor x = leaf({2, 2});
  Tensor y = x * 2;
  AddOne::apply(y[0]);
  y.sum().backward();
  EXPECT_VALUES(x.grad(), 20, 20, 2, 2);
}
struct AddTo : Function<AddTo> {  // in place
  static Tensor forward(FunctionContext& ctx, Tensor x, const Tensor& y) {
    x.add_(y);
    ctx.mark_dirty({x});
    return x;
  }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0], grads[0]}; }
};
TEST(CustomFunction, AViewOfTheDirtyInputSeesTheWrite) {
  Tensor x = leaf({3}), y = x * 2, view = y.view({3});
  AddTo::apply(y, view);
  view.sum().backward();
  EXPECT_VALUES(x.grad(), 4, 4, 4);
}
TEST(CustomFunction, DirtySavedInputIsSeen) {
  Tensor x = leaf({3}), y = x * 2, w = leaf({3}, 2);
  Tensor product = (y * w).sum();
  AddOne::apply(y);
  expect_error<InplaceError>([&] { product.backward(); }, "by AddOne at function_test.cpp:");
}

struct Identity : Function<Identity> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0] * 4}; }
};
struct AsColumn : Function<AsColumn> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x.view({-1, 1}); }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0].view({-1}) * 4}; }
};
TEST(CustomFunction, ReturnedInputAndViewKeepTheirOwnHistory) {
  Tensor x = leaf({3});
  Tensor y = Identity::apply(x);
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(y.is_same(x));
  y.sum().backward();
  EXPECT_VALUES(x.grad(), 4, 4, 4);
  Tensor base = x * 1;
  Tensor column = AsColumn::apply(base);
  EXPECT_THROW(column.mul_(2), InplaceError) << "in place on a view from a custom function";
  x.zero_grad();
  column.sum().backward();
  EXPECT_VALUES(x.grad(), 4, 4, 4);
}

struct WrongCount : Function<WrongCount> {
  static Tensor forward(FunctionContext&, const Tensor& a, const Tensor& b) { return a + b; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0]}; }
};
struct WrongShape : Function<WrongShape> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 1; }
  static Tensors backward(FunctionContext&, const Tensors& grads) { return {grads[0].narrow(0, 0, 2)}; }
};
TEST(CustomFunction, WrongGradientsNameTheFunction) {
  Tensor x = leaf({3});
  expect_error<GradError>([&] { WrongCount::apply(x, x).sum().backward(); },
                          "WrongCount: backward() returned 1 gradients for 2");
  expect_error<GradError>([&] { WrongShape::apply(x).sum().backward(); },
                          "WrongShape: its gradient for input 0 has shape [2], expected [3]");
}

struct Once : Function<Once> {
  static constexpr bool once_differentiable = true;
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * x;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) {
    EXPECT_FALSE(is_grad_enabled());
    return {grads[0] * ctx.saved()[0] * 2};
  }
};
TEST(CustomFunction, OnceDifferentiable) {
  Tensor x = leaf({3});
  Once::apply(x).sum().backward();
  expect_close(x.grad(), x.detach() * 2);
  Tensor g = grad({Once::apply(x).sum()}, {x}, {}, {.create_graph = true})[0];
  expect_close(g, x.detach() * 2);
  expect_error<GradError>([&] { g.sum().backward(); }, "Once: is once_differentiable");
  expect_error<GradError>([&] { grad({g.sum()}, {x}); }, "Once: is once_differentiable");
}

struct Throws : Function<Throws> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x, bool early) {
    Tensor y = x.exp();
    ctx.save_for_backward({x, y});
    ctx.set("y", y);
    if (early) throw std::runtime_error("forward");
    return y;
  }
  static Tensors backward(FunctionContext&, const Tensors&) { throw std::runtime_error("backward"); }
};
TEST(CustomFunction, ExceptionsFreeEverything) {
  expect_leaves_nothing([] {
    Tensor x = leaf({64});
    EXPECT_THROW(Throws::apply(x, true), std::runtime_error);
    EXPECT_TRUE(is_grad_enabled());
    EXPECT_EQ(graph_stats().live_nodes, 0);
    EXPECT_THROW(Throws::apply(x, false).sum().backward(), std::runtime_error);
    EXPECT_TRUE(is_grad_enabled());
  });
}

TEST(CustomFunction, InferenceTensorsCannotBeSaved) {
  Tensor x = leaf({3}), t = inference_mode([] { return sample({3}); });
  expect_error<InferenceError>([&] { Product::apply(x, t); }, "Product: a tensor [3] f64 made inside inference_mode");
}

struct NoTensorFirst : Function<NoTensorFirst> {
  static Tensor forward(FunctionContext& ctx, int times, const Tensor& x) {
    ctx.set("times", times);
    return x * times;
  }
  static Tensors backward(FunctionContext& ctx, const Tensors& grads) { return {grads[0] * ctx.get<int>("times")}; }
};
TEST(CustomFunction, FirstArgumentMayBeAnything) {
  Tensor x = leaf({2});
  NoTensorFirst::apply(3, x).sum().backward();
  EXPECT_VALUES(x.grad(), 3, 3);
}

TEST(CustomFunction, InsideACheckpoint) {
  Tensor x = leaf({50});
  Alive before;
  Tensor y = checkpoint([](const Tensors& in) { return Tensors{ScaledExp::apply(in[0] * 2, 3.0)}; }, {x})[0];
  EXPECT_EQ(Alive().saved, before.saved);
  y.sum().backward();
  Tensor gradient = x.grad();
  x.zero_grad();
  ScaledExp::apply(x * 2, 3.0).sum().backward();
  EXPECT_EQ(values(x.grad()), values(gradient));
}

}  // namespace
}  // namespace deft
