#include "bench/small.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bench/cpu_timer.h"
#include "bench/heap_counter.h"
#include "bench/instruction_counter.h"
#include "bench/interrupt.h"
#include "bench/neighbours.h"
#include "bench/statistics.h"
#include "deft/deft.h"
#include "runtime/parallel.h"

namespace deft::bench {

namespace {

using Call = std::function<void()>;
struct Pair {
  Call eager, compiled;
  double weight_bytes = 0;  // that a call reads
};
struct SmallCase {
  std::string name;
  std::function<Pair()> make;
};

// Weights beyond the first cache level bound both sides: one core of a Neoverse-V1 loads 71 GB/s from its second level,
// which holds 1 MB, and 60 from the third, in a loop that does nothing else. Nothing but fewer bytes makes the cells of
// 128 and 256 and the wide network faster than that. The wide network has two forms of 7 MB here, which push each other
// out of the third level in some runs: alone, its plan takes 132 us, and 150 without panels.
double bytes_of(const nn::Module& m) {
  double bytes = 0;
  for (const auto& [name, t] : m.named_parameters())
    bytes += static_cast<double>(t.numel()) * static_cast<double>(t.element_size());
  return bytes;
}

// One input, one result.
template <class F>
Pair pair_of(F f, const Tensor& x) {
  auto fast = std::make_shared<Compiled>(compile(f));
  return {[=] { Tensor y = f(x); }, [=] { Tensor y = (*fast)(x); }, 0};
}

Pair mlp(const std::vector<int64_t>& widths) {
  auto model = std::make_shared<models::Mlp>(widths);
  model->eval();
  Pair pair = pair_of([model](const Tensor& x) { return (*model)(x); }, randn({1, widths[0]}));
  pair.weight_bytes = bytes_of(*model);
  return pair;
}

Pair lstm_cell(int64_t size) {
  auto cell = std::make_shared<nn::LSTMCell>(size, size);
  cell->eval();
  std::vector<Tensor> in{randn({1, size}), randn({1, size}), randn({1, size})};
  Compiled::Function f = [cell](const std::vector<Tensor>& t) {
    nn::LSTMCellResult r = (*cell)(t[0], t[1], t[2]);
    return std::vector<Tensor>{r.hidden, r.cell};
  };
  auto fast = std::make_shared<Compiled>(compile(f));
  return {[=] { nn::LSTMCellResult r = (*cell)(in[0], in[1], in[2]); },
          [=, out = std::vector<Tensor>()]() mutable { fast->run(in, out); }, bytes_of(*cell)};
}

Pair gru_cell(int64_t size) {
  auto cell = std::make_shared<nn::GRUCell>(size, size);
  cell->eval();
  Tensor x = randn({1, size}), h = randn({1, size});
  auto f = [cell](const Tensor& a, const Tensor& b) { return (*cell)(a, b); };
  auto fast = std::make_shared<Compiled>(compile(f));
  return {[=] { Tensor y = f(x, h); }, [=] { Tensor y = (*fast)(x, h); }, bytes_of(*cell)};
}

Pair elementwise(int64_t n) {
  auto f = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 5; ++i) y = ((y * 1.5 + x).relu() - 0.25);
    return y;
  };
  return pair_of(f, randn({n}));
}

std::vector<SmallCase> small_cases() {
  std::vector<SmallCase> cases{
      {"MLP b1 784-1024-1024-10",
       [] {
         return mlp({784, 1024, 1024, 10});
       }},
      {"MLP b1 64-64-64-10",
       [] {
         return mlp({64, 64, 64, 10});
       }},
  };
  for (int64_t size : {64, 128, 256})
    cases.push_back({fmt::format("LSTM cell b1 {}", size), [=] { return lstm_cell(size); }});
  cases.push_back({"GRU cell b1 128", [] { return gru_cell(128); }});
  for (int64_t n : {16, 1024})
    cases.push_back({fmt::format("20 elementwise ops on {}", n), [=] { return elementwise(n); }});
  return cases;
}

double heap_allocations_per_call(const Call& call) {
  constexpr int calls = 100;
  int64_t before = heap_allocations();
  for (int i = 0; i < calls; ++i) call();
  return static_cast<double>(heap_allocations() - before) / calls;
}

// Times of batches that take turns, so that a busy neighbour or a slower clock meets both sides.
class Side {
 public:
  explicit Side(Call call) : call_(std::move(call)) {
    double ns = time_of(20);  // the first calls capture, and pack weights
    calls_ = std::clamp<int64_t>(static_cast<int64_t>(kBatchNs * 20 / ns), 1, 10000);
  }
  void batch() { samples_.push_back(time_of(calls_) / static_cast<double>(calls_)); }
  double ns() const { return percentile(samples_, 50); }
  double allocations() const { return heap_allocations_per_call(call_); }
  std::optional<double> instructions() const {
    if (ns() > kLongestNs) return {};  // half a minute, stepped one by one
    return instructions_per_call([&](int64_t n) {
      for (int64_t i = 0; i < n; ++i) call_();
    });
  }

 private:
  static constexpr double kBatchNs = 5e5, kLongestNs = 2e4;
  double time_of(int64_t calls) const {
    double start = thread_cpu_ns();
    for (int64_t i = 0; i < calls; ++i) call_();
    return thread_cpu_ns() - start;
  }

  Call call_;
  int64_t calls_ = 1;
  std::vector<double> samples_;
};

Json json_of(std::optional<double> x) { return x ? Json(*x) : Json(); }

Json measure(const SmallCase& c, int repeats, std::optional<Neighbours>& neighbours) {
  Pair pair = c.make();
  InferenceModeGuard inference;
  Side eager(std::move(pair.eager)), compiled(std::move(pair.compiled));
  for (int i = 0; i < repeats; ++i) {
    if (neighbours) neighbours->wait_for_quiet();
    eager.batch(), compiled.batch();
  }
  return {{"case", c.name},
          {"eager_ns", rounded(eager.ns(), 1)},
          {"compiled_ns", rounded(compiled.ns(), 1)},
          {"ratio", rounded(eager.ns() / compiled.ns(), 2)},
          {"weights_gb_s", pair.weight_bytes > 0 ? Json(rounded(pair.weight_bytes / compiled.ns(), 1)) : Json()},
          {"eager_instructions", json_of(eager.instructions())},
          {"compiled_instructions", json_of(compiled.instructions())},
          {"eager_heap_allocs", eager.allocations()},
          {"compiled_heap_allocs", compiled.allocations()}};
}

}  // namespace

Report measure_small(const SmallOptions& options) {
  set_num_threads(1);
  Report report;
  report.machine["instruction_counter"] = name_of(instruction_counter());
  std::optional<Neighbours> neighbours;
  if (kKnowsNeighbours) neighbours.emplace(1);
  for (const SmallCase& c : small_cases()) {
    if (!options.only.empty() && c.name != options.only) continue;
    if (interrupted()) {
      report.interrupted = true;
      return report;
    }
    options.progress(c.name);
    report.add(measure(c, options.repeats, neighbours));
  }
  if (neighbours) report.machine["waited_for_neighbours_s"] = rounded(neighbours->waited_s(), 1);
  return report;
}

}  // namespace deft::bench
