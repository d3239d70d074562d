#include "graph/compile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "amp/autocast.h"
#include "base/error.h"
#include "core/grad_mode.h"
#include "graph/capture.h"
#include "models/cnn.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft {
namespace {

bool same(const Tensor& a, const Tensor& b) {
  Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Compile, EveryGuardHasAReason) {
  Tensor w = randn({4, 4});
  auto f = compile([&](const Tensor& x) { return matmul(x, w).relu(); });
  NoGradGuard no_grad;
  Tensor x = randn({2, 4});
  f(x);
  EXPECT_TRUE(same(f(x), matmul(x, w).relu()));
  f(randn({3, 4}));
  f(randn({4, 2}).t());
  f(x.to(DType::f64).to(DType::f32));
  f(randn({8, 4}).narrow(0, 2, 2));  // the same kind
  {
    InferenceModeGuard inference;
    f(x);
  }
  {
    AutocastGuard amp(DType::bf16);
    f(x);
  }
  EXPECT_EQ(f.stats().captures, 5);
  EXPECT_EQ(f.stats().replays, 3);
  ASSERT_EQ(f.misses().size(), 5u);
  EXPECT_EQ(f.misses()[0], "the first call");
  EXPECT_EQ(f.misses()[1], "input 0 is [3, 4] f32 instead of [2, 4] f32");
  EXPECT_TRUE(contains(f.misses()[2], "strides"));
  EXPECT_TRUE(contains(f.misses()[3], "inference_mode instead of no_grad"));
  EXPECT_TRUE(contains(f.misses()[4], "autocast bf16"));
}

// Of several plans the reason names the one that comes nearest, whichever was made first.
TEST(Compile, TheNearestPlanIsNamed) {
  NoGradGuard no_grad;
  uint64_t state = 0;
  const Tensor x = randn({2, 4}), y = randn({2, 4});
  struct Other {
    std::function<void(Compiled&)> call;
    std::string difference;  // of the call with x and y
  };
  const Other others[] = {
      {[&](Compiled& f) {
         f.run({x, y, y});
       },
       "2 inputs instead of 3"},
      {[&](Compiled& f) {
         f.run({randn({3, 4}), randn({3, 4})});
       },
       "input 0 is [2, 4] f32 instead of [3, 4] f32"},
      {[&](Compiled& f) {
         f.run({x, randn({4, 2}).t()});
       },
       "input 1 has strides [4, 1] instead of [1, 2]"},
      {[&](Compiled& f) {
         f.run({x, x});
       },
       "input 1 shares memory with another one in another way"},
      {[&](Compiled& f) {
         InferenceModeGuard inference;
         f.run({x, y});
       },
       "no_grad instead of inference_mode"},
      {[&](Compiled& f) {
         state = 1;
         f.run({x, y});
         state = 0;
       },
       "the state given by CompileOptions::state changed"},
  };
  const auto sum = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] + in.back()}; };
  const CompileOptions options{.symbolic = false, .state = [&] { return state; }};
  for (size_t far = 0; far < std::size(others); ++far) {
    for (size_t near = far; near < std::size(others); ++near) {
      for (bool far_first : {true, false}) {
        Compiled f = compile(sum, options);
        others[far_first ? far : near].call(f);
        others[far_first ? near : far].call(f);
        f.run({x, y});
        EXPECT_EQ(f.misses().back(), others[near].difference) << far << " and " << near;
      }
    }
  }
}

TEST(Compile, EveryCallIsCounted) {
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return x * 2; });
  std::vector<Tensor> in{ones({3})}, out;
  int64_t calls = 0;
  auto expect_counts = [&](int64_t captures) {
    EXPECT_EQ(f.stats().calls, ++calls);
    EXPECT_EQ(f.stats().captures, captures);
    EXPECT_EQ(f.stats().replays, calls - captures);
  };
  for (int i = 0; i < 3; ++i) f(in[0]), expect_counts(1);
  for (int i = 0; i < 3; ++i) f.run(in), expect_counts(1);
  for (int i = 0; i < 3; ++i) f.run(in, out), expect_counts(1);
  f(ones({2, 2})), expect_counts(2);
  for (int i = 0; i < 3; ++i) f.run(in, out), expect_counts(2);
  EXPECT_EQ(f.stats().arena_bytes, 0) << "nothing lies between inputs and results";
}

// What the vector held is given up first: its memory serves the next results.
TEST(Compile, ResultsGoWhereTheOldOnesWere) {
  NoGradGuard no_grad;
  auto f = compile([](const std::vector<Tensor>& x) { return std::vector<Tensor>{x[0] * 2, x[0] + 1}; });
  std::vector<Tensor> in{ones({300})}, out;
  for (int i = 0; i < 3; ++i) f.run(in, out);
  const void* places[] = {out[0].data_ptr(), out[1].data_ptr()};
  const int64_t before = storage_allocations();
  for (int i = 0; i < 3; ++i) f.run(in, out);
  EXPECT_EQ(storage_allocations(), before);
  EXPECT_TRUE(out[0].data_ptr() == places[0] && out[1].data_ptr() == places[1]);
  const std::vector<Tensor> kept = out;
  in[0] = zeros({300});
  f.run(in, out);
  EXPECT_EQ(kept[0][0].item(), 2) << "unless somebody holds them";
  EXPECT_EQ(out[0][0].item(), 0);
}

TEST(Compile, WeightsAreReadAsTheyAre) {
  Tensor w = ones({3});
  auto f = compile([&](const Tensor& x) { return x * w; });
  NoGradGuard no_grad;
  f(ones({3}));
  w.fill_(5);
  EXPECT_EQ(f(ones({3}))[0].item(), 5);
  EXPECT_EQ(f.stats().captures, 1);
}

TEST(Compile, FoldedConstantsAreGuarded) {
  Tensor w = ones({3});
  auto f = compile([&](const Tensor& x) { return x * (w + 1).exp(); });
  NoGradGuard no_grad;
  f(ones({3}));
  w.fill_(5);
  EXPECT_TRUE(same(f(ones({3})), (w + 1).exp()));
  EXPECT_TRUE(contains(f.misses().back(), "was written"));
  EXPECT_EQ(f.stats().captures, 2);
}

TEST(Compile, RefusesGradients) {
  Tensor w = ones({2}).requires_grad_();
  auto f = compile([&](const Tensor& x) { return x * w; });
  EXPECT_THROW(f(ones({2})), CaptureError);
  EXPECT_THROW(f(ones({2}).requires_grad_()), CaptureError);
  NoGradGuard no_grad;
  EXPECT_EQ(f(full({2}, 3))[0].item(), 3);
}

// The first draw of seed 0 is all zeros, like the parameters of an op that draws nothing.
TEST(Compile, DropoutDrawsFreshNumbersFromSeedZero) {
  RngScope rng({0, 0});
  NoGradGuard no_grad;
  auto f = compile([](const Tensor& x) { return dropout(x, 0.5, true); });
  Tensor x = ones({64}), first = f(x), second = f(x), third = f(x);
  EXPECT_GT(first.ne(second).to(DType::i64).sum().item(), 0);
  EXPECT_GT(second.ne(third).to(DType::i64).sum().item(), 0);
}

TEST(Compile, DropoutDrawsFreshNumbers) {
  auto f = compile([](const Tensor& x) { return dropout(x, 0.5, true); });
  NoGradGuard no_grad;
  Tensor x = ones({256});
  std::vector<Tensor> compiled, eager;
  {
    RngScope rng({7, 0});
    for (int i = 0; i < 3; ++i) compiled.push_back(f(x));
  }
  {
    RngScope rng({7, 0});
    for (int i = 0; i < 3; ++i) eager.push_back(dropout(x, 0.5, true));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(compiled[i], eager[i])) << i;
  EXPECT_FALSE(same(compiled[1], compiled[2]));
  EXPECT_EQ(f.stats().replays, 2);
}

TEST(Compile, BoundedPlans) {
  auto f = compile([](const Tensor& x) { return x + 1; }, {.plans = 2});
  NoGradGuard no_grad;
  for (int64_t n : {1, 2, 3, 3, 2, 1}) f(ones({n}));
  EXPECT_EQ(f.stats().captures, 4);
  EXPECT_EQ(f.stats().evictions, 2);
}

TEST(Compile, StateIsPartOfTheKey) {
  nn::Dropout drop(0.5);
  auto f = compile([&](const Tensor& x) { return drop(x); }, {.state = [&] { return uint64_t{drop.is_training()}; }});
  NoGradGuard no_grad;
  Tensor x = ones({64});
  drop.eval();
  f(x);
  drop.train();
  EXPECT_FALSE(same(f(x), x));
  drop.eval();
  EXPECT_TRUE(same(f(x), x));
  EXPECT_EQ(f.stats().captures, 2);
}

TEST(Compile, ShadowComparesAndExplains) {
  Tensor hidden = ones({1});
  bool lie = false;
  auto f = compile([&](const Tensor& x) { return lie ? x * 3 : x * 2; }, {.shadow = 2});
  NoGradGuard no_grad;
  for (int i = 0; i < 4; ++i) f(ones({2}));
  EXPECT_EQ(f.stats().shadows, 1);
  lie = true;  // what no guard can see
  EXPECT_THROW(f(ones({2})), InternalError);
  EXPECT_TRUE(contains(f.explain(), "mul("));
  EXPECT_TRUE(contains(f.explain(), "arena"));
}

// A value that is not finite hides no other, and has to be there in both.
TEST(Compile, ShadowsLookBesideInfinities) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  NoGradGuard no_grad;
  double scale = 1;
  auto f = compile([&](const Tensor& x) { return x * scale; }, {.shadow = 1});
  Tensor x = tensor<float>({kInf, -kInf, std::nanf(""), 2});
  f(x), f(x);
  EXPECT_EQ(f.stats().shadows, 1);
  scale = 3;
  EXPECT_THROW(f(x), InternalError);
  Tensor infinite = x.narrow(0, 0, 2);
  f(infinite);
  scale = -3;
  EXPECT_THROW(f(infinite), InternalError);
}

TEST(Compile, NothingIsAllocatedInSteadyState) {
  auto f = compile([](const Tensor& x) { return (x * 2 + 1).relu().exp(); });
  NoGradGuard no_grad;
  Tensor x = randn({100000});
  f(x);
  f(x);
  int64_t before = system_allocations();
  for (int i = 0; i < 5; ++i) f(x);
  EXPECT_EQ(system_allocations(), before);
}

TEST(GraphText, RoundTrips) {
  NoGradGuard no_grad;
  models::Cnn cnn;
  nn::EvalGuard eval(cnn);
  graph::Graph g = graph::capture([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{cnn(x[0])}; },
                                  {randn({1, 1, 28, 28})})
                       .graph;
  std::vector<Tensor> constants;
  for (const graph::Buffer& b : g.buffers)
    if (b.kind == graph::BufferKind::constant) constants.push_back(b.constant);
  std::string text = graph::to_text(g);
  graph::Graph again = graph::parse(text, constants);
  for (graph::Instruction& x : g.instructions) x.site = {};
  EXPECT_EQ(graph::to_text(again), graph::to_text(g));
  EXPECT_THROW(graph::parse("buffer 0 temporary x\n", {}), LoadError);
  EXPECT_THROW(graph::parse(text + "%0 = nothing(%0)\n", constants), LoadError);
  EXPECT_THROW(graph::parse(text, {}), LoadError);
}

TEST(GraphPasses, EqualUnusedAndConstant) {
  NoGradGuard no_grad;
  Tensor w = randn({4});
  graph::Graph g = graph::capture(
                       [&](const std::vector<Tensor>& x) {
                         Tensor unused = x[0].exp();
                         Tensor a = x[0].sin() * w.abs(), b = x[0].sin() * w.abs();
                         return std::vector<Tensor>{a + b};
                       },
                       {randn({4})})
                       .graph;
  EXPECT_EQ(g.instructions.size(), 8u);
  std::vector<graph::Dependency> dependencies;
  graph::Notes notes;
  graph::run_passes(g, {.fuse_elementwise = false}, dependencies, notes);
  EXPECT_EQ(g.instructions.size(), 3u);  // sin, mul, add; the two abs are one constant
  // sin and mul are read twice by the sum; one chain reads them from memory, the other makes them.
  graph::run_passes(g, {}, dependencies, notes);
  EXPECT_LE(g.instructions.size(), 2u);
  ASSERT_EQ(dependencies.size(), 1u);
  EXPECT_TRUE(dependencies[0].tensor.shares_storage_with(w));
}

// An operand that comes up again is one input of the chain, whichever it is: there is room for eight.
TEST(GraphPasses, RepeatedOperandsAreOneInput) {
  NoGradGuard no_grad;
  auto f = [](const Tensor& x, const Tensor& y) {
    Tensor z = x;
    for (int i = 0; i < 7; ++i) z = (z * y - x) * 0.5;
    return z;
  };
  auto compiled = compile(f);
  Tensor x = randn({100}), y = randn({100});
  compiled(x, y);
  EXPECT_TRUE(same(compiled(y, x), f(y, x)));
  const std::string text = compiled.explain();
  EXPECT_TRUE(contains(text, "fuse_elementwise: 19 passes over memory saved")) << text;
  EXPECT_TRUE(contains(text, "2 kernels")) << text;  // of sixteen steps and of five
}

// Bitwise, whatever the types, layouts and places of the operands.
TEST(GraphPasses, ChainsGiveTheSameBits) {
  auto f = [](const Tensor& x, const Tensor& row) {
    Tensor y = ((x * 0.5 + row).tanh() - x).abs();
    Tensor z = where(y > 0.25, y.exp(), x * row) / 3;
    z.add_(1);
    z.mul_(x).relu_();
    return z + y.to(DType::f32);
  };
  NoGradGuard no_grad;
  for (DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (int64_t n : {1, 7, 600}) {
      for (bool columns : {false, true}) {
        Tensor x = randn({n, 33}).to(t), row = randn({33}).to(t);
        if (columns) x = x.t().contiguous().t();
        auto compiled = compile(f);
        compiled(x, row);
        Tensor other = randn({n, 33}).to(t);
        if (columns) other = other.t().contiguous().t();
        EXPECT_TRUE(same(compiled(other, row), f(other, row))) << name_of(t) << " " << n << " " << columns;
        EXPECT_EQ(compiled.stats().captures, 1);
      }
    }
  }
}

TEST(GraphPasses, ConvolutionsTakeWhatFollows) {
  nn::Conv2d conv(3, 8, 3, {.padding = 1}), second(8, 8, 1);
  nn::BatchNorm2d norm(8), norm2(8);
  for (nn::BatchNorm2d* n : {&norm, &norm2}) {
    uniform_(n->running_mean, -1, 1);
    uniform_(n->running_var, 0.5, 2);
    n->eval();
  }
  auto f = [&](const Tensor& x) {
    Tensor y = norm(conv(x)).relu();
    return (norm2(second(y)) + y).relu();
  };
  NoGradGuard no_grad;
  for (MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    Tensor x = randn({2, 3, 9, 9}).contiguous(format);
    auto compiled = compile(f);
    compiled(x);
    Tensor wanted = f(x), found = compiled(x);
    EXPECT_LE((wanted - found).abs().amax().item(), 1e-5 * wanted.abs().amax().item());
    std::string text = compiled.explain();
    EXPECT_TRUE(contains(text, "2 kernels")) << text;
    EXPECT_TRUE(contains(text, "fold_batch_norm: 2 into"));
    norm.running_mean.add_(1);  // went into the plan
    EXPECT_LE((f(x) - compiled(x)).abs().amax().item(), 1e-5 * wanted.abs().amax().item());
    EXPECT_TRUE(contains(compiled.misses().back(), "was written"));
  }
}

TEST(GraphPasses, ProductsTakeWhatFollows) {
  Tensor w = randn({64, 32}), v = randn({32, 64}), b = randn({64}), c = randn({32});
  auto f = [&](const Tensor& x) { return linear(gelu(linear(x, w, b)), v, c) + x; };
  NoGradGuard no_grad;
  for (int64_t rows : {1, 5, 40}) {
    Tensor x = randn({rows, 32});
    auto compiled = compile(f, {.passes = {.cost_model = false}});
    for (int i = 0; i < 3; ++i) {
      Tensor wanted = f(x), found = compiled(x);
      EXPECT_LE((wanted - found).abs().amax().item(), 2e-5 * wanted.abs().amax().item());
    }
    EXPECT_TRUE(contains(compiled.explain(), "2 kernels")) << compiled.explain();
    w.mul_(1.5);  // read where it is
    Tensor wanted = f(x);
    EXPECT_LE((wanted - compiled(x)).abs().amax().item(), 2e-5 * wanted.abs().amax().item());
    EXPECT_EQ(compiled.stats().captures, 1);
  }
}

// On a CPU gelu is as fast on its own, but where tiles have a shorter one on the way to bf16.
TEST(GraphPasses, GeluGoesIntoProductsWhereItPays) {
  NoGradGuard no_grad;
  for (DType t : {f32, bf16}) {
    Tensor w = randn({768, 64}).to(t), x = randn({40, 64}).to(t);
    auto f = [&](const Tensor& in) { return gelu(linear(in, w)); };
    auto compiled = compile(f);
    compiled(x);
    Tensor wanted = f(x).to(f32), found = compiled(x).to(f32);
    EXPECT_LE((wanted - found).abs().amax().item(), 4 * epsilon_of(t) * wanted.abs().amax().item());
#if defined(__aarch64__)
    const bool fused = t == bf16;
#else
    const bool fused = false;
#endif
    EXPECT_TRUE(contains(compiled.explain(), fused ? "1 kernels" : "2 kernels")) << compiled.explain();
  }
}

// A result that is read elsewhere, or written meanwhile, stays as it is.
TEST(GraphPasses, WhatIsUsedTwiceStays) {
  Tensor w = randn({16, 16});
  NoGradGuard no_grad;
  std::vector<std::function<Tensor(const Tensor&)>> functions = {[&](const Tensor& x) {
                                                                   Tensor y = linear(x, w);
                                                                   return y.relu() + y;
                                                                 },
                                                                 [&](const Tensor& x) {
                                                                   Tensor y = x * 1, z = linear(y, w);
                                                                   y.zero_();
                                                                   return z.relu() + y;
                                                                 },
                                                                 [&](const Tensor& x) {
                                                                   Tensor y = x + 1, z = y * 2;
                                                                   y.add_(z);
                                                                   return y * z;
                                                                 },
                                                                 [&](const Tensor& x) {
                                                                   Tensor y = x * 2, part = y.narrow(0, 0, 1);
                                                                   part.add_(1);
                                                                   return y.exp();
                                                                 }};
  for (size_t i = 0; i < functions.size(); ++i) {
    Tensor x = randn({4, 16}), other = randn({4, 16});
    auto compiled = compile(functions[i]);
    compiled(x);
    EXPECT_LE((compiled(other) - functions[i](other)).abs().amax().item(), 1e-5) << i;
    EXPECT_EQ(compiled.stats().replays, 1);
  }
}

// Given a tensor that it has hold of anyway, the function does not mean its argument, whatever header it uses.
TEST(Compile, WhatTheFunctionHasHoldOfIsNotItsArgument) {
  NoGradGuard no_grad;
  Tensor own = randn({8}), other = randn({8});
  const std::function<Tensor(const Tensor&)> functions[] = {
      [&](const Tensor& x) { return x * 0 + own * 2; },
      [&](const Tensor& x) { return x * 0 + own.detach() * 2; },
      [&](const Tensor& x) { return x * 0 + own.detach().view({8}) * 2; },
  };
  for (const auto& f : functions) {
    auto fast = compile(f);
    fast(own);
    EXPECT_TRUE(same(fast(other), own * 2));
    EXPECT_EQ(fast.stats().captures, 2);
    auto plain = compile([&](const Tensor& x) { return f(own) + x.detach(); });  // its own argument's is another matter
    plain(other);
    EXPECT_TRUE(same(plain(own), own * 2 + own));
  }
  auto fast = compile([](const Tensor& x) { return x.detach().exp(); });
  fast(own);
  EXPECT_TRUE(same(fast(other), other.exp()));
  EXPECT_EQ(fast.stats().captures, 1);
}

// Bytes between the fields of parameters are whatever was on the stack.
TEST(GraphPasses, EqualOpsHaveEqualParameters) {
  auto f = [](const std::vector<Tensor>& x) {
    Tensor a = x[0].amax({0}, true), b = x[0].cumsum(1), c = gelu(b);
    return std::vector<Tensor>{a + b.sum({0, 1}), c};
  };
  auto noise = [](int depth) {
    volatile char stack[4096];
    for (size_t i = 0; i < sizeof stack; ++i) stack[i] = static_cast<char>(i * 31 + static_cast<size_t>(depth));
  };
  NoGradGuard no_grad;
  Tensor x = randn({4, 4});
  noise(1);
  graph::Graph one = graph::capture(f, {x}).graph;
  noise(2);
  graph::Graph two = graph::capture(f, {x}).graph;
  ASSERT_EQ(one.instructions.size(), two.instructions.size());
  for (size_t i = 0; i < one.instructions.size(); ++i)
    EXPECT_TRUE(one.instructions[i].params == two.instructions[i].params) << one.instructions[i].def->info.name;
}

TEST(GraphPasses, WritesKeepEqualOpsApart) {
  auto f = compile([](const Tensor& x) {
    Tensor y = x * 1, a = y.exp();
    y.add_(1);
    return a + y.exp();
  });
  NoGradGuard no_grad;
  Tensor x = randn({8});
  f(x);
  EXPECT_TRUE(same(f(x), x.exp() + (x + 1).exp()));
}

}  // namespace
}  // namespace deft
