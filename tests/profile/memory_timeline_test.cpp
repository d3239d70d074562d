#include "profile/memory_timeline.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "core/graph_stats.h"
#include "data/loader.h"
#include "data/tensor_dataset.h"
#include "deft/deft.h"
#include "profile/memory_ledger.h"
#include "runtime/memory_watch.h"

namespace deft::profile {
namespace {

using enum MemoryCategory;

int64_t of(const std::array<int64_t, kMemoryCategoryCount>& all, MemoryCategory c) {
  return all[static_cast<size_t>(c)];
}
std::string here(int line) { return "memory_timeline_test.cpp:" + std::to_string(line); }

const MemoryHolder* find(const MemoryTimeline& t, const std::string& op, const std::string& site, MemoryCategory c) {
  for (const MemoryHolder& h : t.holders)
    if (h.op == op && h.site == site && h.category == c) return &h;
  return nullptr;
}
int64_t sum_of_holders(const MemoryTimeline& t) {
  int64_t sum = 0;
  for (const MemoryHolder& h : t.holders) sum += h.bytes;
  return sum;
}

// 32 rows through 100 -> 50 -> relu -> 10, mean squared, Adam.
TEST(MemoryTimeline, TrainingStepToTheByte) {
  constexpr int64_t kRows = 32, kIn = 100, kHidden = 50, kOut = 10, kF32 = 4;
  constexpr int64_t kParams = (kIn * kHidden + kHidden + kHidden * kOut + kOut) * kF32;
  const Tensor x = full({kRows, kIn}, 0.01);
  const MemoryUse before = memory_live();
  const int64_t saved_before = graph_stats().saved_bytes;
  MemoryRecorder recorder;
  nn::Sequential net;
  net.add<nn::Linear>(kIn, kHidden);
  net.add<nn::ReLU>();
  net.add<nn::Linear>(kHidden, kOut);
  optim::Adam adam(net.parameters(), {.lr = 0.01});
  // Kept: x for the first weight, what relu gives for relu and the second weight, y for the square.
  constexpr int64_t kSaved = (kRows * kIn + kRows * kHidden + kRows * kOut) * kF32;
  {
    Tensor y = net(x);
    Tensor loss = (y * y).mean();
    EXPECT_EQ(graph_stats().saved_bytes - saved_before, kSaved);
    loss.backward();
  }
  adam.step();
  const MemoryUse after = memory_live();
  EXPECT_EQ(after[parameter] - before[parameter], kParams);
  EXPECT_EQ(after[gradient] - before[gradient], kParams);
  EXPECT_EQ(after[optimizer] - before[optimizer], 2 * kParams);
  EXPECT_EQ(after[saved] - before[saved], 0);

  const MemoryReport r = recorder.report();
  EXPECT_EQ(of(r.category_peaks, parameter) - before[parameter], kParams);
  EXPECT_EQ(of(r.category_peaks, gradient) - before[gradient], kParams);
  EXPECT_EQ(of(r.category_peaks, optimizer) - before[optimizer], 2 * kParams);
  EXPECT_EQ(of(r.category_peaks, saved) - before[saved], kSaved);
  EXPECT_EQ(r.peak_saved_bytes - saved_before, kSaved);
  EXPECT_FALSE(r.device);
  EXPECT_EQ(r.host.start.total, before.total);
  EXPECT_EQ(sum_of_holders(r.host), r.host.peak.use.total);
  EXPECT_EQ(r.host.points.back().use.total, after.total);
  EXPECT_EQ(r.host.points.back().use.by_category, after.by_category);
}

TEST(MemoryTimeline, HoldersOfThePeakAreNamedByOpAndLine) {
  constexpr int64_t kBytes = 1000 * 4;
  const Tensor w = full({1000}, 2, {DType::f32, kCPU, true}), z = full({1000}, 3);
  MemoryRecorder recorder;
  int kept_line, freed_line, late_line, created_line;
  Tensor kept, created;
  {
    kept = exp(w), kept_line = __LINE__;
    Tensor freed;
    for (int i = 0; i < 3; ++i) freed = freed.defined() ? cat({freed, z}) : z.clone(), freed_line = __LINE__;
    created = zeros({500}), created_line = __LINE__;
  }
  Tensor late = z + z;
  late_line = __LINE__ - 1;
  const MemoryReport r = recorder.report();
  // At the highest moment the third cat has its result of three parts beside the one of two.
  const MemoryHolder* cats = find(r.host, "cat", here(freed_line), other);
  ASSERT_TRUE(cats);
  EXPECT_EQ(cats->bytes, 5 * kBytes);
  EXPECT_EQ(cats->count, 2);
  const MemoryHolder* held = find(r.host, "exp", here(kept_line), saved);
  ASSERT_TRUE(held);
  EXPECT_EQ(held->bytes, kBytes);
  EXPECT_EQ(held->count, 1);
  EXPECT_FALSE(held->backward);
  EXPECT_FALSE(find(r.host, "created", here(created_line), other));  // made later
  EXPECT_FALSE(find(r.host, "add", here(late_line), other));
  EXPECT_EQ(sum_of_holders(r.host), r.host.peak.use.total);
  for (size_t i = 1; i < r.host.holders.size(); ++i) EXPECT_GE(r.host.holders[i - 1].bytes, r.host.holders[i].bytes);
  const MemoryHolder* old = find(r.host, "", "", parameter);  // w, and what other tests left
  ASSERT_TRUE(old);
  EXPECT_GE(old->bytes, kBytes);
  EXPECT_FALSE(old->count);
}

TEST(MemoryTimeline, GradientsAreHeldByTheirForwardLine) {
  const Tensor w = full({100000}, 2, {DType::f32, kCPU, true});
  MemoryRecorder recorder;
  Tensor loss = exp(w).sum();
  const int line = __LINE__ - 1;
  loss.backward();
  loss = Tensor();
  Tensor more = full({300000}, 1);  // the highest moment, with the gradient alive
  const int created_line = __LINE__ - 1;
  const MemoryReport r = recorder.report();
  const MemoryHolder* created = find(r.host, "created", here(created_line), other);
  ASSERT_TRUE(created);
  EXPECT_EQ(created->bytes, 1200000);
  int64_t bytes = 0;
  for (const MemoryHolder& h : r.host.holders) {
    if (h.category != gradient || h.site != here(line)) continue;
    EXPECT_TRUE(h.backward) << h.op;
    bytes += h.bytes;
  }
  EXPECT_EQ(bytes, 400000);
}

// Bytes made before the recording end while it runs: no event tells of it, and the next one must not be mistaken.
TEST(MemoryTimeline, OldBytesMayGo) {
  Tensor old = full({10000}, 1), small = full({10}, 1);
  MemoryRecorder recorder;
  Tensor first = small.clone();
  old = Tensor();
  Tensor second = small.clone();
  const int line = __LINE__ - 1;
  const MemoryReport r = recorder.report();
  EXPECT_EQ(r.host.peak.use.total, r.host.start.total + 40);
  EXPECT_EQ(sum_of_holders(r.host), r.host.peak.use.total);
  EXPECT_FALSE(find(r.host, "clone", here(line), other));
  EXPECT_EQ(r.host.points.back().use.total, r.host.start.total - 40000 + 80);
}

TEST(MemoryTimeline, ThreeNestedRegions) {
  const int64_t start = memory_live().total;
  MemoryRecorder recorder;
  for (int run = 1; run <= 2; ++run) {
    MemoryRegion outer("epoch");
    Tensor a = empty({1000});
    {
      MemoryRegion middle("step");
      Tensor b = empty({2000 * run});
      {
        MemoryRegion inner("forward");
        empty({4000});
      }
      {
        MemoryRegion inner("forward");
        empty({3000 * run});
      }
      Tensor c = empty({100});
    }
    empty({50});
  }
  const MemoryReport r = recorder.report();
  ASSERT_EQ(r.regions.size(), 3u);
  EXPECT_EQ(r.regions[0].path, "epoch/step/forward");
  EXPECT_EQ(r.regions[1].path, "epoch/step");
  EXPECT_EQ(r.regions[2].path, "epoch");
  const int64_t bytes[] = {6000 * 4, (4000 + 6000) * 4, (1000 + 4000 + 6000) * 4};
  const int64_t runs[] = {4, 2, 2};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(r.regions[i].growth_bytes, bytes[i]) << i;
    EXPECT_EQ(r.regions[i].runs, runs[i]) << i;
    EXPECT_EQ(r.regions[i].peak_bytes, start + bytes[2]) << i;
    EXPECT_EQ(of(r.regions[i].category_peaks, other), r.regions[i].peak_bytes - (start - memory_live()[other])) << i;
  }
}

TEST(MemoryTimeline, BatchesOfALoaderAreData) {
  auto rows = std::make_shared<data::TensorDataset>(NamedTensors{{"x", full({64, 25}, 1)}});
  const int64_t before = memory_live()[data];
  MemoryRecorder recorder;
  {
    data::DataLoader loader(rows, {.batch_size = 16, .workers = 0});
    for (data::Batch& batch : loader) EXPECT_EQ(batch[0].memory_category(), MemoryCategory::data);
    EXPECT_GE(of(recorder.report().category_peaks, data) - before, 16 * (25 * 4 + 8));
  }
  EXPECT_EQ(memory_live()[data], before);
}

// Threads make them, which are at no line of the program: that of the loader is it.
TEST(MemoryTimeline, BatchesOfWorkersBelongToTheLineOfTheirLoader) {
  auto rows = std::make_shared<data::TensorDataset>(NamedTensors{{"x", zeros({64, 250})}});
  for (int workers : {0, 2}) {
    MemoryRecorder recorder;
    data::LoaderOptions options{.batch_size = 16, .workers = workers};
    const int line = __LINE__ + 1;
    data::DataLoader loader(rows, options);
    EXPECT_EQ(loader.made_at().line(), static_cast<uint32_t>(line));
    for (data::Batch& batch : loader) EXPECT_EQ(batch.rows(), 16);
    const MemoryTimeline seen = recorder.report().host;
    int64_t held = 0;
    for (const MemoryHolder& h : seen.holders) {
      if (h.category != MemoryCategory::data) continue;
      EXPECT_NE(h.site, "") << h.op;
      held += h.bytes;
    }
    EXPECT_GE(held, 16 * 250 * 4);
    if (workers > 0) {
      const MemoryHolder* batches = find(seen, "data loader", here(line), MemoryCategory::data);
      ASSERT_NE(batches, nullptr);
      EXPECT_GE(batches->bytes, 16 * 250 * 4);
    }
  }
}

TEST(MemoryTimeline, OtherThreadsAreSeen) {
  MemoryRecorder recorder;
  Tensor big;
  std::thread([&] { big = empty({100000}); }).join();
  const int line = __LINE__ - 1;
  const MemoryReport r = recorder.report();
  const MemoryHolder* h = find(r.host, "created", here(line), other);
  ASSERT_TRUE(h);
  EXPECT_EQ(h->bytes, 400000);
}

// What core/tensor_impl.cpp tells of storages on a device.
TEST(MemoryTimeline, DevicesAreApart) {
  const MemoryUse before = memory_live();
  MemoryRecorder recorder;
  const Tensor on_host = empty({10});
  const int owners[2] = {};
  for (int i = 0; i < 2; ++i) {
    memory_acquired(1000, other);
    device_memory_changed(1000, other);
    EXPECT_TRUE(detail::notify_made({&owners[i], 1000, other, kCUDA}));
  }
  memory_moved(1000, other, gradient);
  device_memory_changed(-1000, other);
  device_memory_changed(1000, gradient);
  detail::notify_moved(&owners[0], gradient);
  for (int i = 0; i < 2; ++i) {
    memory_released(1000, i ? other : gradient);
    device_memory_changed(-1000, i ? other : gradient);
    detail::notify_gone(&owners[i]);
  }
  const MemoryReport r = recorder.report();
  EXPECT_EQ(r.host.peak.use.total, before.total + 40);
  ASSERT_TRUE(r.device);
  EXPECT_EQ(r.device->start.total, 0);
  EXPECT_EQ(r.device->peak.use.total, 2000);
  EXPECT_EQ(r.device->peak.use[gradient], 1000);
  EXPECT_EQ(r.device->points.back().use.total, 0);
  ASSERT_EQ(r.device->holders.size(), 2u);
  for (const MemoryHolder& h : r.device->holders) EXPECT_EQ(h.bytes, 1000);
  EXPECT_EQ(of(r.category_peaks, gradient), before[gradient] + 1000);
}

TEST(MemoryTimeline, ManyThreadsAtOnce) {
  constexpr int kThreads = 4, kRounds = 500;
  const MemoryUse before = memory_live();
  MemoryRecorder recorder;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      Tensor last;
      for (int i = 0; i < kRounds; ++i) {
        MemoryRegion region("round");
        Tensor x = empty({100 * (t + 1)});
        x.set_memory_category(workspace);
        last = x;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const MemoryReport r = recorder.report();
  EXPECT_EQ(r.storages, kThreads * kRounds);
  EXPECT_EQ(r.host.points.back().use.by_category, before.by_category);
  EXPECT_GE(r.host.peak.use.total, before.total + 2 * 400 * 4);                      // of one thread
  EXPECT_LE(r.host.peak.use.total, before.total + 2 * 4 * (100 + 200 + 300 + 400));  // of all
  // The others may have counted what they make or free, and not told of it yet.
  EXPECT_NEAR(double(sum_of_holders(r.host)), double(r.host.peak.use.total), (kThreads - 1) * 1600);
  ASSERT_EQ(r.regions.size(), 1u);
  EXPECT_EQ(r.regions[0].runs, kThreads * kRounds);
}

TEST(MemoryTimeline, NothingIsRecordedWithoutARecorder) {
  EXPECT_FALSE(detail::allocations_matter());
  Tensor a = empty({10});
  EXPECT_FALSE(a.impl()->storage->watched());
  MemoryRegion region("nobody looks");
  int64_t storages;
  {
    MemoryRecorder recorder;
    EXPECT_THROW(MemoryRecorder second, ValueError);
    Tensor b = a + a;
    EXPECT_TRUE(b.impl()->storage->watched());
    a = b;
    storages = recorder.report().storages;
  }
  EXPECT_EQ(storages, 1);
  EXPECT_FALSE(detail::allocations_matter());
  EXPECT_FALSE(context().bits & kProfile);
  {
    MemoryRecorder again;  // knows nothing of `a`, which is flagged still
    a = Tensor();
    EXPECT_EQ(again.report().storages, 0);
    EXPECT_TRUE(again.report().regions.empty());
  }
  Tensor c = empty({10});
  EXPECT_FALSE(c.impl()->storage->watched());
}

TEST(MemoryTimeline, FuseAndRecorderDoNotDisturbEachOther) {
  Tensor a = empty({10});
  fail_allocation_after(1);
  {
    MemoryRecorder recorder;
    Tensor first = empty({10});
    EXPECT_THROW(empty({10}), OutOfMemoryError);
    Tensor second = empty({10});
    EXPECT_TRUE(second.impl()->storage->watched());
    fail_allocation_after(5);
    fail_allocation_after(-1);
    EXPECT_EQ(recorder.report().storages, 2);
    Tensor third = empty({10});
    EXPECT_EQ(recorder.report().storages, 3);
    fail_allocation_after(0);
  }
  EXPECT_THROW(empty({10}), OutOfMemoryError);
  EXPECT_FALSE(detail::allocations_matter());
}

MemoryPoint point(double seconds, int64_t total) { return {seconds, {total, {}}}; }

TEST(MemoryTimeline, CourseIsBoundedAndKeepsPeaks) {
  constexpr int kMost = 16, kCount = 100000;
  for (int peak : {0, 1, 7, 4999, 77777, kCount - 1}) {
    BoundedCourse course(kMost);
    for (int i = 0; i < kCount; ++i) course.add(point(i * 1e-5, i == peak ? 1000000 : i % 100));
    const std::vector<MemoryPoint> points = course.points();
    EXPECT_LE(points.size(), static_cast<size_t>(kMost));
    EXPECT_GE(points.size(), static_cast<size_t>(kMost / 4));
    int seen = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      EXPECT_TRUE(i == 0 || points[i].seconds > points[i - 1].seconds);
      if (points[i].use.total != 1000000) continue;
      ++seen;
      EXPECT_DOUBLE_EQ(points[i].seconds, peak * 1e-5);
    }
    EXPECT_EQ(seen, 1) << peak;
    EXPECT_DOUBLE_EQ(points.back().seconds, (kCount - 1) * 1e-5);
  }
}

}  // namespace
}  // namespace deft::profile
