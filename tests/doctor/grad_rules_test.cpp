// Each rule finds its mistake at its line, and stays silent where code only looks alike.
#include <gtest/gtest.h>

#include <cmath>

#include "core/grad_mode.h"
#include "doctor/rule_util.h"
#include "nn/nn.h"
#include "ops/all_ops.h"
#include "optim/sgd.h"

namespace deft::test {
namespace {

constexpr uint32_t here(Site site = Site::current()) { return site.line(); }

struct Net {
  nn::Linear model{8, 4};
  Tensor x = randn({16, 8}), y = zeros({16, 4});
  optim::SGD sgd{model.parameters(), {.lr = 0.01}};
  Tensor loss() { return mse_loss(model(x), y); }
  void step() {
    sgd.zero_grad();
    loss().backward();
    sgd.step();
  }
};

// --- D001

TEST(GradRules, BackwardOfWhatWasComputedInNoGrad) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    Tensor loss = no_grad([&] { return net.loss(); });
    line = here() + 1;
    loss.backward();
  });
  EXPECT_FINDING(found, "D001", line);
  EXPECT_EQ(found.of("D001")[0].severity, Severity::error);
  EXPECT_NE(found.text().find("grad_rules_test.cpp:" + std::to_string(line - 2)), std::string::npos) << found.text();
}
TEST(GradRules, BackwardInsideNoGrad) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    Tensor loss = net.loss();
    NoGradGuard guard;
    line = here() + 1;
    loss.backward();
  });
  EXPECT_FINDING(found, "D001", line);
  EXPECT_EQ(found.of("D001")[0].severity, Severity::note);
}
TEST(GradRules, BackwardOfAConstantIsAnotherMistake) {
  EXPECT_SILENT(lint([] { ones({}).backward(); }));
}

// --- D002

TEST(GradRules, RequiresGradInsideNoGrad) {
  uint32_t line = 0;
  auto found = lint([&] {
    Tensor x = randn({4});
    NoGradGuard guard;
    line = here() + 1;
    x.requires_grad_();
    (x * x).sum();
  });
  EXPECT_FINDING(found, "D002", line);
}
TEST(GradRules, LeavesMayBeMadeInsideNoGradAndModulesToo) {
  EXPECT_SILENT(lint([] {
    Tensor w;
    {
      NoGradGuard guard;
      w = randn({4}) * 2;
      w.requires_grad_();
      nn::Linear used_here(4, 4);
      used_here(randn({2, 4}));
    }
    for (int i = 0; i < 3; ++i) (w * w).sum().backward();
  }));
}

// --- D003

TEST(GradRules, TotalPlusLoss) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    Tensor total = zeros({});
    for (int i = 0; i < 20; ++i) {
      net.sgd.zero_grad();
      Tensor loss = net.loss();
      loss.backward();
      net.sgd.step();
      line = here() + 1;
      total += loss;
    }
  });
  EXPECT_FINDING(found, "D003", line);
  const Finding f = found.of("D003")[0];
  EXPECT_EQ(f.count, 20);
  ASSERT_EQ(f.figures[0].first, "mb_per_step");
  // linear and mse_loss with their nodes, and the sum's: three to five, of a few hundred bytes.
  EXPECT_GT(f.figures[0].second, 3 * 150 / 1e6);
  EXPECT_LT(f.figures[0].second, 5 * 600 / 1e6);
}
TEST(GradRules, SavedBytesOfEvaluationsAddUp) {
  constexpr int64_t kRows = 256, kWide = 64;
  uint32_t line = 0;
  auto found = lint([&] {
    nn::Linear model(kWide, kWide);
    Tensor total = zeros({});
    for (int i = 0; i < 20; ++i) {
      Tensor hidden = model(randn({kRows, kWide})).relu();
      line = here() + 1;
      total = total + hidden.square().mean();
    }
  });
  EXPECT_FINDING(found, "D003", line);
  // The input, and the activation after relu: once for relu, square reads the same.
  const double expected = 2 * kRows * kWide * 4 / 1e6;
  EXPECT_NEAR(found.of("D003")[0].figures[0].second, expected, 0.02 * expected + 0.004);
}
TEST(GradRules, RecurrentStateCarriedOn) {
  uint32_t line = 0;
  auto found = lint([&] {
    nn::RNNCell cell(4, 4);
    Tensor h = zeros({2, 4});
    for (int i = 0; i < 8; ++i) {
      line = here() + 1;
      h = cell(randn({2, 4}), h);
      h.square().mean().backward({.retain_graph = true});
    }
  });
  EXPECT_FINDING(found, "D003", line);
}
TEST(GradRules, LossesInAList) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    std::vector<Tensor> losses;
    for (int i = 0; i < 20; ++i) {
      net.sgd.zero_grad();
      line = here() + 1;
      losses.push_back(mse_loss(net.model(net.x), net.y));
      losses.back().backward();
      net.sgd.step();
    }
  });
  EXPECT_FINDING(found, "D003", line);
}
TEST(GradRules, DetachedSumsAreSilent) {
  EXPECT_SILENT(lint([] {
    Net net;
    Tensor total = zeros({}), average = zeros({});
    double sum = 0;
    for (int i = 0; i < 20; ++i) {
      net.sgd.zero_grad();
      Tensor loss = net.loss();
      loss.backward();
      net.sgd.step();
      total += loss.detach();
      sum += loss.item<double>();
      NoGradGuard guard;
      average = average * 0.9 + loss * 0.1;
    }
  }));
}
TEST(GradRules, AccumulationWithinAStepIsSilent) {
  EXPECT_SILENT(lint([] {
    Net net;
    for (int i = 0; i < 6; ++i) {
      net.sgd.zero_grad();
      Tensor sum = zeros({});
      for (int k = 0; k < 8; ++k) sum += net.loss() / 8;
      sum.backward();
      net.sgd.step();
    }
    for (int i = 0; i < 6; ++i) {
      net.sgd.zero_grad();
      for (int k = 0; k < 4; ++k) (net.loss() / 4).backward();
      net.sgd.step();
    }
  }));
}
TEST(GradRules, TruncatedRecurrenceIsSilent) {
  EXPECT_SILENT(lint([] {
    nn::RNNCell cell(4, 4);
    optim::SGD sgd(cell.parameters(), {.lr = 0.01});
    Tensor h = zeros({2, 4});
    for (int i = 0; i < 6; ++i) {
      h = h.detach();
      for (int t = 0; t < 10; ++t) h = cell(randn({2, 4}), h);
      sgd.zero_grad();
      h.square().mean().backward();
      sgd.step();
    }
  }));
}

// --- D004

TEST(GradRules, EvaluationWithGradientsOn) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    for (int i = 0; i < 3; ++i) net.step();
    double sum = 0;
    for (int i = 0; i < 5; ++i) {
      line = here() + 1;
      Tensor out = net.model(net.x);
      sum += mse_loss(out, net.y).item<double>();
    }
  });
  EXPECT_FINDING(found, "D004", line);
  EXPECT_EQ(found.of("D004")[0].count, 5);
  EXPECT_EQ(found.all.size(), 1u) << found.text();
}
TEST(GradRules, OneForwardOfAProgramThatNeverTrains) {
  uint32_t line = 0;
  auto found = lint([&] {
    nn::Linear model(8, 4);
    line = here() + 1;
    model(randn({2, 8}));
  });
  EXPECT_FINDING(found, "D004", line);
}
TEST(GradRules, EncodersThatAreCutOff) {
  uint32_t line = 0;
  auto found = lint([&] {
    nn::Linear encoder(8, 4), head(4, 2);
    optim::SGD sgd(head.parameters(), {.lr = 0.01});
    for (int i = 0; i < 5; ++i) {
      line = here() + 1;
      Tensor h = encoder(randn({2, 8})).detach();
      sgd.zero_grad();
      head(h).square().mean().backward();
      sgd.step();
    }
  });
  EXPECT_FINDING(found, "D004", line);
}
TEST(GradRules, OneBatchThatIsLeftOutIsSilent) {
  EXPECT_SILENT(lint([] {
    Net net;
    for (int i = 0; i < 6; ++i) {
      net.sgd.zero_grad();
      Tensor loss = net.loss();
      if (i == 3) continue;  // say, an outlier
      loss.backward();
      net.sgd.step();
    }
    NoGradGuard guard;
    net.model(net.x);
  }));
}

// --- D006

TEST(GradRules, LossOutsideOfTheBlock) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    for (int i = 0; i < 3; ++i) net.step();
    for (int i = 0; i < 4; ++i) {
      Tensor out = no_grad([&] { return net.model(net.x); });
      Tensor penalty = net.model.weight.square().sum();
      line = here() + 1;
      Tensor loss = mse_loss(out, net.y) + penalty * 1e-4;
      loss.item<double>();
    }
  });
  EXPECT_FINDING(found, "D006", line);
  EXPECT_EQ(found.of("D006")[0].count, 4);
}
TEST(GradRules, TeachersAndMetricsAreSilent) {
  EXPECT_SILENT(lint([] {
    nn::Linear teacher(8, 4);
    Net net;
    for (int i = 0; i < 4; ++i) {  // distillation
      Tensor wanted = no_grad([&] { return teacher(net.x); });
      net.sgd.zero_grad();
      mse_loss(net.model(net.x), wanted).backward();
      net.sgd.step();
    }
    for (int i = 0; i < 4; ++i) {  // a student without a module
      Tensor wanted = no_grad([&] { return teacher(net.x); });
      net.sgd.zero_grad();
      mse_loss(matmul(net.x, net.model.weight.transpose(0, 1)) + net.model.bias, wanted).backward();
      net.sgd.step();
    }
    for (int i = 0; i < 4; ++i) {  // a metric
      Tensor out = no_grad([&] { return net.model(net.x); });
      mse_loss(out, net.y).item<double>();
    }
  }));
}

// --- D007

TEST(GradRules, InferenceTensorInTraining) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    Tensor table = inference_mode([&] { return net.x * 2; });
    Tensor w = ones({16, 8}, with_grad());
    line = here() + 1;
    w* table;
  });
  EXPECT_FINDING(found, "D007", line);
  EXPECT_SILENT(lint([] {
    Tensor table = inference_mode([] { return ones({4}) * 2; }).clone();
    (ones({4}, with_grad()) * table).sum().backward();
  }));
}
TEST(GradRules, InferenceTensorWrittenOutside) {
  uint32_t line = 0;
  auto found = lint([&] {
    Tensor sum = inference_mode([] { return ones({4}).sum(); });
    line = here() + 1;
    sum /= 4;
  });
  EXPECT_FINDING(found, "D007", line);
}

// --- D021

TEST(GradRules, FirstNan) {
  uint32_t line = 0;
  auto found = lint([&] {
    Tensor x = ones({1000}, with_grad());
    Tensor shifted = x - 2;
    line = here() + 1;
    Tensor logs = shifted.log();
    (logs * 3).sum().backward();
  });
  EXPECT_FINDING(found, "D021", line);
  EXPECT_NE(found.of("D021")[0].message.find("log"), std::string::npos);
}
TEST(GradRules, InfinityThatReachesTheLoss) {
  uint32_t line = 0;
  auto found = lint([&] {
    Tensor x = full({4}, 100, with_grad());
    line = here() + 1;
    Tensor large = x.exp();
    large.sum().item<double>();
  });
  EXPECT_FINDING(found, "D021", line);
}
TEST(GradRules, NanOfAGradient) {
  uint32_t line = 0;
  auto found = lint([&] {
    Tensor w = zeros({4}, with_grad());
    optim::SGD sgd({w}, {.lr = 0.1});
    line = here() + 1;
    Tensor root = w.sqrt();
    (root * 0).sum().backward();
    sgd.step();
  });
  EXPECT_FINDING(found, "D021", line);
}
TEST(GradRules, MasksOfInfinitiesAreSilent) {
  EXPECT_SILENT(lint([] {
    Tensor scores = randn({8, 8}, with_grad());
    Tensor mask = tril(ones({8, 8})) == 0;
    softmax(scores.masked_fill(mask, -INFINITY), 1).square().sum().backward();
    NoGradGuard guard;
    max(tril(ones({8, 8})).log()).item<double>();
  }));
}

// --- D022

TEST(GradRules, GradientsNeverCleared) {
  uint32_t line = 0;
  auto found = lint([&] {
    Net net;
    for (int i = 0; i < 6; ++i) {
      net.loss().backward();
      line = here() + 1;
      net.sgd.step();
    }
  });
  EXPECT_FINDING(found, "D022", line);
  EXPECT_EQ(found.of("D022")[0].count, 5);
}
TEST(GradRules, OtherWaysToClearGradientsAreSilent) {
  auto train = [](auto clear) {
    return lint([&] {
      Net net;
      for (int i = 0; i < 8; ++i) {
        net.loss().backward();
        if (i % 2) net.loss().backward();
        net.sgd.step();
        clear(net);
      }
    });
  };
  EXPECT_SILENT(train([](Net& n) { n.sgd.zero_grad(); }));
  EXPECT_SILENT(train([](Net& n) { n.sgd.zero_grad(false); }));
  EXPECT_SILENT(train([](Net& n) { n.model.zero_grad(); }));
  EXPECT_SILENT(train([](Net& n) { n.model.zero_grad(false); }));
  EXPECT_SILENT(train([](Net& n) {
    for (const Tensor& p : n.model.parameters()) p.grad().zero_();
  }));
}

TEST(GradRules, RulesCanBeTurnedOff) {
  EXPECT_SILENT(lint(
      [] {
        nn::Linear model(8, 4);
        model(randn({2, 8}));
      },
      {.off = {"D004"}}));
}

}  // namespace
}  // namespace deft::test
