// Seeded defects in loops, each beside programs that look alike and are right.
#include "doctor/loop_rules.h"

#include <gtest/gtest.h>

#include "deft/deft.h"
#include "doctor/rule_util.h"
#include "doctor/steps.h"
#include "runtime/cpu_info.h"
#include "runtime/cpu_isa.h"

namespace deft {
namespace {

using test::Lint;
using test::lint;

double figure(const Finding& f, const std::string& name) {
  for (const auto& [key, value] : f.figures)
    if (key == name) return value;
  ADD_FAILURE() << "no figure " << name << " in " << f.to_string();
  return 0;
}

struct Mlp : nn::Sequential {
  Mlp(int64_t in, int64_t hidden, int64_t out) {
    add<nn::Linear>(in, hidden);
    add<nn::ReLU>();
    add<nn::Linear>(hidden, out);
  }
};

std::shared_ptr<data::TensorDataset> dataset_of(const Tensor& x) {
  return std::make_shared<data::TensorDataset>(NamedTensors{{"x", x}});
}

// --- Steps -------------------------------------------------------------------------------------------------------

TEST(Steps, ABatchIsAStepWhateverElseIsDoneInIt) {
  doctor::Steps steps;
  doctor::LineRun every, every_third, once;
  int loader = 0, optimizer = 0;
  for (int i = 0; i < 12; ++i) {
    steps.happened(doctor::Steps::kBatch, &loader);
    for (int k = 0; k < 5; ++k) steps.happened(doctor::Steps::kForward, "model.cpp", 7);
    every.add(steps);
    every.add(steps);
    if (i % 3 == 0) every_third.add(steps);
    if (i == 6) once.add(steps);
    steps.happened(doctor::Steps::kOptimizer, &optimizer);
  }
  EXPECT_EQ(every.longest, 12);
  EXPECT_EQ(every.steps, 12);
  EXPECT_EQ(every.per_step(), 2);
  EXPECT_EQ(every_third.longest, 1);
  EXPECT_EQ(every_third.steps, 4);
  EXPECT_EQ(once.longest, 1);
}

TEST(Steps, TwoOptimizersMakeOneStepTogether) {
  doctor::Steps steps;
  doctor::LineRun line;
  int first = 0, second = 0;
  for (int i = 0; i < 10; ++i) {
    line.add(steps);
    steps.happened(doctor::Steps::kOptimizer, &first);
    steps.happened(doctor::Steps::kOptimizer, &second);
  }
  EXPECT_GE(line.longest, 9);
  EXPECT_EQ(line.per_step(), 1);
}

TEST(Steps, ForwardBackwardAndOptimizerAreOneStepAndCellsInItAreNone) {
  doctor::Steps steps;
  doctor::LineRun line;
  int optimizer = 0;
  for (int i = 0; i < 20; ++i) {
    for (int t = 0; t < 50; ++t) steps.happened(doctor::Steps::kForward, "cell.cpp", 7);
    line.add(steps);
    steps.happened(doctor::Steps::kBackward, "train.cpp", 9);
    line.add(steps);
    steps.happened(doctor::Steps::kOptimizer, &optimizer);
  }
  EXPECT_GE(line.longest, 19);
  EXPECT_LE(line.steps, 21);
}

TEST(Steps, AnEvaluationAfterTrainingHasStepsOfItsOwn) {
  doctor::Steps steps;
  doctor::LineRun line;
  int optimizer = 0;
  for (int i = 0; i < 20; ++i) {
    steps.happened(doctor::Steps::kForward, "train.cpp", 7);
    steps.happened(doctor::Steps::kOptimizer, &optimizer);
  }
  for (int i = 0; i < 40; ++i) {
    steps.happened(doctor::Steps::kForward, "train.cpp", 27);
    line.add(steps);
  }
  EXPECT_GE(line.longest, 20);
}

// --- D014 --------------------------------------------------------------------------------------------------------

TEST(TinyTensors, AnElementwiseLoopInEachStepIsFoundAtItsLine) {
  Tensor w = randn({64}).requires_grad_(), x = randn({64});
  optim::SGD sgd({w}, {.lr = 0.01});
  int line = 0;
  Lint found = lint([&] {
    for (int step = 0; step < 6; ++step) {
      Tensor sum = zeros({});
      for (int i = 0; i < 64; ++i) {
        line = __LINE__ + 1;
        sum = sum + w.select(0, i) * x.select(0, i);
      }
      sum.backward();
      sgd.step();
      sgd.zero_grad();
    }
  });
  EXPECT_FINDING(found, "D014", line);
  const Finding f = found.of("D014")[0];
  EXPECT_GE(figure(f, "ops_per_step"), 200);
  EXPECT_LT(figure(f, "mean_elements"), 200);
  EXPECT_GE(f.count, 6 * 200);
}

TEST(TinyTensors, ALoopWithoutStepsIsFoundWhenItIsLong) {
  Tensor x = randn({2000});
  int line = 0;
  auto add_up = [&](int64_t n) {
    NoGradGuard off;
    Tensor sum = zeros({});
    for (int64_t i = 0; i < n; ++i) {
      line = __LINE__ + 1;
      sum += x.select(0, i);
    }
  };
  Lint found = lint([&] { add_up(2000); });
  EXPECT_FINDING(found, "D014", line);
  EXPECT_EQ(found.of("D014")[0].count, 2000);
  Lint clean = lint([&] { add_up(300); });
  EXPECT_SILENT(clean);
}

TEST(TinyTensors, LargeTensorsInTheSameLoopAreSilent) {
  Tensor x = randn({64, 4096});
  Lint clean = lint([&] {
    NoGradGuard off;
    Tensor sum = zeros({4096});
    for (int k = 0; k < 30; ++k)
      for (int i = 0; i < 64; ++i) sum += x.select(0, i);
  });
  EXPECT_SILENT(clean);
}

TEST(TinyTensors, AFewSmallOpsInEachStepAreSilent) {
  Tensor w = randn({8}).requires_grad_();
  optim::SGD sgd({w}, {.lr = 0.01});
  Lint clean = lint([&] {
    for (int step = 0; step < 200; ++step) {
      (w * w).sum().backward();
      sgd.step();
      sgd.zero_grad();
    }
  });
  EXPECT_SILENT(clean);
}

TEST(TinyTensors, AModelThatGetsADataSetRowByRowIsFoundAtItsCall) {
  Mlp model(32, 64, 10);
  model.eval();
  Tensor data = randn({100, 32});
  int line = 0;
  Lint found = lint([&] {
    InferenceModeGuard guard;
    for (int64_t i = 0; i < data.size(0); ++i) {
      line = __LINE__ + 1;
      Tensor y = model(data.narrow(0, i, 1));
    }
  });
  EXPECT_FINDING(found, "D014", line);
  const Finding f = found.of("D014")[0];
  EXPECT_GE(f.count, 98);
  EXPECT_EQ(figure(f, "rows_per_call"), 1);
  EXPECT_LT(figure(f, "mean_elements"), 100);
  EXPECT_NE(f.message.find("batches of 32"), std::string::npos);
}

TEST(TinyTensors, ALoaderWithBatchesOfOneIsFound) {
  Mlp model(32, 64, 10);
  model.eval();
  data::DataLoader loader(dataset_of(randn({64, 32})), {.batch_size = 1, .workers = 0});
  int line = 0;
  Lint found = lint([&] {
    InferenceModeGuard guard;
    for (data::Batch& batch : loader) {
      line = __LINE__ + 1;
      Tensor y = model(batch["x"]);
    }
  });
  EXPECT_FINDING(found, "D014", line);
  EXPECT_EQ(found.of("D014")[0].count, 64);
}

TEST(TinyTensors, RequestsOfOneRowAndBatchesOfManyAreSilent) {
  Mlp model(32, 64, 10);
  model.eval();
  Tensor data = randn({640, 32});
  Lint clean = lint([&] {
    InferenceModeGuard guard;
    for (int i = 0; i < 100; ++i) model(randn({1, 32}));                     // a server's
    for (int64_t i = 0; i < 40; ++i) model(data.narrow(0, i * 16, 16));      // a loop over batches
    for (int64_t i = 0; i < 10; ++i) model(data.select(0, i).unsqueeze(0));  // a look at a few
  });
  EXPECT_SILENT(clean);
}

// --- D015 --------------------------------------------------------------------------------------------------------

TEST(LayoutConversions, ImagesConvertedInEachStepAreFound) {
  Tensor image = randn({4, 16, 32, 32}), w = randn({16, 16, 1, 1});
  int line = 0;
  Lint found = lint([&] {
    NoGradGuard off;
    for (int step = 0; step < 12; ++step) {
      nn::Identity counts;
      Tensor x = counts(image);
      line = __LINE__ + 1;
      Tensor y = x.contiguous(MemoryFormat::channels_last);
      conv2d(y, w);
    }
  });
  EXPECT_FINDING(found, "D015", line);
  const Finding f = found.of("D015")[0];
  EXPECT_EQ(f.count, 12);
  EXPECT_NEAR(figure(f, "mb_per_step"), 4 * 16 * 32 * 32 * 4 / 1e6, 1e-9);
  EXPECT_GT(figure(f, "percent_of_bytes"), 20);
}

TEST(LayoutConversions, ALargeTransposedCopyInEachStepIsFound) {
  Tensor w = randn({512, 1024}).requires_grad_(), x = randn({4, 1024});
  optim::SGD sgd({w}, {.lr = 0.01});
  int line = 0;
  Lint found = lint([&] {
    for (int step = 0; step < 10; ++step) {
      line = __LINE__ + 1;
      Tensor t = w.t().contiguous();
      matmul(x, t).sum().backward();
      sgd.step();
      sgd.zero_grad();
    }
  });
  EXPECT_FINDING(found, "D015", line);
}

TEST(LayoutConversions, OnceBeforeTheLoopAndMergedHeadsAreSilent) {
  Tensor heads = randn({8, 4, 64, 32}), image = randn({4, 16, 32, 32}), w = randn({16, 16, 1, 1});
  Lint clean = lint([&] {
    NoGradGuard off;
    Tensor x = image.contiguous(MemoryFormat::channels_last);
    nn::Identity counts;
    for (int step = 0; step < 12; ++step) {
      conv2d(counts(x), w);
      heads.transpose(1, 2).reshape({8, 64, 128});  // rows of 32 stay rows
    }
  });
  EXPECT_SILENT(clean);
}

TEST(LayoutConversions, EveryThirdStepIsSilent) {
  Tensor image = randn({4, 16, 32, 32});
  Lint clean = lint([&] {
    NoGradGuard off;
    nn::Identity counts;
    for (int step = 0; step < 36; ++step) {
      Tensor x = counts(image);
      if (step % 3 == 0) x.contiguous(MemoryFormat::channels_last);
    }
  });
  EXPECT_SILENT(clean);
}

TEST(LayoutConversions, SmallOnesAndThoseBesideMuchWorkAreSilent) {
  Tensor small = randn({64, 64}), image = randn({1, 8, 48, 48}), large = randn({1 << 21});
  Lint clean = lint([&] {
    NoGradGuard off;
    nn::Identity counts;
    for (int step = 0; step < 12; ++step) {
      counts(small).t().contiguous();
      image.contiguous(MemoryFormat::channels_last);
      large * 2;
    }
  });
  EXPECT_SILENT(clean);
}

// --- D016 --------------------------------------------------------------------------------------------------------

TEST(SlowAutocast, ATypeWithoutFastProductsIsFound) {
  IsaGuard lower(isa_levels(cpu_info().architecture)[0].name);
  ASSERT_FALSE(doctor::has_fast_products(DType::bf16));
  Tensor x = randn({16, 32}), w = randn({8, 32});
  int line = 0;
  Lint found = lint([&] {
    NoGradGuard off;
    AutocastGuard autocast(DType::bf16);
    for (int i = 0; i < 20; ++i) {
      line = __LINE__ + 1;
      linear(x, w);
    }
  });
  EXPECT_FINDING(found, "D016", line);
  EXPECT_EQ(found.of("D016")[0].count, 20);
  EXPECT_NE(found.of("D016")[0].message.find("bf16"), std::string::npos);
}

TEST(SlowAutocast, WhatChooseAutocastSaysIsSilent) {
  Tensor x = randn({16, 32}), w = randn({8, 32});
  auto run = [&] {
    NoGradGuard off;
    AutocastGuard autocast(kCPU);
    for (int i = 0; i < 20; ++i) linear(x, w);
  };
  Lint clean = lint(run);
  EXPECT_SILENT(clean);
  IsaGuard lower(isa_levels(cpu_info().architecture)[0].name);
  Lint clean_too = lint(run);
  EXPECT_SILENT(clean_too);  // f32 there
}

TEST(SlowAutocast, AModelThatIsBf16ItselfIsSilent) {
  IsaGuard lower(isa_levels(cpu_info().architecture)[0].name);
  Tensor x = randn({16, 32}).to(DType::bf16), w = randn({8, 32}).to(DType::bf16);
  Lint clean = lint([&] {
    NoGradGuard off;
    for (int i = 0; i < 20; ++i) linear(x, w);
  });
  EXPECT_SILENT(clean);
}

TEST(SlowAutocast, MeasuredTimesDecide) {
  auto slower = doctor::slow_autocast({.f32_seconds = 0.010, .autocast_seconds = 0.015}, Site::current());
  const int line = __LINE__ - 1;
  ASSERT_TRUE(slower);
  EXPECT_EQ(slower->id, "D016");
  EXPECT_EQ(slower->line, static_cast<uint32_t>(line));
  EXPECT_DOUBLE_EQ(figure(*slower, "times_slower"), 1.5);
  EXPECT_FALSE(doctor::slow_autocast({.f32_seconds = 0.010, .autocast_seconds = 0.0101}, Site::current()));
  EXPECT_FALSE(doctor::slow_autocast({.f32_seconds = 0.010, .autocast_seconds = 0.004}, Site::current()));
  EXPECT_FALSE(doctor::slow_autocast({.f32_seconds = 0, .autocast_seconds = 0.004}, Site::current()));
}

// --- D017 --------------------------------------------------------------------------------------------------------

TEST(RecompilationStorm, AnotherShapeInEachCallIsFoundWithTheReason) {
  int line = 0;
  Lint found = lint([&] {
    NoGradGuard off;
    line = __LINE__ + 1;
    Compiled f = compile([](const Tensor& x) { return relu(x) * 2; }, {.symbolic = false});
    for (int64_t n = 1; n <= 20; ++n) f(randn({n, 4}));
  });
  EXPECT_FINDING(found, "D017", line);
  const Finding f = found.of("D017")[0];
  EXPECT_EQ(f.count, 20);
  EXPECT_EQ(figure(f, "calls"), 20);
  EXPECT_EQ(figure(f, "percent_missed"), 100);
  EXPECT_NE(f.message.find("input 0"), std::string::npos) << f.message;
}

TEST(RecompilationStorm, TemplatesAFewShapesAndManyCallsAreSilent) {
  Lint clean = lint([&] {
    NoGradGuard off;
    Compiled sizes = compile([](const Tensor& x) { return relu(x) * 2; });
    for (int64_t n = 1; n <= 30; ++n) sizes(randn({n, 4}));  // three captures, then a template
    Compiled buckets = compile([](const Tensor& x) { return relu(x) * 2; }, {.symbolic = false});
    for (int64_t n = 0; n < 60; ++n) buckets(randn({8 * (1 + n % 10), 4}));  // 10 of 60
    Compiled seven = compile([](const Tensor& x) { return relu(x) * 2; }, {.symbolic = false});
    for (int64_t n = 1; n <= 7; ++n) seven(randn({n, 4}));  // too few to say
  });
  EXPECT_SILENT(clean);
}

// --- D019 --------------------------------------------------------------------------------------------------------

TEST(OversubscribedThreads, MoreThreadsThanCpusAreFoundWhereTheyWereSet) {
  const int before = num_threads();
  int line = 0;
  Lint found = lint([&] {
    line = __LINE__ + 1;
    set_num_threads(static_cast<int>(allowed_cpus().size()) + 1);
    ones({4}) + 1;
    set_num_threads(before);
  });
  EXPECT_FINDING(found, "D019", line);
  EXPECT_EQ(figure(found.of("D019")[0], "threads"), static_cast<double>(allowed_cpus().size() + 1));
  Lint clean = lint([&] {
    set_num_threads(1);
    ones({4}) + 1;
    set_num_threads(before);
  });
  EXPECT_SILENT(clean);
}

TEST(OversubscribedThreads, TheQuotaCountsToo) {
  const ThreadChoice container{.threads = 2, .affinity = 64, .cgroup_quota = 1.5, .physical_cores = 32, .from_env = 0};
  EXPECT_FALSE(doctor::oversubscribed(2, container, Site()));  // one and a half, rounded up
  auto found = doctor::oversubscribed(16, container, Site());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file, "");
  EXPECT_EQ(figure(*found, "cpus"), 2);
  EXPECT_NE(found->message.find("DEFT_NUM_THREADS"), std::string::npos);
  EXPECT_NE(found->message.find("quota of 1.5"), std::string::npos);
  EXPECT_FALSE(doctor::oversubscribed(64, {.affinity = 64}, Site()));
}

}  // namespace
}  // namespace deft
