// Plans on a GPU: recorded as CUDA graphs from their third run on.
#include "amp/autocast.h"
#include "core/rounded_copy.h"
#include "cuda_util.h"
#include "deft/deft.h"
#include "ops/case_checks.h"

namespace deft {
namespace {

class CudaCompile : public GpuTest {};

constexpr int kCalls = 12;  // beyond the warm-up, and beyond the sets of addresses that are kept

Tensor net(const Tensor& x, const Tensor& w) { return softmax(gelu(linear(x, w)) * 2 + 1, -1); }

void expect_near(const Tensor& found, const Tensor& want, int call) {
  const double error = (found - want).abs().amax().item(), size = want.abs().amax().item();
  EXPECT_LE(error, 1e-5 * size) << "call " << call;
}

TEST_F(CudaCompile, RecordedRunsReadTheirInputs) {
  NoGradGuard no_grad;
  Tensor w = randn({64, 32}, on_gpu()), x = randn({16, 32}, on_gpu());
  auto plan = compile([&](const Tensor& t) { return net(t, w); });
  for (int i = 0; i < kCalls; ++i) {
    x.copy_(randn({16, 32}, on_gpu()));  // the same address, other values
    expect_near(plan(x), net(x, w), i);
  }
  w.mul_(2);  // read where it is
  expect_near(plan(x), net(x, w), kCalls);
}

TEST_F(CudaCompile, ResultsThatAreHeldStand) {
  NoGradGuard no_grad;
  Tensor w = randn({64, 32}, on_gpu());
  auto plan = compile([&](const Tensor& t) { return net(t, w); });
  std::vector<Tensor> inputs, results;  // so every call has other addresses
  for (int i = 0; i < kCalls; ++i) {
    inputs.push_back(randn({16, 32}, on_gpu()));
    results.push_back(plan(inputs.back()));
  }
  for (int i = 0; i < kCalls; ++i)
    expect_near(results[static_cast<size_t>(i)], net(inputs[static_cast<size_t>(i)], w), i);
}

// A block's last convolution writes over its residual; the same inputs give the same results at every call.
TEST_F(CudaCompile, ResidualsAreWrittenOver) {
  NoGradGuard no_grad;
  nn::Conv2d one(64, 256, 1), two(256, 64, 1), three(64, 256, 1);
  for (nn::Conv2d* c : {&one, &two, &three}) c->to(kCUDA);
  auto block = [&](const Tensor& t) {
    Tensor a = one(t).relu();
    return (three(two(a).relu()) + a).relu().mean({2, 3});
  };
  auto plan = compile(block);
  for (int i = 0; i < kCalls; ++i) {
    Tensor x = randn({4, 64, 28, 28}, on_gpu()).contiguous(MemoryFormat::channels_last);
    expect_near(plan(x), block(x), i);
  }
  EXPECT_NE(plan.explain().find(", 1 of which are written over"), std::string::npos) << plan.explain();
}

TEST_F(CudaCompile, OtherStreamsWaitForRecordedRuns) {
  NoGradGuard no_grad;
  // Small logits: the softmax of large ones shows how matmuls were rounded.
  Tensor w = randn({1024, 1024}, on_gpu()) / 32, x = randn({1024, 1024}, on_gpu()), want = net(x, w);
  auto plan = compile([&](const Tensor& t) { return net(t, w); });
  for (int i = 0; i < kCalls; ++i) {
    Tensor y = plan(x), copy;
    {
      Stream side = Stream::create(kCUDA);
      StreamGuard other(side);
      copy = y.clone();
    }
    expect_near(copy, want, i);
  }
}

TEST_F(CudaCompile, DropoutStaysFresh) {
  NoGradGuard no_grad;
  Tensor x = ones({4096}, on_gpu()), before;
  auto plan = compile([](const Tensor& t) { return dropout(t * 2 + 1, 0.5, true).exp() + 1; });
  for (int i = 0; i < kCalls; ++i) {
    Tensor y = plan(x).clone();
    if (i > 0) {
      EXPECT_GT(y.ne(before).to(DType::i64).sum().item(), 0) << "call " << i;
    }
    before = y;
  }
}

TEST_F(CudaCompile, TrainingStepsMoveTheSameWay) {
  auto train = [](bool compiled) {
    RngScope rng({5, 0});
    nn::Linear up(16, 32), down(32, 4);
    up.to(kCUDA);
    down.to(kCUDA);
    std::vector<Tensor> parameters = up.parameters();
    for (const Tensor& p : down.parameters()) parameters.push_back(p);
    optim::AdamW optimizer(parameters, {.lr = 0.01});
    auto step = [&](const Tensor& x, const Tensor& y) {
      Tensor loss = cross_entropy(down(relu(up(x))), y);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      return loss.detach();
    };
    auto plan = compile(step);
    for (int i = 0; i < kCalls; ++i) {
      Tensor x = randn({8, 16}).to(kCUDA), y = randint(0, 4, {8}).to(kCUDA);
      compiled ? plan(x, y) : step(x, y);
    }
    return up.weight.detach().clone();
  };
  expect_near(train(true), train(false), kCalls);
}

// A step under autocast: matmuls store gradients of weights in f32, and the optimizer rounds weights for the next
// step.
struct MixedTraining {
  nn::Linear up{64, 512}, down{512, 48};
  std::unique_ptr<optim::AdamW> optimizer;
  MixedTraining() {
    up.to(kCUDA), down.to(kCUDA);
    std::vector<Tensor> parameters = up.parameters();
    for (const Tensor& p : down.parameters()) parameters.push_back(p);
    optimizer = std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 0.01});
  }
  Tensor step(const Tensor& x, const Tensor& y) {
    AutocastGuard autocast(DType::bf16);
    Tensor loss = cross_entropy(down(gelu(up(x))), y);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss.detach();
  }
};

// Losses of some steps; in between somebody else writes a weight.
std::vector<double> mixed_losses(const CompileOptions& options, std::string* explained) {
  RngScope rng({7, 0});
  MixedTraining t;
  auto plan = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, options);
  std::vector<double> losses;
  for (int i = 0; i < kCalls; ++i) {
    Tensor x = randn({40, 64}).to(kCUDA), y = randint(0, 48, {40}).to(kCUDA);
    losses.push_back(plan(x, y).item());
    NoGradGuard no_grad;
    if (i == 5) t.down.weight.mul_(-0.5);
    if (i == 8) t.up.weight.copy_(randn({512, 64}).to(kCUDA) / 8);
  }
  *explained = plan.explain();
  return losses;
}

TEST_F(CudaCompile, RoundedWeightsAreThoseOfTheStep) {
  std::string kept, cast;
  CompileOptions options;
  const std::vector<double> found = mixed_losses(options, &kept);
  options.passes.keep_casts = false;
  const std::vector<double> want = mixed_losses(options, &cast);
  EXPECT_NE(kept.find("keep_casts: 4 weights"), std::string::npos) << kept;
  EXPECT_EQ(cast.find("keep_casts: 4 weights"), std::string::npos) << cast;
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], want[i]) << "step " << i;
}

TEST_F(CudaCompile, TheOptimizerRoundsWeights) {
  RngScope rng({7, 0});
  MixedTraining t;
  auto plan = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); });
  Tensor x = randn({40, 64}).to(kCUDA), y = randint(0, 48, {40}).to(kCUDA);
  for (int i = 0; i < kCalls; ++i) plan(x, y);
  auto copy = find_rounded_copy(t.up.weight);
  ASSERT_TRUE(copy);  // and no cast has to run
  EXPECT_TRUE(testing::same_bits(host(*copy), host(t.up.weight).to(DType::bf16)));
  EXPECT_NE(plan.explain().find("results of matmuls stored in f32"), std::string::npos) << plan.explain();
}

}  // namespace
}  // namespace deft
