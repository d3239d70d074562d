// Seeded defects around data: padding and waiting, each beside programs that look alike and are right.
#include "doctor/data_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "deft/deft.h"
#include "doctor/rule_util.h"

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

// --- D018 --------------------------------------------------------------------------------------------------------

// One long sequence among many short ones.
std::vector<Tensor> uneven() {
  std::vector<Tensor> list{ones({64})};
  for (int i = 0; i < 15; ++i) list.push_back(ones({8}));
  return list;
}
std::vector<Tensor> even() {
  std::vector<Tensor> list;
  for (int64_t i = 0; i < 16; ++i) list.push_back(ones({56 + i % 9}));
  return list;
}

TEST(PaddingWaste, BatchesThatAreMostlyPaddingAreFoundWithTheCure) {
  int line = 0;
  Lint found = lint([&] {
    for (int step = 0; step < 10; ++step) {
      line = __LINE__ + 1;
      data::PaddedBatch batch = data::pad_sequences(uneven());
    }
  });
  EXPECT_FINDING(found, "D018", line);
  const Finding f = found.of("D018")[0];
  EXPECT_EQ(f.count, 10);
  EXPECT_NEAR(figure(f, "waste_percent"), 100 * (1 - (64 + 15 * 8) / (16.0 * 64)), 1e-9);
  EXPECT_LT(figure(f, "waste_percent_with_buckets"), 1);
  EXPECT_NE(f.message.find("BucketSampler with boundaries {8, 64}"), std::string::npos) << f.message;
}

TEST(PaddingWaste, EvenLengthsAndAFewBatchesAreSilent) {
  Lint clean = lint([&] {
    for (int step = 0; step < 20; ++step) data::pad_sequences(even());
    for (int step = 0; step < 5; ++step) data::pad_sequences(uneven());
  });
  EXPECT_SILENT(clean);
}

TEST(PaddingWaste, FillingUpFurtherThanNeededIsFound) {
  Tensor batch = ones({4, 30, 2});
  int line = 0;
  Lint found = lint([&] {
    for (int step = 0; step < 10; ++step) {
      line = __LINE__ + 1;
      data::pad_to(batch, 512);
    }
    for (int step = 0; step < 10; ++step) data::pad_to(batch, 32);
  });
  EXPECT_FINDING(found, "D018", line);
}

struct Texts : data::Dataset {
  std::vector<int64_t> lengths;
  std::vector<data::Field> all{{.name = "tokens", .dtype = DType::i64, .shape = {-1}}};
  int64_t size() const override { return static_cast<int64_t>(lengths.size()); }
  const std::vector<data::Field>& fields() const override { return all; }
  void get(int64_t index, data::SampleWriter& out) const override {
    const int64_t n = lengths[static_cast<size_t>(index)];
    int64_t* to = out.varying<int64_t>(0, {n});
    for (int64_t i = 0; i < n; ++i) to[i] = i;
  }
};

TEST(PaddingWaste, ALoaderThatMixesLengthsIsFoundAtItsLoopAndBucketsAreSilent) {
  auto texts = std::make_shared<Texts>();
  for (int64_t i = 0; i < 512; ++i) texts->lengths.push_back(i % 8 ? 4 + i % 5 : 100);
  int line = 0;
  Lint found = lint([&] {
    line = __LINE__ + 2;
    data::DataLoader loader(texts, {.batch_size = 16, .shuffle = true, .workers = 0});
    for (data::Batch& batch : loader) (void)batch;
  });
  EXPECT_FINDING(found, "D018", line);
  const std::string message = found.of("D018")[0].message;
  EXPECT_NE(message.find(fmt::format("Its loader is made at data_rules_test.cpp:{}.", line - 1)), std::string::npos)
      << message;
  EXPECT_GT(figure(found.of("D018")[0], "waste_percent"), 60);

  Lint clean = lint([&] {
    auto buckets =
        std::make_shared<data::BucketSampler>(texts->lengths, data::BucketOptions{.rows = 16, .boundaries = {8, 100}});
    data::DataLoader loader(texts, {.batch_sampler = buckets, .workers = 0});
    for (data::Batch& batch : loader) (void)batch;
  });
  EXPECT_SILENT(clean);
}

// --- D020 --------------------------------------------------------------------------------------------------------

// A rule with a clock that the test turns.
struct Loop {
  double now = 100;
  std::unique_ptr<doctor::Rule> rule = doctor::make_data_bound_rule([this] { return now; });
  data::DataLoader loader = make_loader(), other = make_loader();
  Site site;
  static constexpr uint32_t kMadeAt = __LINE__ + 3;
  static data::DataLoader make_loader() {
    auto rows = std::make_shared<data::TensorDataset>(NamedTensors{{"x", ones({4})}});
    return data::DataLoader(rows, {.workers = 0});
  }

  void wait(double seconds, const void* which) {
    now += seconds;
    rule->batch_loaded(which, 32, seconds, site);
  }
  void work(double seconds) {
    rule->plan_ran(nullptr, Site());
    now += seconds;
  }
  std::vector<Finding> found() {
    std::vector<Finding> all;
    rule->report(all);
    return all;
  }
};

TEST(DataBoundLoop, WaitingForAQuarterOfTheTimeIsFound) {
  Loop loop;
  loop.site = Site::current();
  const int line = __LINE__ - 1;
  for (int i = 0; i < 60; ++i) {
    loop.wait(i < 5 ? 2.0 : 0.01, &loop.loader);  // the first batches are always late
    loop.work(0.03);
  }
  const auto found = loop.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].id, "D020");
  EXPECT_EQ(found[0].line, static_cast<uint32_t>(line));
  EXPECT_EQ(found[0].count, 55);
  EXPECT_NEAR(figure(found[0], "waiting_percent"), 25, 1e-6);
  EXPECT_NEAR(figure(found[0], "wait_ms_per_step"), 10, 1e-6);
  EXPECT_NEAR(figure(found[0], "step_ms"), 40, 1e-6);
  EXPECT_NE(found[0].message.find(fmt::format("made at data_rules_test.cpp:{}.", Loop::kMadeAt)), std::string::npos)
      << found[0].message;
}

TEST(DataBoundLoop, ShortWaitsAndALateStartAreSilent) {
  Loop loop;
  for (int i = 0; i < 60; ++i) {
    loop.wait(i < 5 ? 2.0 : 0.005, &loop.loader);
    loop.work(0.03);
  }
  EXPECT_TRUE(loop.found().empty());
}

TEST(DataBoundLoop, ALoopThatOnlyReadsIsSilent) {
  Loop loop;
  for (int i = 0; i < 100; ++i) loop.wait(0.02, &loop.loader);
  EXPECT_TRUE(loop.found().empty());
  for (int i = 0; i < 100; ++i) {  // ops while it waits are the loader's own: it has no workers
    loop.now += 0.01;
    loop.rule->plan_ran(nullptr, Site());
    loop.now += 0.01;
    loop.rule->batch_loaded(&loop.loader, 32, 0.02, Site());
  }
  EXPECT_TRUE(loop.found().empty());
}

TEST(DataBoundLoop, AValidationAfterEachEpochIsNoWaitingAndHasItsOwnShare) {
  Loop loop;
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int i = 0; i < 30; ++i) {
      loop.wait(0.01, &loop.loader);
      loop.work(0.03);
    }
    for (int i = 0; i < 30; ++i) {
      loop.wait(0.001, &loop.other);
      loop.work(0.5);
    }
  }
  const auto found = loop.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(figure(found[0], "waiting_percent"), 25, 1e-6);
}

TEST(DataBoundLoop, AShortRunSaysNothing) {
  Loop loop;
  for (int i = 0; i < 40; ++i) {
    loop.wait(0.002, &loop.loader);
    loop.work(0.002);
  }
  EXPECT_TRUE(loop.found().empty());
}

}  // namespace
}  // namespace deft
