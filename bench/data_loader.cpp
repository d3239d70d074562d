#include "bench/data_loader.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "bench/clock.h"
#include "bench/cpu_timer.h"
#include "bench/heap_counter.h"
#include "bench/interrupt.h"
#include "bench/statistics.h"
#include "data/loader.h"
#include "ops/creation.h"

namespace deft::bench {

namespace {

constexpr int64_t kRows = 256;

// 16 bytes and a label: as little as a sample can be.
class TinySamples : public data::Dataset {
 public:
  int64_t size() const override { return kRows * 16384; }
  const std::vector<data::Field>& fields() const override { return fields_; }
  void get(int64_t index, data::SampleWriter& out) const override {
    write(index, out.fixed<float>(0), out.fixed<int64_t>(1));
    if (index % kRows == 0) last_heap.store(heap_allocations(), std::memory_order_relaxed);
  }
  static void write(int64_t index, float* x, int64_t* label) {
    for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(index + i);
    *label = index;
  }
  mutable std::atomic<int64_t> last_heap{0};  // of the thread that makes the samples

 private:
  std::vector<data::Field> fields_{{"x", DType::f32, {4}}, {"label", DType::i64, {}}};
};

// Samples that keep a worker busy for a while.
class BusySamples : public data::Dataset {
 public:
  int64_t size() const override { return 1 << 20; }
  const std::vector<data::Field>& fields() const override { return fields_; }
  void get(int64_t, data::SampleWriter& out) const override {
    uint32_t sum = 0;
    for (int i = 0; i < 8000; ++i) sum += out.rng().bits();
    *out.fixed<float>(0) = static_cast<float>(sum);
  }

 private:
  std::vector<data::Field> fields_{{"x", DType::f32, {}}};
};

// The same samples by a loop, without a loader: what is not overhead.
double plain_us() {
  CpuTimer timer(repeat([] {
    Tensor x = empty({kRows, 4}), label = empty({kRows}, DType::i64);
    float* p = x.data<float>();
    int64_t* q = label.data<int64_t>();
    for (int64_t i = 0; i < kRows; ++i) TinySamples::write(i, p + 4 * i, q + i);
  }));
  timer.batches(20);
  return timer.best_ns() / 1e3;
}

struct Overhead {
  double us = 0;    // per batch: wall time, or CPU time where there are no workers
  double heap = 0;  // allocations per batch: of the consumer, and of the worker
};

constexpr int kSampleBatches = 200;

Overhead measure_overhead(int workers, double seconds) {
  auto set = std::make_shared<TinySamples>();
  data::DataLoader loader(set, {.batch_size = kRows, .workers = workers});
  data::Batch batch;
  auto run = [&](int batches) {
    for (int i = 0; i < batches; ++i)
      if (!loader.next(batch)) loader.next(batch);
  };
  run(kSampleBatches);
  // The window is full once: from here on there is memory for every batch that can be under way.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  run(4 * kSampleBatches);
  int64_t own = heap_allocations(), theirs = set->last_heap;
  double best = 1e300;
  int64_t count = 0;
  auto start = Clock::now();
  // Within one epoch: the next one's order is planned once for all of its batches.
  for (; count + 7 * kSampleBatches < loader.batches() && seconds_since(start) < seconds && !interrupted();
       count += kSampleBatches) {
    auto wall = Clock::now();
    double cpu = thread_cpu_ns();
    run(kSampleBatches);
    double us = workers == 0 ? (thread_cpu_ns() - cpu) / 1e3 : seconds_since(wall) * 1e6;
    best = std::min(best, us / kSampleBatches);
  }
  int64_t heap = heap_allocations() - own;
  if (workers == 1) heap += set->last_heap - theirs;  // counters are by thread
  return {best, static_cast<double>(heap) / static_cast<double>(std::max<int64_t>(count, 1))};
}

struct Waits {
  double batch_ms = 0, waiting = 0;
  int64_t batches = 0;
};

// How long the loader takes for a batch, and how much of its time a consumer waits that takes 5 % longer.
Waits measure_waits(double seconds) {
  data::LoaderOptions options{.batch_size = 32, .workers = 1};
  data::DataLoader loader(std::make_shared<BusySamples>(), options);
  data::Batch batch;
  auto take = [&](double until, double step) {
    int64_t n = 0;
    auto start = Clock::now();
    double due = 0;
    for (; seconds_since(start) < until && !interrupted(); ++n) {
      loader.next(batch);
      due = std::max(due, seconds_since(start)) + step;  // work that begins when the batch is there
      if (step > 0) std::this_thread::sleep_until(start + std::chrono::duration<double>(due));
    }
    return n;
  };
  take(seconds / 10, 0);
  Waits w;
  w.batch_ms = seconds / 2 / static_cast<double>(std::max<int64_t>(take(seconds / 2, 0), 1)) * 1e3;
  take(seconds / 10, w.batch_ms * 1.05e-3);
  double waited = loader.stats()[data::Stage::wait], elapsed = loader.stats().elapsed;
  w.batches = take(seconds, w.batch_ms * 1.05e-3);
  data::LoaderStats after = loader.stats();
  w.waiting = (after[data::Stage::wait] - waited) / (after.elapsed - elapsed);
  return w;
}

}  // namespace

Report measure_data_loader(const DataLoaderOptions& o) {
  Report report;
  double plain = plain_us(), most_heap = 0;
  for (int workers : {0, 1, 2}) {
    o.progress(fmt::format("overhead, {} workers", workers));
    Overhead cost = measure_overhead(workers, o.seconds);
    most_heap = std::max(most_heap, cost.heap);
    report.add({{"case", "256 tiny samples"},
                {"workers", workers},
                {"batch_us", rounded(cost.us, 2)},
                {"plain_us", rounded(plain, 2)},
                {"overhead_us", rounded(cost.us - plain, 2)},
                {"heap_allocations", cost.heap}});
    if (workers > 0) continue;
    report.bars.push_back({{"bar", "loader overhead per batch of 256 tiny samples"},
                           {"unit", "us, at most"},
                           {"must", 30},
                           {"aim", 10},
                           {"value", rounded(cost.us - plain, 2)}});
  }
  report.bars.push_back(
      {{"bar", "heap allocations per batch"}, {"unit", "at most"}, {"must", 0}, {"value", most_heap}});
  o.progress("a consumer 5 % slower than the loader");
  Waits waits = measure_waits(2 * o.seconds);
  report.add({{"case", "consumer 5 % slower"},
              {"workers", 1},
              {"batch_us", rounded(waits.batch_ms * 1e3, 2)},
              {"waiting_percent", rounded(100 * waits.waiting, 3)}});
  report.bars.push_back({{"bar", "waits of a consumer 5 % slower than the loader"},
                         {"unit", "% of its time, at most"},
                         {"must", 1},
                         {"value", rounded(100 * waits.waiting, 3)}});
  report.interrupted = interrupted();
  return report;
}

}  // namespace deft::bench
