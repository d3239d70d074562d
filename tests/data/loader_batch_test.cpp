// What is in a batch: fields, padding, hooks, short and empty batches.
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <set>
#include <thread>

#include "core/grad_mode.h"
#include "data/loader_util.h"
#include "ops/creation.h"
#include "ops/random.h"

namespace deft::data {
namespace {

// A data set of one's own making: fields and a function.
class FunctionSet : public Dataset {
 public:
  using Get = std::function<void(int64_t, SampleWriter&)>;
  FunctionSet(int64_t n, std::vector<Field> fields, Get get)
      : n_(n), fields_(std::move(fields)), get_(std::move(get)) {}
  int64_t size() const override { return n_; }
  const std::vector<Field>& fields() const override { return fields_; }
  void get(int64_t index, SampleWriter& out) const override { get_(index, out); }

 private:
  int64_t n_;
  std::vector<Field> fields_;
  Get get_;
};

std::vector<int64_t> rows_of(DataLoader& loader) {
  std::vector<int64_t> rows;
  for (Batch& batch : loader) rows.push_back(batch.rows());
  return rows;
}

TEST(LoaderBatch, FieldsByPositionAndName) {
  auto set = std::make_shared<MixedSet>(10);
  for (int workers : {0, 2}) {
    DataLoader loader(set, {.batch_size = 4, .seed = 5, .workers = workers});
    Batch batch;
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ(batch.size(), 2);
    EXPECT_EQ(batch.name(1), "varying");
    EXPECT_TRUE(batch["fixed"].is_same(batch[0]));
    EXPECT_EQ(batch["fixed"].sizes(), (Shape{4, 2}));
    EXPECT_EQ(batch["fixed"].dtype(), DType::f64);
    EXPECT_EQ(batch["fixed"].select(1, 0).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(sample_numbers(batch), (std::vector<int64_t>{0, 1, 2, 3}));
    EXPECT_FALSE(batch.lengths("fixed").defined());
    EXPECT_EQ(batch.epoch, 0);
    EXPECT_EQ(batch.index, 0);
    EXPECT_TRUE(batch.has("varying"));
    EXPECT_FALSE(batch.has("label"));
    EXPECT_THROW(batch["label"], ValueError);
    EXPECT_THROW(batch[2], IndexError);
    // What a sample draws is its own.
    SampleRng rng(5, 0, 3);
    EXPECT_EQ((batch["fixed"][3][1].item<double>()), rng.uniform());
    ASSERT_TRUE(loader.next(batch));
    EXPECT_EQ((batch["fixed"][1][1].item<double>()), SampleRng(5, 0, 5).uniform());
  }
}

// What samples draw, themselves and through ops, differs from sample to sample, from epoch to epoch and between seeds:
// equal draws would be equal augmentation.
TEST(LoaderBatch, EverySampleDrawsNumbersOfItsOwn) {
  std::vector<Field> fields{{"own", DType::f64, {}}, {"by_op", DType::f64, {}}};
  auto set = std::make_shared<FunctionSet>(16, fields, [](int64_t, SampleWriter& out) {
    *out.fixed<double>(0) = out.rng().uniform();
    *out.fixed<double>(1) = rand({}, {DType::f64}).item<double>();
  });
  std::set<double> all;
  size_t drawn = 0;
  for (uint64_t seed : {1, 2}) {
    DataLoader loader(set, {.batch_size = 4, .seed = seed, .workers = 2});
    for (int epoch = 0; epoch < 2; ++epoch)
      for (Batch& batch : loader)
        for (int i = 0; i < 2; ++i)
          for (double v : batch[i].to_vector<double>()) all.insert(v), ++drawn;
  }
  EXPECT_EQ(drawn, 128u);
  EXPECT_EQ(all.size(), drawn);
}

TEST(LoaderBatch, VaryingFieldsArePadded) {
  auto set = std::make_shared<MixedSet>(10);
  DataLoader loader(set, {.batch_size = 4, .workers = 1});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  ASSERT_EQ(batch["varying"].sizes(), (Shape{4, 3, 2}));
  EXPECT_EQ(batch.lengths("varying").to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3}));
  const int32_t* p = batch["varying"].data<int32_t>();
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t i = 0; i < 6; ++i) {
      int32_t v = p[row * 6 + i];
      if (i / 2 < row)
        EXPECT_TRUE(v >= 0 && v < 1000);
      else
        EXPECT_EQ(v, -7);
    }
}

// Down to rows of a single byte, over memory that held another batch.
TEST(LoaderBatch, ShortRowsOfEveryWidth) {
  for (DType t : {DType::u8, DType::f16, DType::i32, DType::f64}) {
    auto set =
        std::make_shared<FunctionSet>(8, std::vector<Field>{{"x", t, {-1}, 9}}, [&](int64_t i, SampleWriter& out) {
          const int64_t n = (i + 1) % 4;  // 1, 2, 3, 0
          const Tensor values = full({n}, static_cast<double>(20 + i), t);
          dispatch_all(
              t, [&]<class T>() { std::copy_n(static_cast<const T*>(values.data_ptr()), n, out.varying<T>(0, {n})); });
        });
    DataLoader loader(set, {.batch_size = 4, .workers = 0});
    for (double base : {20.0, 24.0}) {
      Batch batch;
      ASSERT_TRUE(loader.next(batch));
      EXPECT_EQ(batch[0].to_vector<double>(),
                (std::vector<double>{base, 9, 9, base + 1, base + 1, 9, base + 2, base + 2, base + 2, 9, 9, 9}))
          << name_of(t);
    }
  }
}

TEST(LoaderBatch, TwoVaryingDimensions) {
  std::vector<Field> fields{{"x", DType::f32, {2, -1, 3, -1}, 0.5}, {"empty", DType::u8, {-1}, 255}};
  auto set = std::make_shared<FunctionSet>(3, fields, [](int64_t i, SampleWriter& out) {
    int64_t h = i + 1, w = 3 - i;
    float* x = out.varying<float>(0, {2, h, 3, w});
    std::iota(x, x + 6 * h * w, static_cast<float>(100 * i));
    out.varying<uint8_t>(1, {0});
  });
  DataLoader loader(set, {.batch_size = 3, .workers = 2});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  ASSERT_EQ(batch[0].sizes(), (Shape{3, 2, 3, 3, 3}));
  ASSERT_EQ(batch[1].sizes(), (Shape{3, 0}));
  EXPECT_EQ(batch.lengths(0).to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3}));
  std::vector<float> v = batch[0].to_vector<float>();
  size_t at = 0;
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t a = 0; a < 2; ++a)
      for (int64_t y = 0; y < 3; ++y)
        for (int64_t c = 0; c < 3; ++c)
          for (int64_t x = 0; x < 3; ++x, ++at) {
            int64_t h = i + 1, w = 3 - i;
            float expected = y < h && x < w ? static_cast<float>(100 * i + ((a * h + y) * 3 + c) * w + x) : 0.5f;
            EXPECT_EQ(v[at], expected) << at;
          }
}

TEST(LoaderBatch, ScalarFieldsAndEveryType) {
  std::vector<Field> fields;
  for (int t = 0; t < kDTypeCount; ++t) fields.push_back({fmt::format("t{}", t), static_cast<DType>(t), {}});
  auto set = std::make_shared<FunctionSet>(5, fields, [](int64_t i, SampleWriter& out) {
    for (int t = 0; t < kDTypeCount; ++t)
      dispatch_all(static_cast<DType>(t), [&]<class T>() {
        if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
          *out.fixed<T>(t) = T(static_cast<float>(i));
        else
          *out.fixed<T>(t) = static_cast<T>(i);
      });
  });
  DataLoader loader(set, {.batch_size = 5, .workers = 1});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  for (int t = 0; t < kDTypeCount; ++t)
    EXPECT_EQ(batch[t].to_vector<double>()[4], static_cast<DType>(t) == DType::boolean ? 1 : 4);
}

TEST(LoaderBatch, ShortLastBatch) {
  auto set = std::make_shared<MixedSet>(10);
  auto stream = std::make_shared<MixedStream>(10);
  for (int workers : {0, 3}) {
    LoaderOptions all{.batch_size = 4, .workers = workers},
        whole{.batch_size = 4, .drop_last = true, .workers = workers};
    DataLoader a(set, all), b(set, whole), c(stream, all), d(stream, whole);
    for (DataLoader* loader : {&a, &c}) EXPECT_EQ(rows_of(*loader), (std::vector<int64_t>{4, 4, 2}));
    for (DataLoader* loader : {&b, &d}) EXPECT_EQ(rows_of(*loader), (std::vector<int64_t>{4, 4}));
    EXPECT_EQ(a.batches(), 3);
    EXPECT_EQ(b.batches(), 2);
    EXPECT_THROW(c.batches(), UnsupportedError);
    // More than there is.
    DataLoader big(set, {.batch_size = 99, .workers = workers}), none(stream, {.batch_size = 99, .drop_last = true});
    EXPECT_EQ(rows_of(big), (std::vector<int64_t>{10}));
    EXPECT_EQ(rows_of(none), (std::vector<int64_t>{}));
    EXPECT_EQ(rows_of(none), (std::vector<int64_t>{}));
    EXPECT_EQ(none.epoch(), 2);
  }
}

TEST(LoaderBatch, EmptySets) {
  for (int workers : {0, 2}) {
    DataLoader a(std::make_shared<MixedSet>(0), {.batch_size = 4, .workers = workers});
    DataLoader b(std::make_shared<MixedStream>(0), {.batch_size = 4, .workers = workers});
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_TRUE(rows_of(a).empty());
      EXPECT_TRUE(rows_of(b).empty());
    }
    EXPECT_EQ(a.epoch(), 3);
    EXPECT_EQ(a.batches(), 0);
  }
}

TEST(LoaderBatch, SamplersAndBatchSamplers) {
  struct Pairs : BatchSampler {
    BatchPlan batches(uint64_t, int64_t epoch) const override {
      BatchPlan plan;
      for (int64_t i = 0; i < 3; ++i) plan.add(std::vector<int64_t>(static_cast<size_t>(i), epoch + i));
      return plan;
    }
    std::string describe() const override { return "pairs"; }
  };
  auto set = std::make_shared<MixedSet>(10);
  DataLoader own(set, {.batch_sampler = std::make_shared<Pairs>(), .workers = 2});
  std::vector<std::vector<int64_t>> got;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (Batch& batch : own) got.push_back(sample_numbers(batch));
  EXPECT_EQ(got, (std::vector<std::vector<int64_t>>{{1}, {2, 2}, {2}, {3, 3}}));  // an empty one is left out

  DataLoader subset(set, {.batch_size = 2,
                          .sampler = std::make_shared<SubsetSampler>(std::vector<int64_t>{7, 3, 5}, false),
                          .workers = 1});
  Batch batch;
  ASSERT_TRUE(subset.next(batch));
  EXPECT_EQ(sample_numbers(batch), (std::vector<int64_t>{7, 3}));
}

TEST(LoaderBatch, CollateMayChangeABatch) {
  auto set = std::make_shared<MixedSet>(12);
  auto collate = [](Batch& batch) {
    EXPECT_FALSE(is_grad_enabled());
    batch.set("sum", batch["fixed"].sum({1}));
    batch.set("fixed", batch["fixed"] * 2);
    batch.set("chance", full({}, batch.rng().uniform()));
    batch.remove("varying");
  };
  std::vector<double> chances[2];
  for (int workers : {0, 3}) {
    DataLoader loader(set, {.batch_size = 4, .workers = workers, .collate = collate});
    for (Batch& batch : loader) {
      EXPECT_EQ(batch.size(), 3);
      EXPECT_FALSE(batch.has("varying"));
      EXPECT_EQ(batch["sum"].sizes(), (Shape{4}));
      EXPECT_EQ(batch["fixed"][0][0].item<double>(), static_cast<double>(8 * batch.index));
      chances[workers > 0].push_back(batch["chance"].item<double>());
    }
  }
  EXPECT_EQ(chances[0], chances[1]);
  EXPECT_NE(chances[0][0], chances[0][1]);
}

TEST(LoaderBatch, MemoryIsReused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  auto set = std::make_shared<FunctionSet>(1000, std::vector<Field>{{"x", DType::f32, {1000}}},
                                           [](int64_t, SampleWriter& out) { out.fixed<float>(0)[0] = 1; });
  for (int workers : {0, 1}) {
    DataLoader loader(set, {.batch_size = 10, .workers = workers, .prefetch = 4});
    Batch batch;
    std::set<void*> seen;
    for (int i = 0; i < 90; ++i) {
      ASSERT_TRUE(loader.next(batch));
      seen.insert(batch[0].data_ptr());
    }
    EXPECT_LE(seen.size(), 8u);
    // A batch that is kept is not written to, and outlives the loader.
    Tensor kept = batch[0];
    for (int i = 0; i < 10; ++i) {
      loader.next(batch);
      EXPECT_TRUE(batch.size() == 0 || batch[0].data_ptr() != kept.data_ptr());
    }
    loader = DataLoader(set);
    EXPECT_EQ(kept[9][0].item<float>(), 1);
  }
}

int64_t resident_bytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(LoaderBatch, MemoryStaysFlatOverFiftyEpochs) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  auto set = std::make_shared<FunctionSet>(400, std::vector<Field>{{"x", DType::f32, {500}}, {"y", DType::f32, {-1}}},
                                           [](int64_t, SampleWriter& out) {
                                             std::fill_n(out.fixed<float>(0), 500, 1.0f);
                                             int64_t n = 100 + out.rng().below(400);
                                             std::fill_n(out.varying<float>(1, {n}), n, 1.0f);
                                           });
  for (int workers : {0, 2}) {
    DataLoader loader(set, {.batch_size = 16, .shuffle = true, .workers = workers});
    int64_t early = 0;
    Batch batch;
    while (loader.epoch() < 50) {
      if (!loader.next(batch) && loader.epoch() == 10) early = resident_bytes();
    }
    EXPECT_LT(resident_bytes() - early, 4 << 20);  // 40 epochs write 60 MB
  }
}

TEST(LoaderBatch, RefusesWhatCannotBe) {
  auto set = std::make_shared<MixedSet>(4);
  auto stream = std::make_shared<MixedStream>(4);
  auto sampler = std::make_shared<SequentialSampler>(4);
  auto batches = std::make_shared<FixedBatchSampler>(sampler, 2);
  EXPECT_THROW(DataLoader(set, {.batch_size = 0}), ValueError);
  EXPECT_THROW(DataLoader(set, {.workers = -2}), ValueError);
  EXPECT_THROW(DataLoader(set, {.workers = 1000}), ValueError);
  EXPECT_THROW(DataLoader(set, {.prefetch = 0}), ValueError);
  EXPECT_THROW(DataLoader(set, {.timeout = -1}), ValueError);
  EXPECT_THROW(DataLoader(set, {.shuffle = true, .sampler = sampler}), ValueError);
  EXPECT_THROW(DataLoader(set, {.batch_size = 2, .batch_sampler = batches}), ValueError);
  EXPECT_THROW(DataLoader(stream, {.shuffle = true}), ValueError);
  EXPECT_THROW(DataLoader(stream, {.on_error = OnError::replace}), ValueError);
  EXPECT_THROW(DataLoader(std::shared_ptr<const Dataset>()), ValueError);
  auto fields = [](std::vector<Field> list) {
    DataLoader(std::make_shared<FunctionSet>(1, std::move(list), [](int64_t, SampleWriter&) {}));
  };
  EXPECT_THROW(fields({}), ValueError);
  EXPECT_THROW(fields({{"a", DType::f32, {}}, {"a", DType::f32, {}}}), ValueError);
  EXPECT_THROW(fields({{"a", DType::f32, {-2}}}), ValueError);
  EXPECT_THROW(fields({{"a", DType::u8, {-1}, -1}}), ValueError);
  EXPECT_THROW(fields({{"a", DType::u8, {int64_t{1} << 40}}}), ValueError);
  Shape most;
  while (most.size() < kMaxDims - 1) most.push_back(1);
  EXPECT_NO_THROW(fields({{"a", DType::u8, most}}));
  most.push_back(1);
  try {
    fields({{"a", DType::u8, most}});
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find(fmt::format("has {} dimensions, {} is the most", kMaxDims, kMaxDims - 1)),
              std::string::npos)
        << e.what();
  }
}

TEST(LoaderBatch, StagesAreTimed) {
  auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  auto set =
      std::make_shared<FunctionSet>(4, std::vector<Field>{{"x", DType::f32, {}}}, [&](int64_t, SampleWriter& out) {
        *out.fixed<float>(0) = 1;
        StageScope decode = out.stage(Stage::decode);
        sleep();
        StageScope transform = out.stage(Stage::transform);
        sleep();
      });
  DataLoader loader(set, {.batch_size = 2, .workers = 1, .across_epochs = false, .collate = [&](Batch&) { sleep(); }});
  EXPECT_EQ(rows_of(loader).size(), 2u);
  LoaderStats stats = loader.stats();
  EXPECT_GE(stats[Stage::decode], 0.008);
  EXPECT_GE(stats[Stage::transform], 0.008);
  EXPECT_GE(stats[Stage::collate], 0.004);
  EXPECT_GT(stats[Stage::wait], 0);
  EXPECT_GE(stats.elapsed, stats[Stage::wait]);
  EXPECT_LT(stats[Stage::read], stats[Stage::decode]);
  EXPECT_EQ(stats.batches, 2);
  EXPECT_EQ(stats.samples, 4);
  EXPECT_EQ(stats.bytes, 16);
  EXPECT_EQ(stats.workers, 1);
  EXPECT_STREQ(name_of(Stage::transform), "transform");
}

}  // namespace
}  // namespace deft::data
