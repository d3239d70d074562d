#include <gtest/gtest.h>

#include "core/checkpoint.h"
#include "core/grad_mode.h"
#include "doctor/rule_util.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "optim/sgd.h"

namespace deft::test {
namespace {

constexpr uint32_t here(Site site = Site::current()) { return site.line(); }

struct Small : nn::Module {
  nn::Linear& first = add<nn::Linear>("first", 8, 8);
  nn::BatchNorm1d& norm = add<nn::BatchNorm1d>("norm", 8);
  nn::Dropout& dropout = add<nn::Dropout>("dropout", 0.5);
  nn::Linear& last = add<nn::Linear>("last", 8, 2);
  Tensor forward(const Tensor& x) override { return last(dropout(norm(first(x)).relu())); }
};

void train(Small& model, optim::Optimizer& optimizer, int steps, uint32_t* call = nullptr, uint32_t* step = nullptr) {
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    if (call) *call = here() + 1;
    Tensor out = model(randn({16, 8}));
    out.square().mean().backward();
    if (step) *step = here() + 1;
    optimizer.step();
  }
}

// --- D005

TEST(ModuleRules, TrainModeInEvaluation) {
  uint32_t line = 0;
  auto found = lint([&] {
    Small model;
    NoGradGuard guard;
    for (int i = 0; i < 3; ++i) {
      line = here() + 1;
      model(randn({16, 8}));
    }
  });
  EXPECT_FINDING(found, "D005", line);
  EXPECT_EQ(found.of("D005")[0].count, 3);
  EXPECT_NE(found.text().find("norm, dropout"), std::string::npos) << found.text();
}
TEST(ModuleRules, EvaluationInEvalModeIsSilent) {
  EXPECT_SILENT(lint([] {
    Small model;
    optim::SGD sgd(model.parameters(), {.lr = 0.01});
    for (int epoch = 0; epoch < 2; ++epoch) {
      train(model, sgd, 3);
      nn::EvalGuard eval(model);
      NoGradGuard guard;
      for (int i = 0; i < 3; ++i) model(randn({16, 8}));
    }
    nn::Linear plain(8, 2);  // train mode means nothing to it
    nn::Dropout none(0);
    NoGradGuard guard;
    none(plain(randn({16, 8})));
  }));
}
TEST(ModuleRules, CheckpointsAreSilent) {
  EXPECT_SILENT(lint([] {
    Small model;
    optim::SGD sgd(model.parameters(), {.lr = 0.01});
    for (int i = 0; i < 4; ++i) {
      sgd.zero_grad();
      Tensors out = checkpoint([&](const Tensors& in) { return Tensors{model(in[0])}; }, {randn({16, 8})});
      out[0].square().mean().backward();
      sgd.step();
    }
  }));
}

// --- D008

TEST(ModuleRules, StatisticsMoveInAFrozenModule) {
  uint32_t line = 0;
  auto found = lint([&] {
    Small model;
    for (const Tensor& p : model.first.parameters()) p.requires_grad_(false);
    for (const Tensor& p : model.norm.parameters()) p.requires_grad_(false);
    optim::SGD sgd(model.parameters(), {.lr = 0.01});
    train(model, sgd, 4, &line);
  });
  EXPECT_FINDING(found, "D008", line);
  EXPECT_EQ(found.of("D008")[0].count, 4);
  EXPECT_NE(found.text().find("parameters of norm are frozen"), std::string::npos) << found.text();
}
TEST(ModuleRules, FrozenModulesAreSilent) {
  EXPECT_SILENT(lint([] {
    Small model;
    model.norm.freeze();
    optim::SGD sgd(model.parameters(), {.lr = 0.01, .weight_decay = 0.1});
    train(model, sgd, 6);
  }));
}
TEST(ModuleRules, ParametersThatAreFrozenNowAndThenAreSilent) {
  EXPECT_SILENT(lint([] {
    Small model;
    optim::SGD sgd(model.parameters(), {.lr = 0.01});
    for (int i = 0; i < 4; ++i) {
      for (const Tensor& p : model.norm.parameters()) p.requires_grad_(i % 2);
      train(model, sgd, 2);
    }
  }));
}

// --- D009

TEST(ModuleRules, WeightDecayOfWhatGetsNoGradient) {
  uint32_t line = 0;
  auto found = lint([&] {
    nn::Linear used(8, 8), other(8, 8);
    std::vector<Tensor> params = used.parameters();
    for (const Tensor& p : other.parameters()) params.push_back(p);
    optim::SGD sgd(params, {.lr = 0.01, .weight_decay = 0.1});
    for (int i = 0; i < 8; ++i) {
      sgd.zero_grad();
      Tensor x = randn({4, 8});
      (used(x).square().mean() + 0.0 * other(x).sum()).backward();
      line = here() + 1;
      sgd.step();
    }
  });
  EXPECT_FINDING(found, "D009", line);
  EXPECT_EQ(found.of("D009")[0].figures[0].second, 2);
}
TEST(ModuleRules, ZerosThatPassOrCostNothingAreSilent) {
  EXPECT_SILENT(lint([] {
    nn::Linear used(8, 8), other(8, 8);
    std::vector<Tensor> params = used.parameters();
    for (const Tensor& p : other.parameters()) params.push_back(p);
    optim::SGD plain(params, {.lr = 0.01}), decaying(params, {.lr = 0.01, .weight_decay = 0.1});
    for (int i = 0; i < 8; ++i) {
      optim::SGD& sgd = i < 6 ? plain : decaying;
      sgd.zero_grad();
      Tensor x = randn({4, 8});
      (used(x).square().mean() + 0.0 * other(x).sum()).backward();
      sgd.step();
    }
  }));
}

// A bias in front of a norm: what comes out does not depend on it, and nothing is frozen.
TEST(ModuleRules, ABiasThatNothingDependsOnIsSilent) {
  struct Shifted : nn::Module {
    nn::Linear& first = add<nn::Linear>("first", 8, 8);
    nn::Linear& last = add<nn::Linear>("last", 8, 2);
    Tensor forward(const Tensor& x) override {
      Tensor y = first(x);
      return last((y - first.bias) * 2 + 0.0 * first.bias);  // its gradient cancels to exact zeros
    }
  };
  int64_t zeros_seen = 0;
  auto found = lint([&] {
    Shifted model;
    for (nn::Linear* layer : {&model.first, &model.last}) layer->bias.detach().fill_(0.5);
    optim::SGD sgd(model.parameters(), {.lr = 0.01, .weight_decay = 0.1});
    for (int i = 0; i < 8; ++i) {
      sgd.zero_grad();
      model(randn({4, 8})).square().mean().backward();
      zeros_seen += model.first.bias.grad().abs().amax().item() == 0;
      sgd.step();
    }
  });
  EXPECT_EQ(zeros_seen, 8);
  EXPECT_TRUE(found.of("D009").empty()) << found.text();
}
// A layer without any gradient is frozen, whatever its siblings do; one that is zero has nothing to lose.
TEST(ModuleRules, WeightDecayOfAWholeLayerOfAModel) {
  struct Gated : nn::Module {
    nn::Linear& used = add<nn::Linear>("used", 8, 8);
    nn::Linear& gated = add<nn::Linear>("gated", 8, 8);
    Tensor forward(const Tensor& x) override { return used(x) + 0.0 * gated(x); }
  };
  for (bool zero : {false, true}) {
    auto found = lint([&] {
      Gated model;
      if (zero)
        for (const Tensor& p : model.gated.parameters()) p.detach().fill_(0);
      optim::SGD sgd(model.parameters(), {.lr = 0.01, .weight_decay = 0.1});
      for (int i = 0; i < 8; ++i) {
        sgd.zero_grad();
        model(randn({4, 8})).square().mean().backward();
        sgd.step();
      }
    });
    EXPECT_EQ(found.of("D009").size(), zero ? 0u : 1u) << found.text();
    EXPECT_EQ(found.text().find("gradients of gated.bias, gated.weight were") == std::string::npos, zero);
  }
}

// --- D010

TEST(ModuleRules, ParametersNobodyUses) {
  struct Unused : Small {
    nn::Linear& spare = add<nn::Linear>("spare", 4, 4);
  };
  uint32_t line = 0;
  auto found = lint([&] {
    Unused model;
    optim::SGD sgd(model.parameters(), {.lr = 0.01});
    train(model, sgd, 4, nullptr, &line);
  });
  EXPECT_FINDING(found, "D010", line);
  EXPECT_EQ(found.of("D010")[0].count, 2);
  EXPECT_NE(found.text().find("spare.weight, spare.bias"), std::string::npos) << found.text();
}
TEST(ModuleRules, PartsUsedLaterAreSilent) {
  struct Late : Small {
    nn::Linear& spare = add<nn::Linear>("spare", 2, 2);
    int calls = 0;
    Tensor forward(const Tensor& x) override {
      Tensor y = Small::forward(x);
      return ++calls < 4 ? y : spare(y);
    }
  };
  EXPECT_SILENT(lint([] {
    Late model;
    optim::SGD sgd(model.parameters(), {.lr = 0.01});
    train(model, sgd, 6);
  }));
}

}  // namespace
}  // namespace deft::test
