// What the graph holds and for how long: node counts, saved bytes, ages, second backward, create_graph, deep chains.
#include "core_util.h"

namespace deft {
namespace {

TEST(Graph, FrozenFrontCutsBackward) {
  Tensor x = sample({4}), w1 = leaf({4}, 2), w2 = leaf({4}, 3);
  auto net = [&] { return ((x * w1).tanh() * w2).tanh().sum(); };
  EXPECT_EQ(nodes_made_by(net), 5);
  w1.requires_grad_(false);
  Alive before;
  Tensor loss = net();
  EXPECT_EQ(Alive().nodes - before.nodes, 3) << "mul, tanh and sum behind the frozen part";
  EXPECT_EQ(Alive().saved - before.saved, 2 * 4 * 8) << "the first tanh's result for w2, and the second one's";
  loss.backward();
  EXPECT_FALSE(w1.grad().defined());
  EXPECT_TRUE(w2.grad().defined());
}

TEST(Graph, NothingRequiresGradNothingIsMade) {
  Tensor x = sample({4});
  EXPECT_EQ(nodes_made_by([&] { return ((x * x).tanh() + x).sum(); }), 0);
}

// Two layers of y = tanh(x * w + b), with the sizes known: everything counted by hand.
TEST(Graph, CountersAreExact) {
  constexpr int64_t kRows = 5, kCols = 7, kBytes = 8;
  Tensor x = sample({kRows, kCols}), w1 = leaf({kCols}, 2), b1 = leaf({kCols}, 3), w2 = leaf({kCols}, 4);
  Alive before;
  {
    Tensor h = (x * w1 + b1).tanh();
    Alive one;
    EXPECT_EQ(one.nodes - before.nodes, 3);
    // mul saves x for w1; x needs no gradient, so w1 is not saved. add saves nothing. tanh saves its result.
    EXPECT_EQ(one.saved - before.saved, 2 * kRows * kCols * kBytes);
    EXPECT_EQ(one.bytes - before.bytes, kRows * kCols * kBytes) << "only h is alive; the sums are gone";
    Tensor y = h * w2;
    Alive two;
    EXPECT_EQ(two.nodes - one.nodes, 1);
    EXPECT_EQ(two.saved - one.saved, 0) << "h is saved already, w2 is a parameter";
    Tensor loss = y.sum();
    EXPECT_EQ(Alive().nodes - before.nodes, 5);
    MemoryUse live = memory_live();
    EXPECT_EQ(live[MemoryCategory::saved], 2 * kRows * kCols * kBytes + before.saved);
    loss.backward();
    EXPECT_EQ(Alive().saved, before.saved) << "freed by backward";
  }
  EXPECT_EQ(Alive().nodes, before.nodes);
  EXPECT_EQ(Alive().saved, before.saved);
  EXPECT_EQ(Alive().bytes - before.bytes, 3 * kCols * kBytes) << "three gradients";
  EXPECT_EQ(memory_live()[MemoryCategory::gradient], 3 * kCols * kBytes);
}

TEST(Graph, AccumulatedLossGrowsAndDetachedDoesNot) {
  Tensor w = leaf({16}), x = sample({16}, 2);
  auto step = [&](Tensor& total, bool detached) {
    Tensor loss = (x * w).tanh().sum();
    total = total + (detached ? loss.detach() : loss);
    advance_step();
  };
  Tensor total = zeros({}, DType::f64);
  step(total, false);
  GraphStats first = graph_stats();
  for (int i = 0; i < 19; ++i) step(total, false);
  GraphStats last = graph_stats();
  EXPECT_EQ(last.live_nodes, 20 * first.live_nodes);
  EXPECT_EQ(last.saved_bytes - first.saved_bytes, 19 * 16 * 8) << "each step's tanh; x is one storage";
  EXPECT_EQ(last.oldest_node_age, 20);
  total = Tensor();
  EXPECT_EQ(graph_stats().live_nodes, 0);
  EXPECT_EQ(graph_stats().oldest_node_age, 0);
  total = zeros({}, DType::f64);
  for (int i = 0; i < 20; ++i) {
    step(total, true);
    EXPECT_EQ(graph_stats().live_nodes, 0);
    EXPECT_EQ(graph_stats().saved_bytes, 0);
  }
}

TEST(Graph, AgeStaysLargeForAVeryOldNode) {
  Tensor w = leaf({2});
  Tensor kept = w * w;
  int64_t age = 0;
  for (int i = 0; i < 9000; ++i) {
    advance_step();
    Tensor fresh = w * 2;
    int64_t now = graph_stats().oldest_node_age;
    EXPECT_GE(now, age);
    age = now;
  }
  EXPECT_GE(age, 4096);
  kept = Tensor();
  EXPECT_EQ(graph_stats().oldest_node_age, 0);
}

TEST(Graph, SecondBackwardNeedsRetainGraph) {
  Tensor x = leaf({3});
  Tensor y = (x * x).sum();
  y.backward({.retain_graph = true});
  y.backward({.retain_graph = true});
  y.backward();
  expect_close(x.grad(), x.detach() * 6);
  EXPECT_THROW(y.backward(), GradError);
  expect_close(x.grad(), x.detach() * 6);
}

TEST(Graph, NodesThatSaveNothingMayRunAgain) {
  Tensor w = leaf({2, 3});
  Tensor transposed = w.t();  // made once, used in every step
  Tensor x = sample({3, 2}, 2);
  for (int i = 0; i < 3; ++i) (transposed * x).sum().backward();
  expect_close(w.grad(), x.t() * 3);
}

TEST(Graph, SharedTrunkIsFreedByTheFirstBackward) {
  Tensor x = leaf({3});
  Tensor trunk = x.exp();
  Tensor a = (trunk * 2).sum(), b = (trunk * 3).sum();
  a.backward();
  EXPECT_THROW(b.backward(), GradError);
}

TEST(Graph, LeafRoot) {
  Tensor x = leaf({});
  x.backward();
  EXPECT_VALUES(x.grad(), 1);
  x.backward();
  EXPECT_VALUES(x.grad(), 2);
}

TEST(Graph, SeveralRootsAndGivenGradients) {
  Tensor x = leaf({2});
  Tensor a = x * 2, b = x * 3;
  backward({a, b}, {ones({2}, DType::f64), full({2}, 10, DType::f64)});
  EXPECT_VALUES(x.grad(), 32, 32);
  EXPECT_THROW(backward({x * 2}, {ones({3}, DType::f64)}), ShapeError);
  EXPECT_THROW(backward({(x * 2).sum(), x.sum()}, {Tensor()}), ValueError);
}

TEST(Graph, CreateGraphGivesGradientsOfGradients) {
  Tensor x = leaf({3});
  Tensor y = (x * x * x).sum();
  Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
  expect_close(g, x.detach() * x.detach() * 3);
  Tensor gg = grad({g.sum()}, {x}, {}, {.create_graph = true})[0];
  expect_close(gg, x.detach() * 6);
  Tensor ggg = grad({gg.sum()}, {x})[0];
  EXPECT_VALUES(ggg, 6, 6, 6);
  EXPECT_FALSE(x.grad().defined()) << "grad() does not touch .grad";
}

TEST(Graph, LeavesNeverShareAGradient) {
  Tensor a = leaf({2}), b = leaf({2}, 2);
  (a + b).sum().backward({.create_graph = true});
  (a * 5).sum().backward();
  EXPECT_VALUES(a.grad(), 6, 6);
  EXPECT_VALUES(b.grad(), 1, 1);
  a.zero_grad();
  b.zero_grad();
  (a + b).sum().backward();
  (a * 5).sum().backward();
  EXPECT_VALUES(a.grad(), 6, 6);
  EXPECT_VALUES(b.grad(), 1, 1);
  Tensor given = ones({2}, DType::f64);
  a.zero_grad();
  (a * 1.0).backward(given);
  a.backward(given);
  EXPECT_VALUES(given, 1, 1);
}

// The second value of a sum and all that follow cost no memory.
TEST(Graph, SumsAreMadeInPlace) {
  Tensor x = leaf({100}), h = x * 1, given = ones({100}, DType::f64);
  std::vector<Tensor> parts;
  for (int i = 0; i < 5; ++i) parts.push_back(h * (i + 1.0));
  const int64_t before = storage_allocations();
  backward(parts, std::vector<Tensor>(5, given));
  EXPECT_EQ(storage_allocations() - before, 6) << "a product for each part, and one for h";
  EXPECT_EQ(values(x.grad()), std::vector<double>(100, 15));
  EXPECT_EQ(values(given), std::vector<double>(100, 1));
}

// As in PyTorch, a gradient that is given takes the tensor's type.
TEST(Graph, GivenGradientsMayBeOfAnotherType) {
  for (DType given : {DType::f64, DType::bf16, DType::i64}) {
    Tensor x = sample({2}, 1, with_grad(f32)), y = x * 2;
    backward({x, y, y}, {full({2}, 3, given), ones({2}), full({2}, 5, given)});
    EXPECT_EQ(x.grad().dtype(), f32);
    EXPECT_VALUES(x.grad(), 15, 15);
    x.zero_grad();
    x.backward(full({2}, 3, given));
    EXPECT_EQ(x.grad().dtype(), f32);
  }
}

TEST(Graph, GradStopsAtItsInputs) {
  Tensor x = leaf({3});
  Tensor h = x.exp(), y = (h * h).sum();
  Tensor g = grad({y}, {h})[0];
  expect_close(g, h.detach() * 2);
  h.sum().backward();  // exp was not run and not freed
  expect_close(x.grad(), h.detach());
}

TEST(Graph, GradOfUnused) {
  Tensor x = leaf({3}), unused = leaf({3}, 2);
  Tensor y = (x * x).sum();
  EXPECT_THROW(grad({y}, {x, unused}, {}, {.retain_graph = true}), GradError);
  EXPECT_THROW(grad({y}, {unused, x}, {}, {.retain_graph = true}), GradError);
  EXPECT_THROW(grad({y}, {unused}, {}, {.retain_graph = true}), GradError);
  auto g = grad({y}, {x, unused}, {}, {.allow_unused = true});
  EXPECT_TRUE(g[0].defined());
  EXPECT_FALSE(g[1].defined());
  EXPECT_THROW(grad({y}, {sample({3})}), GradError);
}

TEST(Graph, ZeroGrad) {
  Tensor x = leaf({2});
  (x * 3).sum().backward();
  Tensor held = x.grad();
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_VALUES(held, 3, 3);
  (x * 3).sum().backward();
  x.zero_grad(false);
  EXPECT_VALUES(x.grad(), 0, 0);
}

TEST(Graph, DetachCutsAndSharesBytes) {
  Tensor x = leaf({2});
  Tensor y = x * 2, d = y.detach();
  EXPECT_FALSE(d.requires_grad());
  EXPECT_TRUE(d.shares_storage_with(y));
  (d * x).sum().backward();
  expect_close(x.grad(), d);
  y.detach_();
  EXPECT_TRUE(y.is_leaf());
  EXPECT_FALSE(y.requires_grad());
}

TEST(Graph, DeepChain) {
  constexpr int kDepth = 100000;
  Alive before;
  {
    Tensor x = leaf({1});
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i) y = y + 1;
    EXPECT_EQ(Alive().nodes - before.nodes, kDepth);
    y.backward();
    EXPECT_VALUES(x.grad(), 1);
    y = x * 1;
    for (int i = 0; i < kDepth; ++i) y = y * x;  // with saved tensors, dropped without backward
  }
  EXPECT_EQ(Alive(), before);
}

TEST(Graph, DeepChainOfWritesAndViews) {
  constexpr int kDepth = 20000;
  Alive before;
  {
    Tensor x = leaf({2});
    Tensor y = x * 1;
    for (int i = 0; i < kDepth; ++i) y[i % 2].add_(1);
    y.sum().backward();
    EXPECT_VALUES(x.grad(), 1, 1);
  }
  EXPECT_EQ(Alive(), before);
}

TEST(Graph, WideFanIn) {
  Tensor x = leaf({4});
  Tensor total = x * 0;
  for (int i = 1; i <= 1000; ++i) total = total + x * i;
  total.sum().backward();
  EXPECT_EQ(values(x.grad()), std::vector<double>(4, 500500.0));
}

}  // namespace
}  // namespace deft
