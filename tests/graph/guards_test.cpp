// Changes between calls that a plan must not be used in spite of.
#include <gtest/gtest.h>

#include "base/error.h"
#include "core/engine.h"
#include "core/grad_mode.h"
#include "core/hooks.h"
#include "graph/compile.h"
#include "graph/training_util.h"
#include "nn/compile_module.h"
#include "optim/grad_scaler.h"
#include "optim/reduce_lr_on_plateau.h"

namespace deft {
namespace {

Tensor backward_of(const Tensor& loss) {
  loss.backward();
  return loss;
}

// As without gradients: Compile.WhatTheFunctionHasHoldOfIsNotItsArgument.
TEST(Guards, WhatTheFunctionHasHoldOfWithGradients) {
  Tensor own = randn({8}), other = randn({8});
  auto whole = compile([&](const Tensor& x) { return x * own; });
  auto detached = compile([&](const Tensor& x) { return x * own.detach(); });
  for (Compiled* f : {&whole, &detached}) {
    (*f)(own);
    EXPECT_TRUE(same_bits((*f)(other), other * own));
    EXPECT_TRUE(contains(f->misses().back(), "input 0 is not the tensor that the function has hold of itself"));
  }
}

// Two leaves on the same memory, or one leaf in two places: gradients go elsewhere.
TEST(Guards, WhichInputsAreTheSameLeaf) {
  for (bool same_first : {true, false}) {
    Tensor x = randn({4}).requires_grad_(), y = x.detach().requires_grad_();
    auto f = compile([](const Tensor& a, const Tensor& b) { return backward_of((a * 2 + b * 3).sum()); });
    for (bool same : {same_first, !same_first}) {
      x.zero_grad(), y.zero_grad();
      f(x, same ? x : y);
      EXPECT_TRUE(same_bits(x.grad(), full({4}, same ? 5 : 2))) << same_first;
      EXPECT_EQ(y.grad().defined(), !same);
      EXPECT_TRUE(same || same_bits(y.grad(), full({4}, 3))) << same_first;
    }
    EXPECT_EQ(f.stats().captures, 2);
  }
  Tensor w = ones({4}).requires_grad_(), x = ones({4}).requires_grad_();
  auto f = compile([&](const Tensor& a) { return backward_of((a * 2 + w * 3).sum()); });
  f(x);
  w.zero_grad();
  f(w);
  EXPECT_TRUE(same_bits(w.grad(), full({4}, 5)));
}

TEST(Guards, LeavesThatAreViewsAreFrozenToo) {
  Tensor base = randn({2, 4}), w = randn({4}).requires_grad_();
  Tensor v = base.select(0, 0);
  v.requires_grad_();
  auto f = compile([&](const Tensor& x) { return backward_of((x * v * w).sum()); });
  Tensor x = randn({4});
  f(x);
  v.zero_grad(), w.zero_grad();
  v.requires_grad_(false);
  f(x);
  EXPECT_FALSE(v.grad().defined());
  EXPECT_EQ(f.misses().back(), "a constant [4] f32 requires grad no more");
}

TEST(Guards, HooksOnLeaves) {
  auto triple = [](const Tensor& g) { return g * 3; };
  Tensor w = ones({3}).requires_grad_(), x = randn({3});
  auto f = compile([&](const Tensor& a) { return backward_of((a * w).sum()); });
  auto gradient = [&] {
    w.zero_grad();
    f(x);
    return w.grad();
  };
  gradient();
  HookHandle hook = w.register_hook(triple);
  EXPECT_TRUE(same_bits(gradient(), x * 3));
  EXPECT_EQ(f.misses().back(), "a constant [3] f32 has other hooks");
  w.remove_hook(hook);
  EXPECT_TRUE(same_bits(gradient(), x));
  EXPECT_EQ(f.stats().captures, 2);  // the first plan serves again

  auto of_input = compile([&](const Tensor& a) { return backward_of((a * x).sum()); });
  of_input(randn({3}).requires_grad_());
  Tensor hooked = randn({3}).requires_grad_();
  hooked.register_hook(triple);
  of_input(hooked);
  EXPECT_TRUE(same_bits(hooked.grad(), x * 3));
  EXPECT_EQ(of_input.misses().back(), "input 0 has other hooks");
}

TEST(Guards, AnInputThatIsMadeToRequireGradIsRefused) {
  auto f = compile([](const Tensor& x) {
    x.requires_grad_();
    return backward_of(x.square().sum());
  });
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { f(ones({3})); }), "makes input 0 [3] f32 require grad"));
}

// What a function keeps from call to call is renewed by no replay: there is no plan, and results stay right.
TEST(Guards, TensorsThatTheFunctionKeeps) {
  NoGradGuard no_grad;
  Tensor state = zeros({4}), x = ones({4});
  auto f = compile([&](const Tensor& a) {
    state = state * 0.5 + a;
    return state * 2;
  });
  Tensor wanted = zeros({4});
  for (int i = 0; i < 4; ++i) {
    wanted = wanted * 0.5 + x;
    EXPECT_TRUE(same_bits(f(x), wanted * 2)) << i;
  }
  EXPECT_TRUE(contains(f.misses().back(), "no plan: the function keeps [4] f32, made by add")) << f.misses().back();

  std::vector<Tensor> all;
  auto collects = compile([&](const Tensor& a) {
    Tensor y = a * 2;
    all.push_back(y);
    return y;
  });
  for (int i = 0; i < 3; ++i) collects(full({2}, i));
  ASSERT_EQ(all.size(), 3U);
  EXPECT_TRUE(same_bits(all[2], full({2}, 4)));

  // What is made in the first call only, a table say, is a constant from the second on.
  Tensor table;
  auto lazy = compile([&](const Tensor& a) {
    if (!table.defined()) table = ones({4}).cumsum(0);
    return a * table;
  });
  for (int i = 0; i < 4; ++i) lazy(x);
  EXPECT_EQ(lazy.stats().captures, 2);
}

// A leaf on the memory of an input or a weight, as for the norm of a gradient: it goes with the call.
TEST(Guards, LeavesThatTheFunctionMakes) {
  Tensor w = randn({6, 1}).requires_grad_(), eager = w.detach().clone().requires_grad_();
  auto of = [](const Tensor& weight) {
    return [&weight](const Tensor& x) {
      Tensor own = x.detach().requires_grad_(), copy = weight.detach().requires_grad_();
      Tensor y = own.matmul(weight).tanh().sum() * copy.sum();
      copy.register_hook([](const Tensor& g) { return g * 2; });
      Tensor slope = grad({y}, {own}, {}, {.create_graph = true})[0];
      return backward_of(y + slope.square().sum());
    };
  };
  auto f = compile(of(w), exact());
  for (int i = 0; i < 3; ++i) {
    w.zero_grad(), eager.zero_grad();
    Tensor x = randn({5, 6});
    EXPECT_TRUE(same_bits(f(x), of(eager)(x).detach()));
    EXPECT_TRUE(same_bits(w.grad(), eager.grad()));
  }
  EXPECT_EQ(f.stats().captures, 1) << f.misses().back();
}

// Leaves that are inputs get their own gradients, and no plan holds on to one.
TEST(Guards, LeavesThatAreInputs) {
  auto f = compile([](const Tensor& x) { return backward_of((x * x).sum()); }, exact());
  std::vector<Tensor> leaves;
  for (int i = 0; i < 4; ++i) {
    Tensor x = full({3}, i + 1.0).requires_grad_();
    f(x);
    EXPECT_TRUE(x.impl()->unique()) << i;
    leaves.push_back(x);
  }
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_TRUE(same_bits(leaves[i].grad(), full({3}, 2.0 * static_cast<double>(i + 1)))) << i;
  EXPECT_EQ(f.stats().captures, 1);
}

// A gradient that is given stays the caller's, also where the leaf itself is the root and sums it up.
TEST(Guards, GivenGradientsAreNotWritten) {
  Tensor w = randn({4}).requires_grad_(), constant = full({4}, 5.0);
  const std::function<Tensor(const Tensor&)> functions[] = {
      [&](const Tensor& g) {
        w.backward(g);
        w.backward(g);
        return g * 1;
      },
      [&](const Tensor& g) {
        w.backward(constant);
        w.backward(g);
        return g * 1;
      },
      [&](const Tensor& g) {
        (w * 1).backward(g);
        (w * 2).backward(g);
        return g * 1;
      },
  };
  const double sums[] = {6, 8, 9};
  for (size_t i = 0; i < std::size(functions); ++i) {
    auto f = compile(functions[i], exact());
    for (int call = 0; call < 3; ++call) {
      w.zero_grad();
      Tensor g = full({4}, 3.0);
      EXPECT_TRUE(same_bits(f(g), full({4}, 3.0))) << i << call;
      EXPECT_TRUE(same_bits(g, full({4}, 3.0))) << i << call;
      EXPECT_TRUE(same_bits(constant, full({4}, 5.0))) << i << call;
      EXPECT_TRUE(same_bits(w.grad(), full({4}, sums[i]))) << i << call;
      EXPECT_FALSE(w.grad().shares_storage_with(g));
    }
    EXPECT_EQ(f.stats().captures, 1) << i << f.misses().back();
  }
}

// Memory with an owner outside is no tensor of the function, under whatever header it is written.
TEST(Guards, StateThatIsWrittenThroughAnotherHeader) {
  NoGradGuard no_grad;
  const std::function<Tensor(const Tensor&)> headers[] = {
      [](const Tensor& t) { return t; },
      [](const Tensor& t) { return t.detach(); },
      [](const Tensor& t) {
        return t.view({2, 3});
      },
      [](const Tensor& t) {
        return t.detach().view({2, 3}).detach();
      },
      [](const Tensor& t) { return t.narrow(0, 0, 6).detach(); },
  };
  for (size_t i = 0; i < std::size(headers); ++i) {
    Tensor state = zeros({6});
    auto f = compile([&](const Tensor& x) {
      Tensor other = headers[i](state);
      other.add_(x);
      return other * 2;
    });
    for (int call = 1; call < 4; ++call) {
      EXPECT_EQ(f(ones({1})).flatten()[5].item(), 2 * call) << i;
      EXPECT_EQ(state[5].item(), call) << i;
    }
  }
}

// A number that code outside writes is not the number of the program that it equals in the first call.
TEST(Guards, NumbersThatAreWritten) {
  Tensor w = ones({3}).requires_grad_();
  optim::SGD sgd({w}, {.lr = 0});
  for (bool scaled_first : {true, false}) {
    optim::GradScaler scaler({.scale = 2, .growth_interval = 1});
    NoGradGuard no_grad;
    auto f = compile([&](const Tensor& x) {
      return scaled_first ? scaler.scale(x + 1) * 2.0 - 2.0 : scaler.scale((x + 1) * 2.0 - 2.0);
    });
    for (double scale : {2, 4, 8}) {
      EXPECT_EQ(f(full({3}, 4.0))[1].item(), scaled_first ? 10 * scale - 2 : 8 * scale);
      w.set_grad(ones({3}));
      scaler.step(sgd), scaler.update();
    }
    EXPECT_EQ(f.stats().captures, 1);
  }
}

TEST(Guards, SettingsInsideAFunctionAreRefused) {
  Tensor w = ones({3}).requires_grad_();
  optim::SGD optimizer({w}, {.lr = 0.1, .momentum = 0.9});
  optim::ReduceLROnPlateau plateau(optimizer, {});
  const std::function<void()> settings[] = {[&] { optimizer.set_lr(0.2); }, [&] { optimizer.set_momentum(0.8); },
                                            [&] { plateau.step(1); }};
  for (const auto& set : settings) {
    auto f = compile([&](const Tensor& x) {
      set();
      return x * 2;
    });
    EXPECT_TRUE(contains(message_of<CaptureError>([&] { f(ones({3})); }), "would run in the first call only"));
  }
  EXPECT_EQ(optimizer.lr(), 0.1);
}

TEST(Guards, InferenceTensorsAreNotWritten) {
  NoGradGuard no_grad;
  Tensor made;
  {
    InferenceModeGuard inference;
    made = ones({2});
  }
  auto f = compile([](const std::vector<Tensor>& x) {
    Tensor target = x[0];
    target.add_(1);
    return std::vector<Tensor>{x[1] * 2};
  });
  f.run({ones({2}), ones({2})});
  EXPECT_THROW(f.run({made, ones({2})}), InferenceError);
  EXPECT_TRUE(contains(f.misses().back(), "input 0 is written, and was made in inference_mode"));
  EXPECT_TRUE(same_bits(made, ones({2})));
  for (int i = 0; i < 2; ++i) f.run({ones({2}), made});  // which is only read
  EXPECT_EQ(f.stats().captures, 1);
}

TEST(Guards, ResultsInThePlaceOfInputs) {
  NoGradGuard no_grad;
  auto f = compile([](const std::vector<Tensor>& x) { return std::vector<Tensor>{x.at(0) * 2, x.at(1) + x.at(0)}; });
  std::vector<Tensor> state{ones({2}), zeros({2})};
  for (int i = 0; i < 3; ++i) f.run(state, state);
  EXPECT_TRUE(same_bits(state[0], full({2}, 8)));
  EXPECT_TRUE(same_bits(state[1], full({2}, 7)));
}

TEST(Guards, OneCallAtATime) {
  NoGradGuard no_grad;
  Compiled* inner = nullptr;
  Tensor x = ones({2});
  auto f = compile([](const Tensor& a) { return a * 2; }, {.state = [&] {
                     if (inner) (*inner)(x);
                     return 0;
                   }});
  f(x);
  inner = &f;
  EXPECT_TRUE(contains(message_of<ValueError>([&] { f(x); }), "still running"));
  inner = nullptr;
  EXPECT_TRUE(same_bits(f(x), x * 2));  // the call that failed is over
}

TEST(Guards, WrongCallsAreRefusedWithWhatIsWrong) {
  NoGradGuard no_grad;
  Tensor x = ones({2});
  EXPECT_TRUE(contains(message_of<ValueError>([] { compile(Compiled::Function()); }), "the function is empty"));
  auto one = compile([](const Tensor& a) { return a * 2; });
  auto two = compile([](const Tensor& a, const Tensor& b) { return a * b; });
  auto nothing = compile([](const Tensor&) { return Tensor(); });
  nn::Linear layer(2, 2);
  auto module = compile(layer);
  EXPECT_TRUE(contains(message_of<ValueError>([&] { one(x, x); }), "found a call with 2 inputs, expected 1"));
  EXPECT_TRUE(contains(message_of<ValueError>([&] { two(x); }), "found a call with 1 inputs, expected 2"));
  EXPECT_TRUE(contains(message_of<ValueError>([&] { module.run({}); }), "found a call with 0 inputs, expected 1"));
  EXPECT_TRUE(contains(message_of<CaptureError>([&] { nothing(x); }), "result 0 is an undefined tensor"));
}

}  // namespace
}  // namespace deft
