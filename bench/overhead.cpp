#include "bench/overhead.h"

#include <fmt/format.h>

#include <optional>

#include "bench/heap_counter.h"
#include "bench/instruction_counter.h"
#include "bench/interrupt.h"
#include "bench/peer.h"
#include "bench/statistics.h"
#include "deft/deft.h"
#include "runtime/stream.h"

namespace deft::bench {

namespace {

Tensor input(IntList sizes, bool grad = false) { return full(sizes, 0.5, {DType::f32, kCPU, grad}); }

double heap_allocations_per_op(const Loop& loop) {
  constexpr int64_t iterations = 100;
  int64_t before = heap_allocations();
  loop(iterations);
  return static_cast<double>(heap_allocations() - before) / iterations;
}

struct Timing {
  double ours = 0;
  std::optional<double> peer;
};
// Both sides take turns, so that a busy neighbour or a slower clock meets both.
Timing time_in_turns(CpuTimer& timer, Peer* peer, const std::string& name, const char* mode, int repeats) {
  constexpr int turns = 5;
  Timing timing;
  for (int turn = 0; turn < turns; ++turn) {
    int batches = repeats * (turn + 1) / turns - repeats * turn / turns;
    if (batches == 0) continue;
    timer.batches(batches);
    if (peer) timing.peer = peer->ns_per_op(name, mode, batches);
  }
  timing.ours = timer.best_ns();
  return timing;
}

Json measure(const OverheadCase& c, Mode mode, Peer* peer, int repeats) {
  ModeScope scope(mode);
  CpuTimer timer(c.make(mode));
  Timing timing = time_in_turns(timer, peer, c.name, name_of(mode), repeats);
  std::optional<double> instructions = instructions_per_call(timer.loop());
  return {
      {"case", c.name},
      {"mode", name_of(mode)},
      {"instructions_per_op", instructions ? Json(*instructions) : Json()},
      {"ns_per_op", rounded(timing.ours, 1)},
      {"heap_allocs_per_op", heap_allocations_per_op(timer.loop())},
      {"peer", timing.peer ? Json(peer->name()) : Json()},
      {"peer_ns_per_op", timing.peer ? Json(rounded(*timing.peer, 1)) : Json()},
      {"peer_ratio", timing.peer ? Json(rounded(*timing.peer / timing.ours, 2)) : Json()},
  };
}

}  // namespace

std::vector<OverheadCase> overhead_cases() {
  const std::vector<Mode> all(std::begin(kAllModes), std::end(kAllModes));
  auto grad = [](Mode mode) { return mode == Mode::grad; };
  return {
      {"empty", all, [](Mode) { return repeat([] { Tensor y = empty({8}); }); }},
      {"view", all, [=](Mode m) { return repeat([x = input({8}, grad(m))] {
                                    Tensor y = x.view({2, 4});
                                  }); }},
      {"add", all,
       [=](Mode m) { return repeat([a = input({8}, grad(m)), b = input({8}, grad(m))] { Tensor y = a + b; }); }},
      // Never with a history: it would grow by one node per call.
      {"add_", all, [](Mode) { return repeat([a = input({8}), b = input({8})]() mutable { a.add_(b); }); }},
      {"mul+sum+backward",
       {Mode::grad},
       [](Mode) {
         return repeat([a = input({8}, true), b = input({8}, true)] {
           (a * b).sum().backward();
           a.zero_grad();
           b.zero_grad();
         });
       }},
      {"linear 1x64x64", all,
       [=](Mode m) {
         return repeat([x = input({1, 64}), w = input({64, 64}, grad(m)), b = input({64}, grad(m))] {
           Tensor y = linear(x, w, b);
         });
       }},
      {"softmax 4x64", all,
       [=](Mode m) {
         return repeat([x = input({4, 64}, grad(m))] { Tensor y = x.softmax(-1); });
       }},
  };
}

namespace {

struct DeviceCase {
  std::string name;
  std::vector<Mode> modes;
  std::function<std::function<void()>(Mode)> make;
};

std::vector<DeviceCase> device_cases(Device device) {
  const std::vector<Mode> all(std::begin(kAllModes), std::end(kAllModes));
  auto input_on = [=](IntList sizes, Mode m) { return full(sizes, 0.5, {f32, device, m == Mode::grad}); };
  return {
      {"launch", {Mode::inference}, [=](Mode) { return [=] { backend(device.type)->launch_nothing(device, 0); }; }},
      {"empty", all, [=](Mode) { return [=] {
                                   Tensor y = empty({8}, {f32, device});
                                 }; }},
      {"view", all, [=](Mode m) { return [x = input_on({8}, m)] {
                                    Tensor y = x.view({2, 4});
                                  }; }},
      {"add", all, [=](Mode m) { return [a = input_on({8}, m), b = input_on({8}, m)] { Tensor y = a + b; }; }},
      {"add_",
       {Mode::no_grad, Mode::inference},
       [=](Mode) {
         return [a = full({8}, 0.5, {f32, device}), b = full({8}, 0.5, {f32, device})]() mutable { a.add_(b); };
       }},
      {"exp", all, [=](Mode m) { return [x = input_on({8}, m)] { Tensor y = x.exp(); }; }},
      {"mul number", all, [=](Mode m) { return [x = input_on({8}, m)] { Tensor y = x * 1.5; }; }},
      {"sum", all, [=](Mode m) { return [x = input_on({8}, m)] { Tensor y = x.sum(); }; }},
      {"softmax 4x64", all,
       [=](Mode m) {
         return [x = input_on({4, 64}, m)] { Tensor y = x.softmax(-1); };
       }},
      {"linear 1x64x64", all,
       [=](Mode m) {
         return [x = full({1, 64}, 0.5, {f32, device}), w = input_on({64, 64}, m), b = input_on({64}, m)] {
           Tensor y = linear(x, w, b);
         };
       }},
      {"mul+sum+backward",
       {Mode::grad},
       [=](Mode m) {
         return [a = input_on({8}, m), b = input_on({8}, m)] {
           (a * b).sum().backward();
           a.zero_grad();
           b.zero_grad();
         };
       }},
  };
}

// Host time per call while the device works on its own: the queue is emptied, untimed, before it can fill up.
double host_ns(const std::function<void()>& call, Device device, int repeats) {
  constexpr int kCalls = 100;
  std::vector<double> samples;
  for (int r = 0; r < repeats * 10 + 5; ++r) {
    double start = thread_cpu_ns();
    for (int i = 0; i < kCalls; ++i) call();
    double spent = thread_cpu_ns() - start;
    synchronize(device);
    if (r >= 5) samples.push_back(spent / kCalls);  // the first ones warm up
  }
  return percentile(samples, 50);
}

Report measure_device_overhead(const OverheadOptions& options) {
  Report report;
  double launch_ns = 0;
  for (const DeviceCase& c : device_cases(options.device)) {
    if (!options.only.empty() && c.name != options.only && c.name != "launch") continue;
    for (Mode mode : c.modes) {
      if (interrupted()) {
        report.interrupted = true;
        return report;
      }
      options.progress(fmt::format("{} {}", c.name, name_of(mode)));
      ModeScope scope(mode);
      std::function<void()> call = c.make(mode);
      double ns = host_ns(call, options.device, options.repeats);
      if (c.name == "launch") launch_ns = ns;
      double heap = heap_allocations_per_op([&](int64_t n) {
        for (int64_t i = 0; i < n; ++i) call();
      });
      synchronize(options.device);
      report.add({{"case", c.name},
                  {"mode", name_of(mode)},
                  {"ns_per_op", rounded(ns, 1)},
                  {"ns_above_launch", rounded(ns - launch_ns, 1)},
                  {"heap_allocs_per_op", heap}});
    }
  }
  return report;
}

}  // namespace

Report measure_overhead(const OverheadOptions& options) {
  if (!options.device.is_cpu()) return measure_device_overhead(options);
  set_num_threads(1);
  Report report;
  report.machine["instruction_counter"] = name_of(instruction_counter());
  std::unique_ptr<Peer> peer = Peer::start(options.peer);
  for (const OverheadCase& c : overhead_cases()) {
    if (!options.only.empty() && c.name != options.only) continue;
    for (Mode mode : c.modes) {
      if (interrupted()) {
        report.interrupted = true;
        return report;
      }
      options.progress(fmt::format("{} {}", c.name, name_of(mode)));
      report.add(measure(c, mode, peer.get(), options.repeats));
    }
  }
  return report;
}

}  // namespace deft::bench
