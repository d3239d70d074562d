// The rates of every schedule against PyTorch's (tools/fixtures/optim.py), and going on from a state.
#include "optim/lr_scheduler.h"

#include "optim/reduce_lr_on_plateau.h"
#include "optim_util.h"

namespace deft::optim {
namespace {

using Schedules = std::vector<std::shared_ptr<LRScheduler>>;

std::unique_ptr<SGD> new_optimizer() {
  return std::make_unique<SGD>(std::vector<SGD::Group>{{{param({1}, 1)}, {.lr = 0.5, .momentum = 0.9}},
                                                       {{param({1}, 2)}, {.lr = 0.02, .momentum = 0.9}}});
}

struct Case {
  const char* name;
  std::function<Schedules(Optimizer&)> make;
};
template <class S, class... Args>
Case one(const char* name, Args... args) {
  return {name, [=](Optimizer& o) { return Schedules{std::make_shared<S>(o, args...)}; }};
}

std::vector<Case> cases() {
  const std::vector<int64_t> milestones{40, 10, 3, 10};
  const std::vector<LambdaLR::Factor> factors{[](int64_t e) { return 1.0 / (1 + static_cast<double>(e)); },
                                              [](int64_t e) { return std::pow(0.9, static_cast<double>(e)); }};
  return {
      one<StepLR>("step", 7, 0.3),
      one<MultiStepLR>("multi_step", milestones, 0.5),
      one<ExponentialLR>("exponential", 0.95),
      one<ConstantLR>("constant", 0.25, 6),
      one<LinearLR>("linear", 0.1, 0.9, 12),
      one<CosineAnnealingLR>("cosine", 20, 0.001),
      one<CosineAnnealingWarmRestarts>("warm_restarts", 10, 1, 0.002),
      one<CosineAnnealingWarmRestarts>("warm_restarts_longer", 6, 2),
      one<LambdaLR>("lambda", factors),
      one<OneCycleLR>("one_cycle", OneCycleOptions{.total_steps = 80, .max_lrs = {1.0, 0.3}}),
      one<OneCycleLR>(
          "one_cycle_linear",
          OneCycleOptions{.max_lr = 0.7, .total_steps = 75, .pct_start = 0.2, .linear = true, .div_factor = 10}),
      one<OneCycleLR>(
          "one_cycle_three",
          OneCycleOptions{
              .max_lr = 0.7, .total_steps = 77, .base_momentum = 0.7, .final_div_factor = 100, .three_phase = true}),
      {"sequential",
       [](Optimizer& o) {
         Schedules parts{std::make_shared<LinearLR>(o, 0.2, 1.0, 8), std::make_shared<CosineAnnealingLR>(o, 30),
                         std::make_shared<ExponentialLR>(o, 0.8)};
         return Schedules{std::make_shared<SequentialLR>(o, parts, std::vector<int64_t>{8, 38})};
       }},
      {"together",
       [](Optimizer& o) {
         return Schedules{std::make_shared<LinearLR>(o, 0.5, 1.0, 10), std::make_shared<ExponentialLR>(o, 0.97)};
       }},
  };
}

constexpr int64_t kEpochs = 75;
// Products of up to 75 factors, each with a few roundings; the recursion of the cosine divides by 1 + cos, which is
// small near its lowest point.
constexpr double kTolerance = 75 * 16 * 0x1p-53;

void expect_rate(double got, double want, double base, const std::string& where) {
  EXPECT_TRUE(std::abs(got - want) <= kTolerance * base) << where << ": " << got << ", expected " << want;
}

TEST(LRScheduler, RatesEqualPyTorch) {
  const State expected = fixture("optim_schedules");
  for (const Case& c : cases()) {
    const auto want = expected.tensor(c.name).to_vector<double>();
    const Tensor* momentum = find_tensor(expected.tensors, std::string(c.name) + ".momentum");
    auto optimizer = new_optimizer();
    const Schedules schedules = c.make(*optimizer);
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const std::string where = std::string(c.name) + " at epoch " + std::to_string(epoch);
      for (size_t g = 0; g < 2; ++g) {
        expect_rate(optimizer->lr(g), want[static_cast<size_t>(2 * epoch) + g], 1, where);
        EXPECT_EQ(schedules.back()->get_last_lr()[g], optimizer->lr(g));
      }
      expect_rate(optimizer->momentum(1), momentum ? (*momentum)[epoch].item() : 0.9, 1, where);
      for (const auto& s : schedules) s->step();
    }
    EXPECT_EQ(schedules[0]->last_epoch(), kEpochs);
  }
}

// Stops at every epoch: before, at and after the turning points.
TEST(LRScheduler, StateRoundTripGoesOnBitForBit) {
  for (const Case& c : cases()) {
    for (int64_t stop = 0; stop < 50; ++stop) {
      auto a = new_optimizer(), b = new_optimizer();
      const Schedules whole = c.make(*a), resumed = c.make(*b);
      auto step = [](const Schedules& schedules) {
        for (const auto& s : schedules) s->step();
      };
      for (int64_t e = 0; e < stop; ++e) step(whole);
      b->load_state(a->state());
      for (size_t i = 0; i < whole.size(); ++i) resumed[i]->load_state(whole[i]->state());
      for (int64_t e = stop; e < 60; ++e) {
        step(whole), step(resumed);
        for (size_t g = 0; g < 2; ++g) ASSERT_EQ(a->lr(g), b->lr(g)) << c.name << " " << stop << " " << e;
        ASSERT_EQ(a->momentum(), b->momentum());
      }
    }
  }
}

TEST(LRScheduler, RestartBeginsAgain) {
  for (const Case& c : cases()) {
    if (std::string(c.name) == "together") continue;
    auto optimizer = new_optimizer();
    const auto schedule = c.make(*optimizer)[0];
    std::vector<std::vector<double>> first, second;
    for (auto* rates : {&first, &second}) {
      for (int i = 0; i < 45; ++i) {
        rates->push_back(schedule->get_last_lr());
        schedule->step();
      }
      schedule->restart();
    }
    for (size_t i = 0; i < first.size(); ++i)
      for (size_t g = 0; g < 2; ++g) expect_rate(second[i][g], first[i][g], 1, c.name);
  }
}

// A restart is at epoch 0, also where the rate changes at every epoch.
TEST(LRScheduler, RestartGivesTheFirstRate) {
  auto optimizer = new_optimizer();
  const std::vector<double> rates{optimizer->lr(0), optimizer->lr(1)};
  auto check = [&](LRScheduler&& schedule, double factor) {
    for (int i = 0; i < 3; ++i) schedule.step();
    schedule.restart();
    for (size_t g = 0; g < 2; ++g) expect_rate(optimizer->lr(g), rates[g] * factor, 1, "restarted");
    for (size_t g = 0; g < 2; ++g) optimizer->set_lr(rates[g], g);
  };
  check(StepLR(*optimizer, 1, 0.5), 1);
  check(MultiStepLR(*optimizer, {1, 2}, 0.5), 1);
  check(ExponentialLR(*optimizer, 0.5), 1);
  check(ConstantLR(*optimizer, 0.25, 1), 0.25);
  check(LinearLR(*optimizer, 0.5, 1.0, 2), 0.5);
  check(CosineAnnealingLR(*optimizer, 2), 1);
  check(CosineAnnealingWarmRestarts(*optimizer, 1), 1);
}

TEST(LRScheduler, SchedulesMadeLaterBeginAtTheInitialRate) {
  auto optimizer = new_optimizer();
  ExponentialLR exponential(*optimizer, 0.5);
  exponential.step();
  LambdaLR later(*optimizer, [](int64_t) { return 1.0; });
  EXPECT_EQ(optimizer->lr(0), 0.5);
}

TEST(LRScheduler, GroupsMayBeAddedLater) {
  auto optimizer = new_optimizer();
  StepLR schedule(*optimizer, 2, 0.5);
  schedule.step();
  optimizer->add_param_group({param({1}, 3)}, {.lr = 8});
  schedule.step();
  EXPECT_EQ(optimizer->lr(0), 0.25);
  EXPECT_EQ(optimizer->lr(2), 4);
  EXPECT_EQ(schedule.get_last_lr().size(), 3u);
}

TEST(LRScheduler, MovesBeta1OfAdam) {
  Tensor p = param({1}, 1);
  AdamW adam({p});
  OneCycleLR schedule(adam, {.max_lr = 1, .total_steps = 10});
  EXPECT_EQ(adam.options().beta1, 0.95);
  EXPECT_NEAR(adam.lr(), 0.04, 1e-16);
  Adagrad adagrad({p});
  expect_error<ValueError>([&] { OneCycleLR(adagrad, {.max_lr = 1, .total_steps = 10}); }, "cycle_momentum = false");
  OneCycleLR short_rise(adam, {.max_lr = 1, .total_steps = 10, .pct_start = 0.1});  // of no steps at all
  EXPECT_EQ(adam.lr(), 1);
  OneCycleLR without(adagrad, {.max_lr = 1, .total_steps = 10, .cycle_momentum = false});
}

TEST(LRScheduler, WrongCalls) {
  auto optimizer = new_optimizer(), other = new_optimizer();
  Optimizer& o = *optimizer;
  expect_error<ValueError>([&] { StepLR(o, 0); }, "step_size must be positive, found 0");
  for (double factor : {0.0, 1.001, -1.0, double(NAN)}) {
    expect_error<ValueError>([&] { ConstantLR(o, factor); }, "the factor lies in (0, 1], found");
    expect_error<ValueError>([&] { LinearLR(o, factor); }, "start_factor lies in (0, 1], found");
  }
  for (double factor : {1.001, -0.001, double(NAN)})
    expect_error<ValueError>([&] { LinearLR(o, 0.5, factor); }, "end_factor lies in [0, 1], found");
  for (int64_t epochs : {0, -1}) {
    expect_error<ValueError>([&] { ConstantLR(o, 1, epochs); }, "total_iters must be positive");
    expect_error<ValueError>([&] { LinearLR(o, 1, 0, epochs); }, "total_iters must be positive");
    expect_error<ValueError>([&] { CosineAnnealingLR(o, epochs); }, "t_max must be positive");
    expect_error<ValueError>([&] { CosineAnnealingWarmRestarts(o, epochs); }, "needs t_0 > 0 and t_mult >= 1");
    expect_error<ValueError>([&] { CosineAnnealingWarmRestarts(o, 3, epochs); }, "needs t_0 > 0 and t_mult >= 1");
    expect_error<ValueError>([&] { OneCycleLR(o, {.max_lr = 1, .total_steps = epochs}); }, "total_steps");
  }
  for (double part : {-0.001, 1.001, double(NAN)})
    expect_error<ValueError>([&] { OneCycleLR(o, {.total_steps = 9, .pct_start = part}); }, "pct_start lies in [0, 1]");
  expect_error<ValueError>([&] { LambdaLR(o, std::vector<LambdaLR::Factor>(3)); }, "3 functions for 2 groups");
  expect_error<ValueError>([&] { OneCycleLR(o, {.total_steps = 3, .max_lrs = {1}}); }, "1 rates for 2 groups");
  EXPECT_EQ(o.lr(0), 0.5) << "what was refused changed nothing";
  auto a = std::make_shared<StepLR>(o, 3), b = std::make_shared<StepLR>(*other, 3);
  expect_error<ValueError>([&] { SequentialLR(o, {a, b}, {3}); }, "must be of its optimizer");
  expect_error<ValueError>([&] { SequentialLR(o, {a, a}, {}); }, "2 schedules need one milestone less");
  expect_error<ValueError>([&] { SequentialLR(o, {a, a, a}, {4, 3}); }, "do not ascend");
  expect_error<ValueError>([&] { a->load_state(ExponentialLR(o, 0.5).state()); }, "this is the state of ExponentialLR");
  expect_error<ValueError>([&] { ReduceLROnPlateau(o, {.factor = 1}); }, "below 1");
  OneCycleLR cycle(o, {.max_lr = 1, .total_steps = 2});
  cycle.step(), cycle.step();
  const double last = o.lr();
  EXPECT_NEAR(last, 1 / 25.0 / 1e4, 1e-15);
  expect_error<ValueError>([&] { cycle.step(); }, "step 3 of a cycle of 2");
  EXPECT_EQ(cycle.last_epoch(), 2);
  EXPECT_EQ(o.lr(), last);
}

struct Plateau {
  const char* name;
  PlateauOptions options;
};
const Plateau kPlateaus[] = {
    {"plateau", {.patience = 3}},
    {"plateau_max",
     {.maximize = true, .factor = 0.5, .patience = 1, .threshold = 0.05, .cooldown = 4, .min_lr = 0.003}},
    {"plateau_abs", {.factor = 0.2, .patience = 2, .threshold = 0.02, .absolute = true}},
};

TEST(ReduceLROnPlateau, RatesEqualPyTorch) {
  const State expected = fixture("optim_schedules");
  const auto metrics = expected.tensor("metrics").to_vector<double>();
  for (const Plateau& c : kPlateaus) {
    const auto want = expected.tensor(c.name).to_vector<double>();
    auto optimizer = new_optimizer();
    ReduceLROnPlateau schedule(*optimizer, c.options);
    for (size_t e = 0; e < metrics.size(); ++e) {
      schedule.step(metrics[e]);
      for (size_t g = 0; g < 2; ++g)
        expect_rate(schedule.get_last_lr()[g], want[2 * e + g], want[2 * e + g], c.name + std::to_string(e));
    }
    EXPECT_LT(want.back(), 0.02) << "the rate fell";
  }
}

TEST(ReduceLROnPlateau, StateRoundTrip) {
  const auto metrics = fixture("optim_schedules").tensor("metrics").to_vector<double>();
  for (const Plateau& c : kPlateaus) {
    for (size_t stop = 0; stop < metrics.size(); stop += 5) {
      auto a = new_optimizer(), b = new_optimizer();
      ReduceLROnPlateau whole(*a, c.options), resumed(*b, c.options);
      for (size_t e = 0; e < stop; ++e) whole.step(metrics[e]);
      b->load_state(a->state());
      resumed.load_state(whole.state());
      for (size_t e = stop; e < metrics.size(); ++e) {
        whole.step(metrics[e]), resumed.step(metrics[e]);
        ASSERT_EQ(a->lr(1), b->lr(1));
      }
    }
  }
}

}  // namespace
}  // namespace deft::optim
