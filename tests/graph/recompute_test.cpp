// Results that a training step makes a second time: less memory, the same bits.
#include "base/error.h"
#include "core/grad_mode.h"
#include "graph/capture.h"
#include "graph/executable.h"
#include "graph/memory_plan.h"
#include "graph/passes.h"
#include "graph/training_util.h"
#include "runtime/cpu_isa.h"

namespace deft {
namespace {

using graph::Graph;
using graph::Notes;
using graph::PassOptions;

CompileOptions without_recompute() {
  CompileOptions o = exact();
  o.passes.recompute = false;
  return o;
}
// Trains eagerly, with and without the pass: the arena gets to `part` or less, and everything keeps its bits.
std::string expect_less_memory(const Maker& make, const Data& data, double part) {
  Found eager = train(make, {data}, false, {}), plain = train(make, {data}, true, without_recompute());
  Found less = train(make, {data}, true, exact());
  EXPECT_LE(static_cast<double>(less.stats.arena_bytes), part * static_cast<double>(plain.stats.arena_bytes));
  EXPECT_EQ(less.stats.captures, 1);
  for (size_t i = 0; i < eager.losses.size(); ++i) EXPECT_TRUE(same_bits(eager.losses[i], less.losses[i])) << i;
  EXPECT_EQ(eager.state.size(), less.state.size());
  for (size_t i = 0; i < std::min(eager.state.size(), less.state.size()); ++i)
    EXPECT_TRUE(same_bits(eager.state[i], less.state[i])) << "tensor " << i;
  EXPECT_TRUE(contains(plain.explained, "recompute: switched off"));
  return less.explained;
}

constexpr int64_t kWidth = 256;

// norm, two layers with a gelu between, residual: the half of a transformer block without attention.
struct Block : nn::Module {
  explicit Block(double dropout) : drop(add<nn::Dropout>("drop", dropout)) {}
  nn::LayerNorm& norm = add<nn::LayerNorm>("norm", kWidth);
  nn::Linear &first = add<nn::Linear>("first", kWidth, 4 * kWidth),
             &second = add<nn::Linear>("second", 4 * kWidth, kWidth);
  nn::Dropout& drop;
  Tensor forward(const Tensor& x) override { return x + second(drop(gelu(first(norm(x))))); }
};
struct Blocks : nn::Module {
  explicit Blocks(double dropout) {
    for (int i = 0; i < 4; ++i) all.push_back(&add<Block>("b" + std::to_string(i), dropout));
  }
  std::vector<Block*> all;
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (Block* b : all) y = (*b)(y);
    return y.mean({1});
  }
};
Maker blocks(double dropout) {
  return [=] { return of(std::make_unique<Blocks>(dropout)); };
}
Data tokens() { return {randn({2, 128, kWidth}), randint(0, kWidth, {2})}; }

struct ResidualBlock : nn::Module {
  nn::Conv2d& one = add<nn::Conv2d>("one", 16, 16, 3, nn::ConvOptions{.padding = 1, .bias = false});
  nn::Conv2d& two = add<nn::Conv2d>("two", 16, 16, 3, nn::ConvOptions{.padding = 1, .bias = false});
  nn::BatchNorm2d &a = add<nn::BatchNorm2d>("a", 16), &b = add<nn::BatchNorm2d>("b", 16);
  Tensor forward(const Tensor& x) override { return (b(two(a(one(x)).relu())) + x).relu(); }
};
struct ResidualNet : nn::Module {
  std::vector<ResidualBlock*> all;
  ResidualNet() {
    for (int i = 0; i < 4; ++i) all.push_back(&add<ResidualBlock>("b" + std::to_string(i)));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (ResidualBlock* b : all) y = (*b)(y);
    return y.mean({2, 3});
  }
};

// Choices are weighed alike on every machine.
class Recompute : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cpu_has("amx_fp16")) guard_.emplace("amx");
  }
  void TearDown() override { guard_.reset(); }

 private:
  std::optional<IsaGuard> guard_;
};

TEST_F(Recompute, TransformerBlocks) {
  std::string explained = expect_less_memory(blocks(0), tokens(), 0.9);
  EXPECT_TRUE(contains(explained, "of gelu")) << explained;
  EXPECT_TRUE(contains(explained, "of layer_norm")) << explained;
}

// Running statistics are part of the state that is compared: they move once per step.
TEST_F(Recompute, ResidualBlocks) {
  auto make = [] { return of(std::make_unique<ResidualNet>()); };
  std::string explained = expect_less_memory(make, {randn({4, 16, 24, 24}), randint(0, 16, {4})}, 0.95);
  EXPECT_TRUE(contains(explained, "of fused_batch_norm")) << explained;
}

TEST_F(Recompute, RandomNumbersAreNotDrawnAgain) {
  std::string explained = expect_less_memory(blocks(0.2), tokens(), 0.95);
  EXPECT_TRUE(contains(explained, "made of random numbers")) << explained;
}

// --- Single graphs.

struct Made {
  Graph graph;
  Notes notes;
  size_t captured = 0;
  // Instructions beyond those captured.
  size_t more() const { return kernels(graph) - captured; }
  static size_t kernels(const Graph& g) {
    return static_cast<size_t>(std::count_if(g.instructions.begin(), g.instructions.end(),
                                             [](const auto& x) { return x.action != graph::Action::view; }));
  }
  std::string notes_text() const {
    std::string text;
    for (const auto* list : {&notes.done, &notes.left})
      for (const std::string& line : *list) text += line + "\n";
    return text;
  }
};
Made recomputed(const graph::Function& f, const Tensor& x, bool weigh) {
  NoGradGuard no_grad;
  Made made;
  made.graph = graph::capture(f, {x}).graph;
  made.captured = Made::kernels(made.graph);
  graph::recompute(made.graph, made.notes, weigh);
  graph::verify(made.graph, "recompute");
  return made;
}
// Runs as eager does.
void expect_same_run(Made& made, const graph::Function& f) {
  NoGradGuard no_grad;
  Tensor x = randn({128, 128}), y = x.clone();
  graph::Executable plan(std::move(made.graph));
  std::vector<Tensor> want = f({x}), got = plan.run({y});
  EXPECT_TRUE(same_bits(want[0], got[0]));
  EXPECT_TRUE(same_bits(x, y));
}
// So much work on so much memory that a result from before is in the way.
Tensor in_between(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = matmul(y, y).tanh();
  return matmul(cat({y, y, y}, 0), y).sum();
}

TEST_F(Recompute, WhatIsMadeOfWhatStays) {
  auto f = [](const std::vector<Tensor>& x) {
    Tensor a = x[0].sigmoid();
    Tensor b = in_between(a.t());
    return std::vector<Tensor>{a.t() * b};  // a view from before
  };
  Made made = recomputed(f, randn({128, 128}), true);
  EXPECT_EQ(made.more(), 1u) << made.notes_text();
  expect_same_run(made, f);
}
TEST_F(Recompute, ThroughTwoOps) {
  auto f = [](const std::vector<Tensor>& x) {
    Tensor a = x[0].exp().sigmoid();
    return std::vector<Tensor>{a * in_between(a)};
  };
  Made made = recomputed(f, randn({128, 128}), true);
  EXPECT_EQ(made.more(), 2u) << made.notes_text();
  expect_same_run(made, f);
}
TEST_F(Recompute, NotWhatIsMadeOfSomethingWritten) {
  auto f = [](const std::vector<Tensor>& x) {
    Tensor a = x[0].sigmoid();
    Tensor b = in_between(a);
    Tensor written = x[0];
    written.add_(1);
    return std::vector<Tensor>{a * b};
  };
  for (bool weigh : {true, false}) {
    Made made = recomputed(f, randn({128, 128}), weigh);
    EXPECT_TRUE(contains(made.notes_text(), "written in between")) << made.notes_text();
    expect_same_run(made, f);
  }
}
TEST_F(Recompute, NotProductsNorWhatIsWrittenTwice) {
  auto product = [](const std::vector<Tensor>& x) {
    Tensor a = matmul(x[0], x[0]);
    return std::vector<Tensor>{a * in_between(a)};
  };
  auto twice = [](const std::vector<Tensor>& x) {
    Tensor a = x[0].sigmoid();
    a.mul_(2);
    return std::vector<Tensor>{a * in_between(a)};
  };
  Made made = recomputed(product, randn({128, 128}), true);
  EXPECT_EQ(made.more(), 0u);
  EXPECT_TRUE(contains(made.notes_text(), "ops that are dear")) << made.notes_text();
  made = recomputed(twice, randn({128, 128}), true);
  EXPECT_EQ(made.more(), 0u);
  EXPECT_TRUE(contains(made.notes_text(), "written more than once")) << made.notes_text();
}
// A pass over memory between matmuls this small would be most of the work.
TEST_F(Recompute, NotForTooMuchTime) {
  auto f = [](const std::vector<Tensor>& x) {
    Tensor a = x[0].sigmoid(), y = x[0];
    for (int i = 0; i < 20; ++i) y = y.sin();
    return std::vector<Tensor>{a * y.amax()};
  };
  Made made = recomputed(f, randn({128, 128}), true);
  EXPECT_EQ(made.more(), 0u);
  EXPECT_TRUE(contains(made.notes_text(), "more work than the bytes are worth")) << made.notes_text();
  made = recomputed(f, randn({128, 128}), false);
  EXPECT_EQ(made.more(), 1u) << made.notes_text();
  expect_same_run(made, f);
}
// The same pass over memory, beside matmuls that take a quarter of the time.
TEST(RecomputeWithTiles, LessOften) {
  if (!cpu_has("amx_fp16")) GTEST_SKIP() << "no AMX-FP16 here";
  auto f = [](const std::vector<Tensor>& x) {
    Tensor a = x[0].sigmoid();
    return std::vector<Tensor>{a * in_between(a)};
  };
  EXPECT_EQ(recomputed(f, randn({128, 128}), true).more(), 0u);
  IsaGuard guard("amx");
  EXPECT_EQ(recomputed(f, randn({128, 128}), true).more(), 1u);
}

}  // namespace
}  // namespace deft
