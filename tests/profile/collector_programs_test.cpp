// Real programs under a session.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "deft/deft.h"
#include "profile/collector.h"
#include "profile/session_util.h"

namespace deft::profile {
namespace {

TEST(Collector, OpsAreCountedWithTheirWork) {
  const Tensor a = rand({16, 32}), b = rand({32, 8});
  ProfileSession session;
  Site site;
  for (int i = 0; i < 3; ++i) {
    matmul(a, b), site = Site::current();
    matmul(a.to(DType::f64), b.to(DType::f64));
  }
  const Profile p = session.stop();
  int found = 0;
  for (const OpRow& row : p.ops) {
    if (row.name != "matmul") continue;
    ++found;
    EXPECT_EQ(row.calls, 3);
    EXPECT_EQ(row.flops, 3.0 * 2 * 16 * 32 * 8);
    EXPECT_EQ(row.bytes, 3.0 * (16 * 32 + 32 * 8 + 16 * 8) * (row.dtype == DType::f64 ? 8 : 4));
    EXPECT_EQ(row.bucket, Bucket::linear_algebra);
    EXPECT_GT(row.kernel_seconds, 0);
    EXPECT_GT(row.overhead_seconds, 0);
    if (row.dtype == DType::f32) {
      EXPECT_EQ(row.site, to_string(site));
    }
  }
  EXPECT_EQ(found, 2);
}

TEST(Collector, TypesOfOneLineAreApart) {
  const Tensor x[] = {rand({8}), rand({8}).to(DType::f64)};
  ProfileSession session;
  for (int i = 0; i < 4; ++i) exp(x[i % 2]);
  const Profile p = session.stop();
  int found = 0;
  for (const OpRow& row : p.ops)
    if (row.name == "exp") {
      ++found;
      EXPECT_EQ(row.calls, 2);
      EXPECT_EQ(row.bytes, 2.0 * 2 * 8 * (row.dtype == DType::f64 ? 8 : 4));
    }
  EXPECT_EQ(found, 2);
}

TEST(Collector, PlansShowTheirKernels) {
  nn::Linear layer(8, 8);
  layer.eval();
  auto compiled = compile([&](const Tensor& x) { return softmax(layer(x), 1); });
  const Tensor x = rand({4, 8});
  NoGradGuard quiet;
  for (int i = 0; i < 3; ++i) compiled(x);
  ProfileSession session;
  for (int i = 0; i < 5; ++i) compiled(x);
  const Profile p = session.stop();
  ASSERT_TRUE(row_of(p, "plan"));
  EXPECT_EQ(row_of(p, "plan")->calls, 5);
  EXPECT_GT(row_of(p, "plan")->overhead_seconds, 0);
  ASSERT_TRUE(row_of(p, "softmax"));
  EXPECT_EQ(row_of(p, "softmax")->calls, 5);
  EXPECT_GT(row_of(p, "softmax")->bytes, 0);
  add_up(p);
}

TEST(Collector, AllocationIsMemoryOfTheSystem) {
#if defined(DEFT_ASAN)
  GTEST_SKIP() << "sanitizer builds do not cache";
#endif
  constexpr int64_t kElements = 1 << 18;
  trim_memory();
  const int64_t calls = system_allocations();
  ProfileSession session;
  for (int i = 0; i < 3; ++i) zeros({kElements});  // from the cache, but for the first
  const Profile p = session.stop();
  int64_t told = 0;
  for (const FlameRow& row : p.flame)
    if (row.stack.ends_with("allocate from system")) told += row.calls;
  EXPECT_EQ(told, 1);
  EXPECT_GE(system_allocations(), calls + 1);
  EXPECT_GT(p[Bucket::allocation], 0);
}

TEST(Collector, ModulesHaveTheirNames) {
  models::Cnn model;
  model.eval();
  NoGradGuard quiet;
  const Tensor x = rand({2, 1, 28, 28});
  ProfileSession session({.most_cost = 1});  // every call is looked at, however slow the machine
  model(x);
  model(x);
  const Profile p = session.stop();
  std::map<std::string, const ModuleRow*> rows;
  for (const ModuleRow& row : p.modules) rows[row.name] = &row;
  size_t called = 0;
  for (auto& [name, module] : model.named_modules()) called += rows.count(name);
  EXPECT_EQ(called, p.modules.size());
  ASSERT_TRUE(rows.count(""));
  ASSERT_TRUE(rows.count("classifier"));
  EXPECT_EQ(rows["classifier"]->calls, 2);
  EXPECT_EQ(rows["classifier"]->type.substr(0, 6), "Linear");
  EXPECT_EQ(p.modules[0].name, "");
  double self = 0;
  for (const ModuleRow& row : p.modules) {
    EXPECT_LE(row.self_seconds, row.seconds * (1 + 1e-9));
    self += row.self_seconds;
  }
  EXPECT_NEAR(self, rows[""]->seconds, 1e-9);  // all of the model is some module's own
  EXPECT_GE(rows[""]->seconds, rows["classifier"]->seconds);
  const EventRing& events = session.trace().threads[0].events;
  int in_trace = 0;
  for (size_t i = 0; i < events.size(); ++i) in_trace += std::string(events[i].name) == "classifier";
  EXPECT_EQ(in_trace, 2);
  bool in_flame = false;
  for (const FlameRow& row : p.flame) in_flame |= row.stack.find("Cnn;classifier;") == 0;
  EXPECT_TRUE(in_flame);
}

TEST(Collector, ModulesInAnyOrderAndInSeveralPlaces) {
  struct Leaf : nn::Module {
    uint64_t ticks;
    explicit Leaf(uint64_t t) : ticks(t) {}
    Tensor forward(const Tensor& x) override {
      pass(ticks);
      return x;
    }
  };
  struct Root : nn::Module {
    Leaf &a = add<Leaf>("a", 1), &b = add<Leaf>("b", 10), &c = add<Leaf>("c", 100);
    int round = 0;
    Tensor forward(const Tensor& x) override {
      Leaf* const all[] = {&a, &b, &c};
      for (int i = 0; i < 7; ++i) (*all[(i * i + round) % 3])(x);
      ++round;
      Zone around("around", Bucket::kernel);
      return round % 2 ? a(x) : c(x);
    }
  } root;
  ProfileSession session(kOnFakeClock);
  int64_t calls[3] = {};
  for (int round = 0; round < 10; ++round) {
    root(ones({1}));
    for (int i = 0; i < 7; ++i) ++calls[(i * i + round) % 3];
    ++calls[round % 2 ? 2 : 0];
  }
  const Profile p = session.stop();
  ASSERT_EQ(p.modules.size(), 4u);
  for (const ModuleRow& row : p.modules) {
    if (row.name.empty()) continue;
    const size_t which = static_cast<size_t>(row.name[0] - 'a');
    const double each[] = {1, 10, 100};
    EXPECT_EQ(row.calls, calls[which]) << row.name;
    EXPECT_NEAR(row.seconds * 1e6, each[which] * static_cast<double>(calls[which]), 1e-6) << row.name;
  }
  ASSERT_TRUE(stack_of(p, "Root;around;a"));
  EXPECT_EQ(stack_of(p, "Root;around;a")->calls, 5);
}

TEST(Collector, AModuleInsideItselfCountsOnce) {
  struct Twice : nn::Module {
    int left = 3;
    Tensor forward(const Tensor& x) override {
      pass(10);
      return --left > 0 ? (*this)(x) : x;
    }
  } twice;
  ProfileSession session(kOnFakeClock);
  twice(ones({1}));
  const Profile p = session.stop();
  ASSERT_EQ(p.modules.size(), 1u);
  EXPECT_EQ(p.modules[0].calls, 3);
  EXPECT_NEAR(p.modules[0].seconds * 1e6, 30, 1e-6);
  EXPECT_NEAR(p.modules[0].self_seconds * 1e6, 30, 1e-6);
}

TEST(Collector, ATrainingStepOfACnn) {
  auto set = std::make_shared<data::TensorDataset>(data::image_dataset(data::make_glyphs(1, 192)));
  data::DataLoader loader(set, {.batch_size = 64, .workers = 0});
  models::Cnn model({.classes = data::glyph_classes(), .width = 8});
  optim::AdamW optimizer(model.parameters());
  const auto train = [&] {
    for (data::Batch& batch : loader) {
      Tensor loss = cross_entropy(model(batch["image"].to(DType::f32) / 255.0), batch["label"]);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
  };
  train();
  const auto began = std::chrono::steady_clock::now();
  ProfileSession session;
  const auto inner_began = std::chrono::steady_clock::now();
  train();
  const auto inner_ended = std::chrono::steady_clock::now();
  const Profile p = session.stop();
  const auto ended = std::chrono::steady_clock::now();
  EXPECT_LE(p.wall_seconds, std::chrono::duration<double>(ended - began).count());
  EXPECT_GE(p.wall_seconds, std::chrono::duration<double>(inner_ended - inner_began).count() * 0.999);
  EXPECT_NEAR(p.sum(), p.wall_seconds, 0.02 * p.wall_seconds);
  for (Bucket b : {Bucket::data_wait, Bucket::linear_algebra, Bucket::kernel, Bucket::autograd, Bucket::dispatch,
                   Bucket::optimizer, Bucket::other})
    EXPECT_GT(p[b], 0) << name_of(b);
  EXPECT_GT(p.cpu_seconds, 0);
  EXPECT_GT(p.zones, 100);
  if (num_threads() <= 8) {  // the trace has room for so many other threads
    EXPECT_EQ(p.dropped, 0);
  }
  ASSERT_TRUE(row_of(p, "convolution"));
  EXPECT_GT(row_of(p, "convolution")->flops, 0);
  bool backward = false;
  for (const OpRow& row : p.ops) backward |= row.backward && row.flops > 0 && row.bucket == Bucket::linear_algebra;
  EXPECT_TRUE(backward);
  EXPECT_GT(p.overhead_seconds, 0);
}

}  // namespace
}  // namespace deft::profile
