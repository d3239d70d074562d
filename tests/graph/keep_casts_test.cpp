// Weights that optimizers round for the next step of a plan: the bits are those of a cast in every step, whoever writes
// the weights in between.
#include "amp/autocast.h"
#include "core/derived_cache.h"
#include "core/rounded_copy.h"
#include "graph/training_util.h"
#include "optim/grad_scaler.h"

namespace deft {
namespace {

struct Wide : nn::Module {
  nn::Linear &first = add<nn::Linear>("first", 12, 512), &second = add<nn::Linear>("second", 512, 16);
  Tensor forward(const Tensor& x) override { return second(gelu(first(x))); }
};

Training wide(const optim::Maker& kind) {
  Training t = of(std::make_unique<Wide>(), kind);
  t.step = [inner = t.step](const Tensor& x, const Tensor& y) {
    AutocastGuard autocast(DType::bf16);
    return inner(x, y);
  };
  return t;
}
const Tensor& weight(const Training& t) { return dynamic_cast<Wide&>(*t.model).second.weight; }

CompileOptions casting() { return {.passes = graph::without(exact().passes, "keep_casts")}; }

// The same training by a plan that keeps casts and by one that casts in every step; `between` runs after each step.
using Between = std::function<void(Training&, int step)>;
void expect_as_cast(const Maker& make, const Between& between = {}) {
  std::vector<Tensor> found[2];
  for (int kept = 0; kept < 2; ++kept) {
    RngScope random({3, 0});
    Training t = make();
    Data d = rows();
    auto fast = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, kept ? exact() : casting());
    for (int i = 0; i < kSteps; ++i) {
      found[kept].push_back(fast(d.x, d.y).detach().clone());
      if (between) between(t, i);
    }
    for (const Tensor& s : state_of(t)) found[kept].push_back(s.detach().clone());
    EXPECT_EQ(fast.stats().captures, 1);
    EXPECT_EQ(contains(fast.explain(), "keep_casts: 2 weights"), kept == 1) << fast.explain();
  }
  ASSERT_EQ(found[0].size(), found[1].size());
  for (size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(same_bits(found[0][i], found[1][i])) << i;
}

TEST(KeepCasts, EveryOptimizer) {
  for (const auto& [name, kind] : optim::all_kinds()) {
    SCOPED_TRACE(name);
    expect_as_cast([&] { return wide(kind); });
    expect_same_bits([&] { return wide(kind); }, {rows()}, name);
  }
}

TEST(KeepCasts, TheStepReadsWhatTheOptimizerRounded) {
  Training t = wide(sgd());
  Data d = rows();
  auto fast = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, exact());
  fast(d.x, d.y);
  fast(d.x, d.y);
  auto copy = find_rounded_copy(weight(t));
  ASSERT_TRUE(copy);
  EXPECT_TRUE(same_bits(*copy, weight(t).detach().to(DType::bf16)));
  Tensor(*copy).fill_(0);  // nobody else would: shows that it is read
  t.optimizer->set_lr(0);
  NoGradGuard off;
  Tensor logits = (zeros({6, 16}) + dynamic_cast<Wide&>(*t.model).second.bias).to(DType::bf16).to(DType::f32);
  double expected = cross_entropy(logits, d.y).item();
  GradModeGuard on(true);
  EXPECT_NEAR(fast(d.x, d.y).item(), expected, 1e-6);
  EXPECT_TRUE(same_bits(*find_rounded_copy(weight(t)), weight(t).detach().to(DType::bf16)));
}

TEST(KeepCasts, NotOfCastsThatAreWritten) {
  Training t = wide(sgd());
  t.step = [inner = t.step, &w = weight(t)](const Tensor& x, const Tensor& y) {
    Tensor cast = w.detach().to(DType::bf16);
    cast.mul_(2);
    Tensor sum = cast.to(DType::f32).sum();
    return inner(x, y).detach() + sum;
  };
  Data d = rows();
  auto fast = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); },
                      {.passes = graph::without(exact().passes, "fuse_elementwise")});
  for (int i = 0; i < 3; ++i) fast(d.x, d.y);
  EXPECT_TRUE(contains(fast.explain(), "the cast is written")) << fast.explain();
}

TEST(KeepCasts, NobodyRoundsForPlansThatAreGone) {
  Training t = wide(sgd());
  Data d = rows();
  {
    auto fast = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, exact());
    for (int i = 0; i < 2; ++i) fast(d.x, d.y);
    ASSERT_TRUE(find_rounded_copy(weight(t)));
  }
  EXPECT_FALSE(find_rounded_copy(weight(t)));
  t.step(d.x, d.y);
  auto again = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, exact());
  for (int i = 0; i < 2; ++i) again(d.x, d.y);
  ASSERT_TRUE(find_rounded_copy(weight(t)));
  EXPECT_TRUE(same_bits(*find_rounded_copy(weight(t)), weight(t).detach().to(DType::bf16)));
}

TEST(KeepCasts, OtherWritersAreSeen) {
  auto make = [] { return wide(sgd(0.1, 0.9)); };
  expect_as_cast(make, [](Training& t, int) {
    NoGradGuard off;
    Tensor(weight(t)).mul_(0.5);
  });
  expect_as_cast(make, [](Training& t, int) { Tensor(weight(t)).data<float>()[7] += 1; });
  expect_as_cast(make, [](Training&, int i) {
    if (i % 2) clear_derived_cache();
  });
}
TEST(KeepCasts, EagerStepsInBetween) {
  expect_as_cast([] { return wide(sgd(0.1, 0.9)); },
                 [](Training& t, int i) {
                   if (i % 2) t.step(rows().x, full({6}, 1, {DType::i64}));
                 });
}
TEST(KeepCasts, SkippedSteps) {
  auto make = [] {
    Training t = wide(sgd());
    auto scaler = std::make_shared<optim::GradScaler>();
    auto count = std::make_shared<Tensor>(zeros({1}));
    t.step = [m = t.model.get(), o = t.optimizer.get(), scaler, count](const Tensor& x, const Tensor& y) {
      AutocastGuard autocast(DType::bf16);
      count->add_(1);
      Tensor loss = cross_entropy((*m)(x), y) * where(*count == 3, 1e38, 1.0).sum() * 1e5;
      scaler->scale(loss).backward();
      scaler->step(*o);
      scaler->update();
      o->zero_grad();
      return loss;
    };
    return t;
  };
  expect_as_cast(make);
}

TEST(KeepCasts, PlansOfSeveralSizesShareACopy) {
  std::vector<Tensor> found[2];
  for (int kept = 0; kept < 2; ++kept) {
    RngScope random({3, 0});
    Training t = wide(sgd());
    Data a = rows(6), b = rows(9);
    auto fast = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, kept ? exact() : casting());
    std::shared_ptr<const Tensor> copy;
    for (int i = 0; i < 6; ++i) {
      const Data& d = i % 2 ? b : a;
      fast(d.x, d.y);
      if (i == 0) copy = find_rounded_copy(weight(t));
    }
    EXPECT_EQ(find_rounded_copy(weight(t)), copy);
    EXPECT_EQ(copy != nullptr, kept == 1);
    found[kept] = {t.model->parameters()};
  }
  for (size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(same_bits(found[0][i], found[1][i])) << i;
}

TEST(KeepCasts, NotWhatIsReadAfterTheStep) {
  auto make = [] {
    Training t = wide(sgd());
    t.step = [m = t.model.get(), o = t.optimizer.get()](const Tensor& x, const Tensor& y) {
      AutocastGuard autocast(DType::bf16);
      Tensor early = dynamic_cast<Wide*>(m)->second.weight.to(DType::bf16);
      Tensor loss = cross_entropy(linear(gelu(dynamic_cast<Wide*>(m)->first(x)), early), y);
      loss.backward();
      o->step();
      o->zero_grad();
      return loss.detach() + early.detach().sum().to(DType::f32);
    };
    return t;
  };
  Found fast = train(make, {rows()}, true, exact());
  EXPECT_TRUE(contains(fast.explained, "keep_casts: 1 weights, 12288 bytes")) << fast.explained;
  EXPECT_TRUE(contains(fast.explained, "keep_casts: 1 weights: the cast is read after the step")) << fast.explained;
  expect_same_bits(make, {rows()});
}

TEST(KeepCasts, NotWithoutAnOptimizerOrForLittle) {
  Training t = wide(sgd());
  auto fast = compile(
      [&](const Tensor& x) {
        AutocastGuard autocast(DType::bf16);
        return (*t.model)(x);
      },
      exact());
  {
    NoGradGuard off;
    fast(rows().x);
    EXPECT_FALSE(contains(fast.explain(), "keep_casts:")) << fast.explain();
  }
  Found small = train(
      [] {
        Training s = plain(sgd());
        s.step = [inner = s.step](const Tensor& x, const Tensor& y) {
          AutocastGuard autocast(DType::bf16);
          return inner(x, y);
        };
        return s;
      },
      {rows()}, true, exact());
  EXPECT_TRUE(contains(small.explained, "too small to pay")) << small.explained;
}

}  // namespace
}  // namespace deft
