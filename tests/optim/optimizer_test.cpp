// What a step touches and what it leaves alone, groups, versions, memory, threads.
#include "optim_util.h"

#include "core/graph_stats.h"
#include "runtime/parallel.h"

namespace deft::optim {
namespace {

TEST(Optimizer, AStepEndsTheStepOfTheGraph) {
  Tensor a = param({5}, 1);
  auto optimizer = all_kinds()[0].second({a});
  give_grad(a, 3);
  const int64_t before = graph_stats().step;
  optimizer->step();
  EXPECT_EQ(graph_stats().step, before + 1);
}

TEST(Optimizer, FrozenParametersStandStill) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    Tensor a = param({5}, 1), b = param({5}, 2);
    auto optimizer = make({a, b});
    give_grad(a, 3), give_grad(b, 4);
    optimizer->step();
    const Tensor a1 = a.detach().clone(), b1 = b.detach().clone();
    a.requires_grad_(false);  // its gradient is still there
    const uint32_t version = a.version();
    optimizer->step();
    EXPECT_TRUE(same_bits(a, a1));
    EXPECT_EQ(a.version(), version);
    EXPECT_FALSE(same_bits(b, b1));
  }
}

TEST(Optimizer, NoGradientIsSkippedButZeroIsAGradient) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    Tensor none = param({5}, 1), zero = param({5}, 1);
    auto optimizer = make({none, zero});
    zero.set_grad(zeros({5}));
    optimizer->step();
    EXPECT_TRUE(same_bits(none, param({5}, 1)));
    EXPECT_FALSE(same_bits(zero, none)) << "weight decay applies";
    EXPECT_FALSE(optimizer->state().has("0.step"));
    EXPECT_EQ(optimizer->state().get<int64_t>("1.step"), 1);
  }
  Tensor p = param({3}, 1);
  SGD sgd({p}, {.lr = 1, .momentum = 0.5});
  p.set_grad(ones({3}));
  sgd.step();
  const Tensor before = p.detach().clone();
  sgd.zero_grad();
  sgd.step();
  EXPECT_TRUE(same_bits(p, before));
  p.set_grad(zeros({3}));
  sgd.step();  // the buffer moves it on
  expect_close(p.detach(), before - 0.5, "momentum", 0x1p-22);
}

TEST(Optimizer, ZeroGrad) {
  Tensor p = param({3}, 1), frozen = param({3}, 2);
  SGD sgd({p, frozen}, {.lr = 1});
  give_grad(p, 3), give_grad(frozen, 4);
  frozen.requires_grad_(false);
  sgd.zero_grad(false);
  EXPECT_VALUES(p.grad(), 0, 0, 0);
  EXPECT_VALUES(frozen.grad(), 0, 0, 0);
  sgd.zero_grad();
  EXPECT_FALSE(p.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(Optimizer, GroupsHaveTheirOwnOptions) {
  Tensor a = param({4}, 1), b = param({4}, 1), c = param({4}, 1);
  SGD sgd(std::vector<SGD::Group>{{{a}, {.lr = 0.5}}, {{b}, {.lr = 0.5, .weight_decay = 0.5}}});
  sgd.add_param_group({c}, {.lr = 2});
  for (const Tensor& p : {a, b, c}) p.set_grad(ones({4}));
  const Tensor start = a.detach().clone();
  sgd.step();
  expect_close(a.detach(), start - 0.5, "a", 0x1p-22);
  expect_close(b.detach(), start * 0.75 - 0.5, "b", 0x1p-22);
  expect_close(c.detach(), start - 2, "c", 0x1p-22);
  sgd.set_lr(0, 0);
  sgd.options(1).lr = 0;
  EXPECT_EQ(sgd.lr(1), 0);
  EXPECT_EQ(sgd.lr(2), 2);
  const Tensor a1 = a.detach().clone(), b1 = b.detach().clone();
  sgd.step();
  EXPECT_TRUE(same_bits(a, a1));
  EXPECT_TRUE(same_bits(b, b1));
  EXPECT_EQ(sgd.params().size(), 3u);
  EXPECT_TRUE(sgd.params(2)[0].is_same(c));
}

TEST(Optimizer, ParametersOfEachGroup) {
  std::vector<Tensor> all;
  for (uint64_t i = 0; i < 6; ++i) all.push_back(param({1}, i));
  Adam adam(std::vector<Adam::Group>{{{all[0], all[1]}, {}}, {{all[2]}, {}}});
  adam.add_param_group({all[3], all[4], all[5]}, {});
  const size_t begins[] = {0, 2, 3, 6};
  ASSERT_EQ(adam.group_count(), 3u);
  for (size_t g = 0; g < 3; ++g) {
    const std::vector<Tensor> found = adam.params(g);
    ASSERT_EQ(found.size(), begins[g + 1] - begins[g]) << g;
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].is_same(all[begins[g] + i])) << g << i;
  }
  ASSERT_EQ(adam.params().size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(adam.params()[i].is_same(all[i])) << i;
}

TEST(Optimizer, RefusesWhatCannotBeOptimized) {
  Tensor a = param({4}, 1), b = param({4}, 2);
  expect_error<ValueError>([&] { SGD({a, b, a}, {.lr = 1}); }, "parameter 2 of the group");
  SGD sgd({a}, {.lr = 1});
  expect_error<ValueError>([&] { sgd.add_param_group({b, a}, {.lr = 1}); }, "give every parameter once");
  EXPECT_EQ(sgd.group_count(), 1u);
  expect_error<ValueError>([&] { SGD({a * 2}, {.lr = 1}); }, "the result of mul");
  expect_error<ValueError>([&] { SGD(std::vector<Tensor>{Tensor()}, {.lr = 1}); }, "undefined");
  expect_error<ValueError>([&] { SGD(std::vector<Tensor>{}, {.lr = 1}); }, "empty");
  expect_error<DTypeError>([&] { SGD({ones({2}, i64)}, {.lr = 1}); }, "floating");
  expect_error<ValueError>([&] { SGD({a}, {.lr = -1}); }, "lr must not be negative, found -1");
  expect_error<ValueError>([&] { SGD({a}, {.lr = 1, .nesterov = true}); }, "nesterov needs momentum > 0");
  expect_error<ValueError>([&] { Adam({a}, {.beta1 = 1}); }, "beta1 lies in [0, 1), found 1");
  expect_error<ValueError>([&] { RMSprop({a}, {.eps = -1}); }, "eps");
  expect_error<ValueError>([&] { Adagrad({a}, {.lr_decay = -1}); }, "lr_decay");
  expect_error<ValueError>([&] { LAMB({a}, {.beta2 = -0.1}); }, "beta2");
  expect_error<IndexError>([&] { sgd.lr(1); }, "there is no group 1");
  expect_error<ValueError>([&] { Adagrad({b}).momentum(); }, "neither momentum nor beta1");
  expect_error<ValueError>([&] { sgd.step({.grad_scale = NAN}); }, "grad_scale must be finite");
}

// Every tensor is looked at before the first is written.
TEST(Optimizer, AnErrorLeavesEverythingAsItWas) {
  Tensor good = param({4}, 1), expanded = param({1}, 2).detach().expand({4}).detach().requires_grad_();
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    auto optimizer = make({good, expanded});
    give_grad(good, 3), expanded.set_grad(ones({4}));
    const Tensor before = good.detach().clone();
    expect_error<InplaceError>([&] { optimizer->step(); }, "share memory");
    EXPECT_TRUE(same_bits(good, before));
    EXPECT_TRUE(optimizer->state().tensors.empty()) << "no step counted";
  }
}

TEST(Optimizer, SavedGraphNoticesTheStep) {
  for (DType dtype : {f32, f64}) {  // fused and composed
    Tensor w = param({3}, 1, dtype), x = param({3}, 2, dtype);
    SGD sgd({w}, {.lr = 1});
    Tensor loss = (w * x).sum();
    w.set_grad(ones({3}, dtype));
    const uint32_t version = w.version();
    sgd.step();
    EXPECT_GT(w.version(), version);
    expect_error<InplaceError>([&] { loss.backward(); }, "changed in place by sgd at optimizer_test.cpp");
  }
}

TEST(Optimizer, RecordsNothingInAnyMode) {
  Tensor p = param({3}, 1), q = param({3}, 1);
  Adam a({p}), b({q});
  for (int i = 0; i < 2; ++i) {
    give_grad(p, 5), give_grad(q, 5);
    a.step();
    if (i == 0)
      inference_mode([&] { b.step(); });
    else
      b.step();  // its states are ordinary tensors
  }
  EXPECT_TRUE(p.is_leaf() && p.requires_grad());
  EXPECT_TRUE(same_bits(p, q));
  EXPECT_TRUE(is_grad_enabled());
}

// Master copies, filled states and loaded ones too.
TEST(Optimizer, StatesMadeInInferenceModeAreOrdinaryTensors) {
  Tensor p = param({3}, 1, bf16);
  Adagrad adagrad({p}, {.initial_accumulator_value = 1, .master_weights = true});
  auto step = [&] {
    give_grad(p, 2);
    adagrad.step();
  };
  auto check = [&] {
    for (const NamedTensor& t : adagrad.state().tensors) EXPECT_FALSE(t.tensor.is_inference()) << t.name;
    EXPECT_EQ(adagrad.state().tensors.size(), 2u);
  };
  p.set_grad(sample({3}, 2, {bf16}));
  inference_mode([&] { adagrad.step(); });
  check();
  inference_mode([&] { adagrad.load_state(adagrad.state()); });
  check();
  step();
}

TEST(Optimizer, StatesCountAsOptimizerMemory) {
  const int64_t before = memory_live()[MemoryCategory::optimizer];
  {
    Tensor p = param({100}, 1);
    Adam adam({p});
    give_grad(p, 2);
    adam.step();
    EXPECT_EQ(memory_live()[MemoryCategory::optimizer] - before, 2 * 100 * 4);
  }
  EXPECT_EQ(memory_live()[MemoryCategory::optimizer], before);
}

TEST(Optimizer, KeepsNoGradientAlive) {
  Tensor p = param({1000}, 1);
  SGD sgd({p}, {.lr = 0.1});
  const int64_t before = memory_live()[MemoryCategory::gradient];
  give_grad(p, 2);
  sgd.step();
  sgd.zero_grad();
  EXPECT_EQ(memory_live()[MemoryCategory::gradient], before);
}

TEST(Optimizer, ASteadyStepAllocatesNothing) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    std::vector<Tensor> params;
    for (uint64_t i = 0; i < 20; ++i) params.push_back(param({static_cast<int64_t>(1000 * i + 3)}, i));
    auto optimizer = make(params);
    for (size_t i = 0; i < params.size(); ++i) give_grad(params[i], i);
    for (int i = 0; i < 2; ++i) optimizer->step();
    const int64_t storages = storage_allocations();
    [[maybe_unused]] const int64_t blocks = system_allocations();
    for (int i = 0; i < 3; ++i) optimizer->step();
    EXPECT_EQ(storage_allocations(), storages);
#ifndef DEFT_ASAN  // which uses no memory again
    EXPECT_EQ(system_allocations(), blocks);
#endif
  }
}

TEST(Optimizer, ThreadsDoNotChangeResults) {
  const int threads = num_threads();
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    std::vector<std::vector<Tensor>> results;
    for (int n : {1, 2, 3, 5}) {
      set_num_threads(n);
      std::vector<Tensor> params{param({70001}, 1), param({3}, 2), param({257, 129}, 3), param({40000}, 4, f64)};
      auto optimizer = make(params);
      for (uint64_t step = 0; step < 2; ++step) {
        for (const Tensor& p : params) give_grad(p, 10 + step);
        optimizer->step();
      }
      results.push_back(params);
    }
    for (size_t n = 1; n < results.size(); ++n)
      for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(same_bits(results[n][i], results[0][i])) << n << i;
  }
  set_num_threads(threads);
}

// Options that are turned on later find their states missing.
TEST(Optimizer, OptionsMayChangeBetweenSteps) {
  Tensor p = param({3}, 1);
  SGD sgd({p}, {.lr = 1});
  p.set_grad(ones({3}));
  sgd.step();
  const Tensor before = p.detach().clone();
  sgd.options().momentum = 0.5;
  sgd.options().dampening = 0.9;
  sgd.step();  // the first step of the buffer is the whole gradient
  expect_close(p.detach(), before - 1, "", 0x1p-22);
  Adam adam({p}, {.lr = 0.1});
  adam.step();
  adam.options().amsgrad = true;
  adam.step();
  EXPECT_EQ(adam.state().get<int64_t>("0.step"), 2);
  EXPECT_TRUE(find_tensor(adam.state().tensors, "0.max_exp_avg_sq"));
}

// --- 16-bit parameters

TEST(MasterWeights, CollectWhatSixteenBitsLose) {
  for (DType dtype : {bf16, f16}) {
    for (bool master : {false, true}) {
      Tensor p = ones({33}, with_grad(dtype));
      SGD sgd({p}, {.lr = 1e-4, .master_weights = master});
      for (int i = 0; i < 100; ++i) {
        p.set_grad(ones({33}, dtype));
        sgd.step();
      }
      // 1e-4 is below half a unit in the last place of 1.
      EXPECT_EQ(p.to_vector<double>()[32], master ? (ones({1}) * 0.99).to(dtype).item() : 1) << name_of(dtype);
    }
  }
}

TEST(MasterWeights, StepsAreThoseOfF32RoundedOnce) {
  for (auto& [name, make] : all_kinds(true)) {
    SCOPED_TRACE(name);
    Tensor low = param({4, 3, 5, 5}, 1, bf16);
    low = low.detach().contiguous(MemoryFormat::channels_last).requires_grad_();
    Tensor full = low.detach().to(f32).requires_grad_();
    auto a = make({low}), b = make({full});
    for (uint64_t step = 0; step < 4; ++step) {
      give_grad(low, 9 + step);
      full.set_grad(low.grad().to(f32));
      a->step(), b->step();
      EXPECT_TRUE(same_bits(low, full.detach().to(bf16))) << step;
      EXPECT_TRUE(same_bits(a->state().tensor("0.master"), full)) << step;
      EXPECT_FALSE(a->state().tensor("0.master").requires_grad());
    }
  }
}

TEST(MasterWeights, OtherWritersAreNoticed) {
  Tensor p = ones({2}, with_grad(bf16));
  SGD sgd({p}, {.lr = 1e-3, .master_weights = true});
  auto step = [&] {
    p.set_grad(ones({2}, bf16));
    sgd.step();
  };
  step();
  no_grad([&] { p.narrow(0, 0, 1).fill_(4); });
  step();
  const std::vector<double> master = sgd.state().tensor("0.master").to_vector<double>();
  EXPECT_NEAR(master[0], 4 - 1e-3, 1e-6);
  EXPECT_NEAR(master[1], 1 - 2e-3, 1e-6) << "what nobody wrote keeps its bits";
}

TEST(SixteenBits, StatesAreF32AndStepsRoundedOnce) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    Tensor low = param({7}, 1, bf16);
    Tensor full = low.detach().to(f32).requires_grad_();
    auto a = make({low}), b = make({full});
    give_grad(low, 9);
    full.set_grad(low.grad().to(f32));
    a->step(), b->step();
    for (const NamedTensor& t : a->state().tensors) EXPECT_EQ(t.tensor.dtype(), f32) << t.name;
    expect_close(low.detach().to(f32), full.detach(), "", 0x1p-8);
    EXPECT_FALSE(same_bits(low, param({7}, 1, bf16)));
  }
}

// --- Training, from the first loss to the last

TEST(Optimizer, EachKindFitsALine) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    Tensor w = zeros({3}, with_grad()), x = sample({64, 3}, 1, {f32}), y = sample({64}, 2, {f32});
    auto optimizer = make({w});
    auto loss = [&] { return (x.matmul(w) - y).square().mean(); };
    const double first = loss().item();
    optimizer->set_lr(name == "lamb" ? 0.05 : 0.02);
    for (int i = 0; i < 60; ++i) {
      optimizer->zero_grad();
      loss().backward();
      optimizer->step();
    }
    EXPECT_LT(loss().item(), first) << first;
  }
}

}  // namespace
}  // namespace deft::optim
