// A step with an observer is the same step; the observer is notified before and after it.
#include "core/observer.h"
#include "optim_util.h"

namespace deft::optim {
namespace {

struct Seen : Observer {
  struct Step {
    std::string name;
    std::vector<double> decay, values;  // of all parameters
    uint32_t line;
    bool ends;
  };
  std::vector<Step> steps;
  std::vector<std::pair<const void*, bool>> cleared;
  const void* optimizer = nullptr;

  void optimizer_begins(const OptimizerStep& s) override { add(s, false); }
  void optimizer_ends(const OptimizerStep& s) override { add(s, true); }
  void grads_cleared(const void* of, bool to_none, const Site&) override { cleared.emplace_back(of, to_none); }
  void add(const OptimizerStep& s, bool ends) {
    optimizer = s.optimizer;
    Step& step = steps.emplace_back(Step{s.name, {s.weight_decay.begin(), s.weight_decay.end()}, {}, 0, ends});
    step.line = s.site.line();
    for (const Tensor& p : s.params)
      for (double x : values(p)) step.values.push_back(x);
  }
};

struct Watched {
  explicit Watched(Observer& o) { set_observer(&o); }
  ~Watched() { set_observer(nullptr); }
  ProfileScope scope{"test"};
};

TEST(ObservedStep, IsTheSameStepToldBeforeAndAfter) {
  for (auto& [name, make] : all_kinds()) {
    SCOPED_TRACE(name);
    Tensor a = param({3}, 1), b = param({2}, 2), c = param({3}, 1), d = param({2}, 2);
    auto watched = make({a, b}), plain = make({c, d});
    Seen seen;
    uint32_t line = 0;
    for (uint64_t i = 0; i < 2; ++i) {
      for (const Tensor& p : {a, c}) give_grad(p, 3 + i);
      for (const Tensor& p : {b, d}) give_grad(p, 7 + i);
      plain->step();
      Watched scope(seen);
      line = __LINE__ + 1;
      watched->step();
    }
    EXPECT_TRUE(same_bits(a, c) && same_bits(b, d));
    EXPECT_FALSE(same_bits(a, param({3}, 1)));
    ASSERT_EQ(seen.steps.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      const Seen::Step& step = seen.steps[i];
      EXPECT_EQ(step.ends, i % 2 == 1);
      EXPECT_EQ(step.name, watched->name());
      EXPECT_EQ(step.line, line);
      EXPECT_EQ(step.decay, std::vector<double>(2, 0.1));
    }
    EXPECT_EQ(seen.optimizer, watched.get());
    EXPECT_EQ(seen.steps[1].values, seen.steps[2].values);
    EXPECT_NE(seen.steps[0].values, seen.steps[1].values);
    EXPECT_NE(seen.steps[2].values, seen.steps[3].values);
  }
}

TEST(ObservedStep, DecayIsThatOfTheGroup) {
  SGD sgd(std::vector<SGD::Group>{{{param({1}, 1), param({1}, 2)}, {.weight_decay = 0.5}},
                                  {{param({1}, 3)}, {.momentum = 0.25}},
                                  {{param({1}, 4)}, {.weight_decay = 2}}});
  Seen seen;
  {
    Watched scope(seen);
    sgd.step();
    sgd.zero_grad();
    sgd.zero_grad(false);
  }
  ASSERT_EQ(seen.steps.size(), 2u);
  EXPECT_EQ(seen.steps[0].decay, (std::vector<double>{0.5, 0.5, 0, 2}));
  EXPECT_EQ(seen.cleared, (std::vector<std::pair<const void*, bool>>{{&sgd, true}, {&sgd, false}}));
}

}  // namespace
}  // namespace deft::optim
