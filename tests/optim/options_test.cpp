// Numbers that no optimizer, average or scaler can work with, walked through every option there is.
#include "optim/ema.h"
#include "optim/grad_scaler.h"
#include "optim_util.h"

#include <limits>
#include <set>

namespace deft::optim {
namespace {

const std::set<std::string> kFractions = {"beta1", "beta2", "alpha"};  // [0, 1)
const std::set<std::string> kAnyNumber = {"dampening"};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kTiny = std::numeric_limits<double>::denorm_min();

template <class O>
O with(const std::string& option, double value) {
  O options;
  options.each([&](const char* name, auto& field) {
    if constexpr (std::is_same_v<decltype(field), double&>)
      if (name == option) field = value;
  });
  return options;
}

template <class O>
void expect_checks_each_option() {
  std::vector<std::string> numbers;
  O().each([&](const char* name, auto& field) {
    if constexpr (std::is_same_v<decltype(field), double&>) numbers.push_back(name);
  });
  EXPECT_GE(numbers.size(), 3u);
  Tensor p = param({2}, 1);
  for (const std::string& name : numbers) {
    SCOPED_TRACE(std::string(O::kName) + " with another " + name);
    auto make = [&](double value) { return GroupedOptimizer<O>({p}, with<O>(name, value)); };
    EXPECT_NO_THROW(make(0));
    EXPECT_NO_THROW(make(0.999));
    if (kAnyNumber.contains(name)) continue;
    std::vector<double> bad = {-1, -kTiny, kNan};
    if (kFractions.contains(name)) bad.insert(bad.end(), {1, 2});
    for (double value : bad) {
      expect_error<ValueError>([&] { make(value); }, std::string(O::kName) + ": " + name);
      GroupedOptimizer<O> optimizer({p});
      expect_error<ValueError>([&] { optimizer.add_param_group({param({2}, 2)}, with<O>(name, value)); }, name);
      EXPECT_EQ(optimizer.group_count(), 1u);
    }
  }
}

TEST(Options, EachNumberIsCheckedByName) {
  expect_checks_each_option<SGDOptions>();
  expect_checks_each_option<AdamOptions>();
  expect_checks_each_option<AdamWOptions>();
  expect_checks_each_option<RMSpropOptions>();
  expect_checks_each_option<AdagradOptions>();
  expect_checks_each_option<LAMBOptions>();
}

TEST(Options, NesterovNeedsMomentumWithoutDampening) {
  Tensor p = param({2}, 1);
  auto make = [&](double momentum, double dampening) {
    return SGD({p}, {.momentum = momentum, .dampening = dampening, .nesterov = true});
  };
  EXPECT_NO_THROW(make(0.1, 0));
  for (auto [momentum, dampening] : {std::pair{0.0, 0.0}, {0.9, 0.1}, {0.9, -0.1}})
    expect_error<ValueError>([&] { make(momentum, dampening); }, "nesterov needs momentum > 0 and dampening = 0");
}

// Of every kind, and of no group that there is not.
TEST(Options, RatesAndMomentaOfGroups) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    auto optimizer = make({param({2}, 1)});
    optimizer->set_lr(0);
    EXPECT_EQ(optimizer->lr(), 0);
    for (double bad : {-kTiny, kNan}) expect_error<ValueError>([&] { optimizer->set_lr(bad); }, "must not be negative");
    for (size_t group : {size_t{1}, SIZE_MAX}) {
      expect_error<IndexError>([&] { optimizer->lr(group); }, "there is no group");
      expect_error<IndexError>([&] { optimizer->set_lr(1, group); }, "it has 1");
      expect_error<IndexError>([&] { optimizer->momentum(group); }, "there is no group");
      expect_error<IndexError>([&] { optimizer->set_momentum(0.5, group); }, "there is no group");
      expect_error<IndexError>([&] { optimizer->params(group); }, "there is no group");
      expect_error<IndexError>([&] { optimizer->initial_lr(group); }, "there is no group");
    }
    EXPECT_EQ(optimizer->has_momentum(), name != "adagrad");
    if (!optimizer->has_momentum()) {
      expect_error<ValueError>([&] { optimizer->set_momentum(0.5); }, "neither momentum nor beta1");
      continue;
    }
    optimizer->set_momentum(0);
    EXPECT_EQ(optimizer->momentum(), 0);
    for (double bad : {-kTiny, 1.0, kNan})
      expect_error<ValueError>([&] { optimizer->set_momentum(bad); }, "the momentum lies in [0, 1)");
    EXPECT_EQ(optimizer->momentum(), 0);
  }
}

TEST(Options, OfTheGradScaler) {
  for (const GradScalerOptions& good : {GradScalerOptions{.scale = kTiny},
                                        {.growth = 1.001},
                                        {.backoff = kTiny},
                                        {.backoff = 0.999},
                                        {.growth_interval = 1}})
    EXPECT_NO_THROW(GradScaler{good});
  for (const GradScalerOptions& bad : {GradScalerOptions{.scale = 0},
                                       {.scale = -1},
                                       {.scale = kNan},
                                       {.growth = 1},
                                       {.growth = kNan},
                                       {.backoff = 0},
                                       {.backoff = 1},
                                       {.backoff = kNan},
                                       {.growth_interval = 0},
                                       {.growth_interval = -1}})
    expect_error<ValueError>([&] { GradScaler{bad}; }, "GradScaler: needs scale > 0, growth > 1, 0 < backoff < 1");
}

TEST(Options, OfAnAverage) {
  for (double good : {0.0, 1.0}) EXPECT_NO_THROW(ExponentialMovingAverage({param({2}, 1)}, {.decay = good}));
  for (double bad : {-kTiny, 1 + 0x1p-52, kNan})
    expect_error<ValueError>([&] { ExponentialMovingAverage({param({2}, 1)}, {.decay = bad}); }, "[0, 1]");
  expect_error<ValueError>([] { ExponentialMovingAverage({param({2}, 1), Tensor()}); }, "parameter 1 is undefined");
}

}  // namespace
}  // namespace deft::optim
