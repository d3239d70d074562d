// Captured functions run again: the same bits as eager mode, on other inputs too, in one arena.
#include "graph/executable.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "core/grad_mode.h"
#include "graph/capture.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/gpt2.h"
#include "models/resnet.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "runtime/memory.h"

namespace deft::graph {
namespace {

bool same(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.numel()) * x.element_size()) == 0;
}

// Captures with `first`, then compares runs on `first` and `second` with eager mode.
void expect_replays(const Function& f, const std::vector<Tensor>& first, const std::vector<Tensor>& second) {
  NoGradGuard no_grad;
  Executable plan(capture(f, first).graph);
  for (const auto* inputs : {&first, &second, &first}) {
    std::vector<Tensor> wanted = f(*inputs), found = plan.run(*inputs);
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same(found[i], wanted[i])) << "result " << i;
  }
}
void expect_replays(nn::Module& model, const Tensor& first, const Tensor& second) {
  nn::EvalGuard eval(model);
  expect_replays([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{model(x[0])}; }, {first}, {second});
}

TEST(Executable, Elementwise) {
  auto f = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{(x[0] + x[1]).relu() * 2, x[0].sum()}; };
  expect_replays(f, {randn({3, 5}), randn({5})}, {randn({3, 5}), randn({5})});
}

TEST(Executable, ViewsAndWrites) {
  auto f = [](const std::vector<Tensor>& x) {
    Tensor y = zeros({4, 6});
    y.narrow(1, 0, 3).copy_(x[0]);
    y.narrow(1, 3, 3).add_(x[0].t().contiguous().t());
    y.mul_(x[0].sum());
    return std::vector<Tensor>{y.t(), y[1]};
  };
  expect_replays(f, {randn({4, 3})}, {randn({4, 3})});
}

TEST(Executable, StateIsWrittenThrough) {
  Tensor counter = zeros({1});
  NoGradGuard no_grad;
  Executable plan(capture(
                      [&](const std::vector<Tensor>& x) {
                        counter.add_(x[0].sum());
                        return std::vector<Tensor>{counter * 1};
                      },
                      {ones({3})})
                      .graph);
  uint32_t before = counter.version();
  EXPECT_EQ(plan.run({ones({3})})[0].item(), 6);
  EXPECT_EQ(counter.item(), 6);
  EXPECT_GT(counter.version(), before);
}

TEST(Executable, ResultsAreNeverOverwritten) {
  NoGradGuard no_grad;
  Executable plan(
      capture([](const std::vector<Tensor>& x) { return std::vector<Tensor>{x[0] * 2}; }, {ones({64})}).graph);
  Tensor a = plan.run({full({64}, 1)})[0], b = plan.run({full({64}, 2)})[0];
  EXPECT_EQ(a[0].item(), 2);
  EXPECT_EQ(b[0].item(), 4);
  a = b = Tensor();
  const void* memory = plan.run({full({64}, 3)})[0].data_ptr();
  EXPECT_EQ(plan.run({full({64}, 3)})[0].data_ptr(), memory);  // nobody held it
}

TEST(Executable, ViewsOfResultsAndGraphsOnThemKeepThem) {
  NoGradGuard no_grad;
  Executable plan(
      capture([](const std::vector<Tensor>& x) { return std::vector<Tensor>{x[0] * 2}; }, {ones({64})}).graph);
  Tensor row = plan.run({full({64}, 1)})[0][3];
  plan.run({full({64}, 5)});
  EXPECT_EQ(row.item(), 2);
  plan.run({full({64}, 1)})[0].requires_grad_();
  EXPECT_FALSE(plan.run({full({64}, 1)})[0].requires_grad());
}

TEST(Executable, InputsAnywhere) {
  auto f = [](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{x[0].narrow(0, 1, 2).t() + x[0][0][0], x[0], x[0][1]};
  };
  Tensor all = randn({9, 4});
  expect_replays(f, {all.narrow(0, 0, 3)}, {all.narrow(0, 5, 3)});
  NoGradGuard no_grad;
  Executable plan(capture(f, {all.narrow(0, 0, 3)}).graph);
  std::vector<Tensor> found = plan.run({all.narrow(0, 5, 3)});
  EXPECT_TRUE(found[1].shares_storage_with(all));
  EXPECT_EQ(found[2].data_ptr(), all[6].data_ptr());
}

TEST(Executable, WritesToInputsCount) {
  NoGradGuard no_grad;
  auto f = [](const std::vector<Tensor>& x) {
    Tensor t = x[0];
    return std::vector<Tensor>{t.add_(1)};
  };
  Executable plan(capture(f, {zeros({4})}).graph);
  Tensor x = zeros({4});
  uint32_t before = x.version();
  plan.run({x});
  EXPECT_EQ(x[0].item(), 1);
  EXPECT_GT(x.version(), before);
}

// Matrices that a matmul caches packed are identified by version: memory of results and of the arena is written
// by plans all the time.
TEST(Executable, NothingOldIsKeptOfResults) {
  auto f = [](const std::vector<Tensor>& x) {
    Tensor w = x[0].exp(), v = x[0].sin();
    return std::vector<Tensor>{w, x[1].matmul(w), x[1].matmul(v)};
  };
  NoGradGuard no_grad;
  Tensor left = randn({64, 128});
  Executable plan(capture(f, {randn({128, 128}), left}).graph);
  for (int i = 0; i < 5; ++i) {
    std::vector<Tensor> in{randn({128, 128}), left}, wanted = f(in), found = plan.run(in);
    for (size_t k = 0; k < wanted.size(); ++k) EXPECT_TRUE(same(found[k], wanted[k])) << "run " << i << ", " << k;
  }
}

TEST(Executable, AllocatesNothing) {
  NoGradGuard no_grad;
  auto f = [](const std::vector<Tensor>& x) {
    return std::vector<Tensor>{(x[0] + 1).softmax(-1).matmul(x[1]).relu(), x[0].exp()};
  };
  Tensor a = randn({8, 16}), b = randn({16, 16});
  Executable plan(capture(f, {a, b}).graph);
  const Tensor* inputs[] = {&a, &b};
  Tensor results[2];
  auto run = [&] {
    results[0] = results[1] = Tensor();
    plan.run(inputs, results);
  };
  run();
  int64_t storages = storage_allocations(), blocks = system_allocations();
  for (int i = 0; i < 10; ++i) run();
  EXPECT_EQ(storage_allocations(), storages);
  EXPECT_EQ(system_allocations(), blocks);
  EXPECT_TRUE(same(results[0], f({a, b})[0]));
}

TEST(Executable, RunsAgainAfterAFailedAllocation) {
  NoGradGuard no_grad;
  auto f = [](const std::vector<Tensor>& x) { return std::vector<Tensor>{x[0] * 2, x[0] * 3, x[0].t() + 1}; };
  Tensor x = randn({100, 100});
  Executable plan(capture(f, {x}).graph);
  for (int64_t n = 0; n < 3; ++n) {
    std::vector<Tensor> held = plan.run({x});
    fail_allocation_after(n);
    EXPECT_THROW(plan.run({x}), OutOfMemoryError);
    fail_allocation_after(-1);
    Tensor other = randn({100, 100});
    std::vector<Tensor> wanted = f({x});
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(held[i], wanted[i])) << "held " << i;
    held.clear();
    std::vector<Tensor> found = plan.run({other});
    wanted = f({other});
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same(found[i], wanted[i])) << "result " << i;
  }
}

TEST(Executable, Models) {
  RngScope rng({1, 0});
  models::Cnn cnn;
  expect_replays(cnn, randn({2, 1, 28, 28}), randn({2, 1, 28, 28}));
  models::ResNetOptions o = models::resnet18_options();
  o.width = 8;
  o.classes = 10;
  models::ResNet resnet(o);
  expect_replays(resnet, randn({1, 3, 64, 64}), randn({1, 3, 64, 64}));
  nn::GRUCell gru(6, 5);
  expect_replays([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{gru(x[0], x[1])}; },
                 {randn({3, 6}), randn({3, 5})}, {randn({3, 6}), randn({3, 5})});
  models::BertForSequenceClassification bert(
      3, {.vocabulary = 50, .hidden = 32, .layers = 2, .heads = 4, .intermediate = 64, .positions = 32});
  nn::EvalGuard eval(bert);
  expect_replays([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{bert.logits(x[0])}; },
                 {randint(1, 50, {2, 16})}, {randint(1, 50, {2, 16})});
}

TEST(Executable, ArenaIsShared) {
  NoGradGuard no_grad;
  auto f = [](const std::vector<Tensor>& x) {
    Tensor y = x[0];
    for (int i = 0; i < 10; ++i) y = y.exp().sin();
    return std::vector<Tensor>{y};
  };
  Executable plan(capture(f, {randn({1024})}).graph);
  EXPECT_EQ(plan.memory().sum, 19 * 4096);
  EXPECT_EQ(plan.memory().bytes, 4096);
  EXPECT_EQ(plan.memory().bytes, plan.memory().floor);
}

TEST(Capture, RefusesWhatDependsOnValues) {
  NoGradGuard no_grad;
  auto run = [](auto f) {
    capture([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{f(x[0])}; }, {randn({4})});
  };
  EXPECT_THROW(run([](const Tensor& x) { return x.sum().item() > 0 ? x : -x; }), CaptureError);
  EXPECT_THROW(run([](const Tensor& x) { return tensor(x.exp().to_vector<float>()); }), CaptureError);
  EXPECT_THROW(run([](const Tensor& x) { return nonzero(x > 0); }), CaptureError);
  EnableGradGuard grad;
  Tensor w = ones({4}).requires_grad_();
  EXPECT_THROW(run([&](const Tensor& x) { return x * w; }), CaptureError);
}

}  // namespace
}  // namespace deft::graph
