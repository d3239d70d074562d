// Places in the arena: who may share one.
#include "graph/memory_plan.h"

#include <gtest/gtest.h>

#include "core/grad_mode.h"
#include "graph/capture.h"
#include "graph/executable.h"
#include "graph/passes.h"
#include "nn/nn.h"
#include "ops/all_ops.h"

namespace deft::graph {
namespace {

Graph captured(const Function& f, const std::vector<Tensor>& inputs) {
  NoGradGuard no_grad;
  return capture(f, inputs).graph;
}

// Buffers that are alive at the same instruction lie apart, unless one ends where the other begins and takes its place.
void expect_sound(const Graph& g, const MemoryPlan& plan) {
  std::vector<Lifetime> lives = lifetimes(g);
  auto end = [&](size_t i) { return plan.offsets[i] + static_cast<int64_t>(g.buffers[i].bytes); };
  for (size_t a = 0; a < lives.size(); ++a) {
    if (plan.offsets[a] == kOutside) continue;
    EXPECT_LE(end(a), plan.bytes);
    for (size_t b = a + 1; b < lives.size(); ++b) {
      if (plan.offsets[b] == kOutside) continue;
      bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      bool takes_over = (lives[a].last == lives[b].first || lives[b].last == lives[a].first) &&
                        plan.offsets[a] == plan.offsets[b] && g.buffers[a].bytes == g.buffers[b].bytes;
      bool apart = end(a) <= plan.offsets[b] || end(b) <= plan.offsets[a];
      EXPECT_TRUE(!together || takes_over || apart) << "buffers " << a << " and " << b;
    }
  }
}

MemoryPlan planned(const Function& f, const std::vector<Tensor>& inputs) {
  Graph g = captured(f, inputs);
  MemoryPlan plan = plan_memory(g);
  expect_sound(g, plan);
  return plan;
}

constexpr int64_t kBytes = 4096;  // of 1024 floats

TEST(MemoryPlan, ElementwiseResultsTakeTheirInputsPlace) {
  MemoryPlan plan = planned(
      [](const std::vector<Tensor>& x) {
        Tensor y = x[0];
        for (int i = 0; i < 10; ++i) y = y.exp().sin();
        return std::vector<Tensor>{y};
      },
      {randn({1024})});
  EXPECT_EQ(plan.sum, 19 * kBytes);
  EXPECT_EQ(plan.in_place, 18);
  EXPECT_EQ(plan.bytes, kBytes);
}

TEST(MemoryPlan, NotWhatIsReadLater) {
  MemoryPlan plan = planned(
      [](const std::vector<Tensor>& x) {
        Tensor a = x[0].exp(), b = a.sin();
        return std::vector<Tensor>{a * b};
      },
      {randn({1024})});
  EXPECT_EQ(plan.in_place, 0);
  EXPECT_EQ(plan.bytes, 2 * kBytes);
}

TEST(MemoryPlan, NotWhatIsReadInAnotherOrder) {
  auto f = [](auto make) {
    return planned([=](const std::vector<Tensor>& x) { return std::vector<Tensor>{make(x[0].exp()).sum()}; },
                   {randn({32, 32})});
  };
  EXPECT_EQ(f([](const Tensor& a) { return a * a; }).in_place, 1);
  EXPECT_EQ(f([](const Tensor& a) { return a * a.t(); }).in_place, 0);
  EXPECT_EQ(f([](const Tensor& a) { return a[0] * a; }).in_place, 0);       // a row of what would be written
  EXPECT_EQ(f([](const Tensor& a) { return a.softmax(-1); }).in_place, 0);  // no elementwise op
  EXPECT_EQ(f([](const Tensor& a) { return a.to(DType::f64); }).in_place, 0);
}

TEST(MemoryPlan, NeitherInputsNorConstantsNorResults) {
  Tensor w = randn({1024});
  MemoryPlan plan = planned(
      [&](const std::vector<Tensor>& x) {
        Tensor a = x[0] + w, b = a.exp();
        return std::vector<Tensor>{a, b.sin()};
      },
      {randn({1024})});
  EXPECT_EQ(plan.in_place, 0);
  EXPECT_EQ(plan.bytes, kBytes);  // b
}

TEST(MemoryPlan, NothingBetweenInputsAndResults) {
  MemoryPlan plan = planned(
      [](const std::vector<Tensor>& x) {
        return std::vector<Tensor>{x[0] + 1, x[0].exp()};
      },
      {randn({1024})});
  EXPECT_EQ(plan.bytes, 0);
  EXPECT_EQ(plan.sum, 0);
  EXPECT_EQ(plan.in_place, 0);
}

TEST(MemoryPlan, ChainsAndResiduals) {
  NoGradGuard no_grad;
  nn::Conv2d one(4, 8, 3, {.padding = 1}), two(8, 8, 3, {.padding = 1});
  auto f = [&](const std::vector<Tensor>& x) {
    Tensor a = one(x[0]), b = two(a.relu()) + a;
    return std::vector<Tensor>{(b.sigmoid() * 2 - 1).sum()};
  };
  Graph g = captured(f, {randn({2, 4, 8, 8})});
  std::vector<Dependency> dependencies;
  Notes notes;
  run_passes(g, {.cost_model = false}, dependencies, notes);
  MemoryPlan plan = plan_memory(g);
  expect_sound(g, plan);
  EXPECT_EQ(plan.in_place, 2);                   // the second convolution over its residual, the chain over that
  EXPECT_EQ(plan.bytes, 2 * 2 * 8 * 8 * 8 * 4);  // a and relu(a)
  EXPECT_EQ(plan.bytes, plan.floor);
}

TEST(MemoryPlan, NotOverWhatAProductReads) {
  NoGradGuard no_grad;
  nn::Linear layer(64, 64);
  auto f = [&](const std::vector<Tensor>& x) {
    Tensor a = x[0].exp();
    return std::vector<Tensor>{(layer(a) + a).sum()};
  };
  Graph g = captured(f, {randn({8, 64})});
  std::vector<Dependency> dependencies;
  Notes notes;
  run_passes(g, {}, dependencies, notes);
  EXPECT_EQ(plan_memory(g).in_place, 0);
  Executable plan(std::move(g));
  Tensor x = randn({8, 64});
  EXPECT_NEAR(plan.run({x})[0].item(), f({x})[0].item(), 1e-2);
}

// Buffers made by instruction `first` and read last by `last`, with their sizes in units.
struct Life {
  size_t first, last;
  int64_t units;
};
Graph with_lives(const std::vector<Life>& lives) {
  Graph g;
  for (const Life& l : lives) {
    g.instructions.resize(std::max(g.instructions.size(), l.last + 1), {&op_def<Cat>, Action::make, {}, {}, {}, {}});
    Meta meta = Meta::dense({l.units * 16}, DType::f32, kCPU);
    ValueId id = g.add_value(meta, g.add_buffer(BufferKind::temporary, static_cast<size_t>(l.units) * 64));
    g.instructions[l.first].outputs.push_back(id);
    g.instructions[l.last].inputs.push_back(id);
  }
  return g;
}

TEST(MemoryPlan, KeepsTheBestOrder) {
  // Largest first needs 10, 10 and 18 units.
  const std::vector<Life> cases[] = {
      {{2, 4, 3}, {4, 5, 5}, {1, 3, 4}, {1, 3, 2}},                        // in the order in which they are made
      {{3, 6, 2}, {1, 2, 4}, {1, 5, 1}, {2, 4, 3}, {4, 6, 3}},             // by bytes and life
      {{3, 5, 3}, {1, 2, 5}, {3, 4, 4}, {1, 3, 2}, {1, 6, 3}, {2, 6, 5}},  // the same
  };
  const int64_t wanted[] = {9, 9, 17};
  for (size_t i = 0; i < std::size(cases); ++i) {
    Graph g = with_lives(cases[i]);
    MemoryPlan plan = plan_memory(g);
    expect_sound(g, plan);
    EXPECT_EQ(plan.bytes, wanted[i] * 64);
    EXPECT_EQ(plan.floor, wanted[i] * 64);
  }
}

}  // namespace
}  // namespace deft::graph
