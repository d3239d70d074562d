#include "bench/ops.h"

#include <fmt/format.h>
#include <time.h>

#include <cmath>
#include <map>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "bench/interrupt.h"
#include "bench/peer.h"
#include "bench/resnet50.h"
#include "bench/statistics.h"
#include "deft/deft.h"

namespace deft::bench {

namespace {

constexpr double kRoundMs = 4;                 // work of one timed round
constexpr int64_t kRotateBytes = 200'000'000;  // inputs take turns until this much was read: more than any cache

// A case made ready to run: call(i) runs it once on input set i % sets.
struct Work {
  std::function<void(int64_t)> call;
  double bytes = 0;  // that must move: every input read once, every output written once
  double flops = 0;
};

// The words of a case: name, element type, sizes of its operands.
struct Words {
  std::string op;
  DType dtype;
  std::vector<std::vector<int64_t>> sizes;
};
Words words_of(const std::string& name) {
  static const std::map<std::string, DType> types = {{"f32", f32}, {"bf16", bf16}, {"f16", f16}, {"f64", f64}};
  std::istringstream in(name);
  Words w;
  std::string word;
  in >> w.op >> word;
  w.dtype = types.at(word);
  while (in >> word) {
    if (word.find_first_not_of("0123456789x") != word.npos) continue;  // "w", "s", "p": for the reader
    std::vector<int64_t> list;
    std::istringstream parts(word);
    for (std::string part; std::getline(parts, part, 'x');) list.push_back(std::stoll(part));
    w.sizes.push_back(list);
  }
  return w;
}

Tensor random_input(const std::vector<int64_t>& sizes, DType dtype, Device device) {
  return randn(Shape(IntList(sizes)), {f32, device}).to(dtype);
}

int64_t count(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

Work unary_work(const Words& w, Device device, double outputs, const std::function<void(const Tensor&)>& f) {
  auto bytes = static_cast<double>(count(w.sizes[0])) * static_cast<double>(size_of(w.dtype));
  auto sets = static_cast<size_t>(std::max(1.0, std::ceil(kRotateBytes / bytes)));
  std::vector<Tensor> x;
  for (size_t i = 0; i < sets; ++i) x.push_back(random_input(w.sizes[0], w.dtype, device));
  return {[=](int64_t i) { f(x[static_cast<size_t>(i) % sets]); }, bytes * (1 + outputs), 0};
}

Work binary_work(const Words& w, Device device, const std::function<void(const Tensor&, const Tensor&)>& f,
                 double outputs = 1) {
  Tensor b = random_input(w.sizes.size() > 1 ? w.sizes[1] : w.sizes[0], w.dtype, device);
  Work work = unary_work(w, device, outputs, [=](const Tensor& a) { f(a, b); });
  work.bytes += static_cast<double>(b.numel()) * static_cast<double>(size_of(w.dtype));
  return work;
}

Work matmul_work(const Words& w, Device device) {
  int64_t m = w.sizes[0][0], n = w.sizes[0][1], k = w.sizes[0][2];
  Tensor a = random_input({m, k}, w.dtype, device), b = random_input({k, n}, w.dtype, device);
  return {[=](int64_t) { Tensor y = a.matmul(b); }, 0, 2.0 * static_cast<double>(m * n) * static_cast<double>(k)};
}

Work conv_work(const Words& w, Device device) {
  const auto &x = w.sizes[0], &k = w.sizes[1];
  int64_t stride = w.sizes[2][0], padding = w.sizes[3][0];
  auto channels_last = [&](const std::vector<int64_t>& sizes) {
    return random_input(sizes, w.dtype, device).contiguous(MemoryFormat::channels_last);
  };
  Tensor weight = channels_last({k[0], x[1], k[1], k[2]});
  auto bytes = static_cast<double>(count(x)) * static_cast<double>(size_of(w.dtype));
  auto sets = static_cast<size_t>(std::max(1.0, std::ceil(kRotateBytes / bytes)));
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < sets; ++i) inputs.push_back(channels_last(x));
  int64_t h = (x[2] + 2 * padding - k[1]) / stride + 1, v = (x[3] + 2 * padding - k[2]) / stride + 1;
  double flops = 2.0 * static_cast<double>(x[0] * k[0] * h * v) * static_cast<double>(x[1] * k[1] * k[2]);
  return {[=](int64_t i) { Tensor y = conv2d(inputs[static_cast<size_t>(i) % sets], weight, {}, {stride}, {padding}); },
          0, flops};
}

// Ops that models use less often. Empty: none of them.
Work other_work(const Words& w, Device device) {
  auto unary = [&](double outputs, auto f) {
    return unary_work(w, device, outputs, [f](const Tensor& x) { Tensor y = f(x); });
  };
  auto binary = [&](double outputs, auto f) {
    return binary_work(
        w, device, [f](const Tensor& a, const Tensor& b) { Tensor y = f(a, b); }, outputs);
  };
  if (w.op == "atan2") return binary(1, [](const Tensor& a, const Tensor& b) { return atan2(a, b); });
  if (w.op == "mse_loss") return binary(0, [](const Tensor& a, const Tensor& b) { return mse_loss(a, b); });
  if (w.op == "smooth_l1_loss") return binary(0, [](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b); });
  if (w.op == "logsumexp_columns") return unary(0, [](const Tensor& x) { return x.logsumexp({0}); });
  if (w.op == "cumsum_rows") return unary(1, [](const Tensor& x) { return x.cumsum(1); });
  if (w.op == "topk_10") return unary(0, [](const Tensor& x) { return topk(x, 10)[0]; });
  if (w.op == "group_norm_8") return unary(1, [](const Tensor& x) { return group_norm(x, 8); });
  if (w.op == "bilinear_x2") {
    return unary(4, [](const Tensor& x) {
      return interpolate(x, {2 * x.sizes()[2], 2 * x.sizes()[3]}, InterpolateMode::linear);
    });
  }
  return {};
}

Work make_work(const std::string& name, Device device) {
  Words w = words_of(name);
  auto unary = [&](auto f) { return unary_work(w, device, 1, [f](const Tensor& x) { Tensor y = f(x); }); };
  if (w.op == "copy") return unary([](const Tensor& x) { return x.clone(); });
  if (w.op == "transpose") return unary([](const Tensor& x) { return x.t().contiguous(); });
  if (w.op == "cast") {
    Work work = unary([](const Tensor& x) { return x.to(x.dtype() == bf16 ? f32 : bf16); });
    work.bytes *= w.dtype == bf16 ? 1.5 : 0.75;
    return work;
  }
  if (w.op == "add") return binary_work(w, device, [](const Tensor& a, const Tensor& b) { Tensor y = a + b; });
  if (w.op == "mul_number") return unary([](const Tensor& x) { return x * 1.5; });
  if (w.op == "relu") return unary([](const Tensor& x) { return x.relu(); });
  if (w.op == "gelu") return unary([](const Tensor& x) { return gelu(x); });
  if (w.op == "exp") return unary([](const Tensor& x) { return x.exp(); });
  if (w.op == "softmax") return unary([](const Tensor& x) { return x.softmax(-1); });
  if (w.op == "layer_norm" || w.op == "rms_norm") {
    int64_t n = w.sizes[0].back();
    Tensor weight = random_input({n}, w.dtype, device), bias = random_input({n}, w.dtype, device);
    if (w.op == "rms_norm") return unary([=](const Tensor& x) { return rms_norm(x, {n}, weight); });
    return unary([=](const Tensor& x) { return layer_norm(x, {n}, weight, bias); });
  }
  if (w.op == "sum_all") return unary_work(w, device, 0, [](const Tensor& x) { Tensor y = x.sum(); });
  if (w.op == "sum_rows") return unary_work(w, device, 0, [](const Tensor& x) { Tensor y = x.sum({-1}); });
  if (w.op == "sum_columns") return unary_work(w, device, 0, [](const Tensor& x) { Tensor y = x.sum({0}); });
  if (w.op == "matmul") return matmul_work(w, device);
  if (w.op == "conv") return conv_work(w, device);
  return other_work(w, device);
}

// Milliseconds per call, on the device's own clock where it has one.
class Rounds {
 public:
  Rounds(Work work, Device device) : work_(std::move(work)), device_(device) {
    for (int i = 0; i < 3; ++i) work_.call(next_++);
    double ms = std::max(round(1), 1e-4);
    calls_ = std::max<int64_t>(1, static_cast<int64_t>(kRoundMs / ms));
    round(calls_);
  }
  void run(int rounds) {
    for (int i = 0; i < rounds; ++i) samples_.push_back(round(calls_));
  }
  double median_ms() const { return percentile(samples_, 50); }
  const Work& work() const { return work_; }

 private:
  double round(int64_t calls) {
    if (device_.is_cpu()) {
      timespec a, b;
      clock_gettime(CLOCK_MONOTONIC, &a);
      for (int64_t i = 0; i < calls; ++i) work_.call(next_++);
      clock_gettime(CLOCK_MONOTONIC, &b);
      return (static_cast<double>(b.tv_sec - a.tv_sec) * 1e3 + static_cast<double>(b.tv_nsec - a.tv_nsec) * 1e-6) /
             static_cast<double>(calls);
    }
    Event begin(device_, true), end(device_, true);
    Stream stream = current_stream(device_);
    begin.record(stream);
    for (int64_t i = 0; i < calls; ++i) work_.call(next_++);
    end.record(stream);
    end.synchronize();
    return begin.elapsed_ms(end) / static_cast<double>(calls);
  }
  Work work_;
  Device device_;
  int64_t calls_ = 1, next_ = 0;
  std::vector<double> samples_;
};

Json measure(const OpCase& c, const OpsOptions& options, Peer* peer, double& copy_gb_per_s) {
  NoGradGuard guard;
  Rounds ours(make_work(c.name, options.device), options.device);
  std::optional<double> peer_ns;
  constexpr int kDeviceTurns = 5;
  for (int turn = 0; turn < kDeviceTurns; ++turn) {
    int rounds = options.repeats * (turn + 1) / kDeviceTurns - options.repeats * turn / kDeviceTurns;
    if (rounds == 0) continue;
    ours.run(rounds);
    if (peer) peer_ns = peer->ns_per_op(c.name, to_string(options.device), rounds);
  }
  double ms = ours.median_ms();
  double gb = ours.work().bytes / ms * 1e-6, tflops = ours.work().flops / ms * 1e-9;
  if (c.family == "copy" && c.name.starts_with("copy")) copy_gb_per_s = std::max(copy_gb_per_s, gb);
  bool moves = ours.work().bytes > 0;
  return {{"case", c.name},
          {"family", c.family},
          {"ms", rounded(ms, 5)},
          {"gb_per_s", moves ? Json(rounded(gb, 1)) : Json()},
          {"percent_of_copy", moves && copy_gb_per_s > 0 ? Json(rounded(100 * gb / copy_gb_per_s, 1)) : Json()},
          {"tflops", ours.work().flops > 0 ? Json(rounded(tflops, 2)) : Json()},
          {"peer", peer_ns ? Json(peer->name()) : Json()},
          {"peer_ms", peer_ns ? Json(rounded(*peer_ns * 1e-6, 5)) : Json()},
          {"peer_ratio", peer_ns ? Json(rounded(*peer_ns * 1e-6 / ms, 3)) : Json()}};
}

// One more row per family that the peer was measured on: the geometric mean of how many times faster we are.
void add_means(std::vector<Json>& results) {
  std::map<std::string, std::vector<double>> ratios;
  for (const Json& row : results)
    if (row["peer_ratio"].is_number()) ratios[row["family"]].push_back(row["peer_ratio"]);
  for (const auto& [family, list] : ratios) {
    if (list.size() < 2) continue;
    double sum = 0;
    for (double r : list) sum += std::log(r);
    results.push_back({{"case", fmt::format("geometric mean of {} {}", list.size(), family)},
                       {"family", family},
                       {"ms", nullptr},
                       {"gb_per_s", nullptr},
                       {"percent_of_copy", nullptr},
                       {"tflops", nullptr},
                       {"peer", results.front()["peer"]},
                       {"peer_ms", nullptr},
                       {"peer_ratio", rounded(std::exp(sum / static_cast<double>(list.size())), 3)}});
  }
}

}  // namespace

std::vector<OpCase> op_cases(Device device) {
  bool gpu = !device.is_cpu();
  // 256 MB on a GPU; 16 MB, beyond the caches of a core, on a CPU.
  const char* f32_size = gpu ? "8192x8192" : "2048x2048";
  const char* bf16_size = gpu ? "8192x16384" : "2048x4096";
  std::vector<OpCase> cases = {{fmt::format("copy f32 {}", f32_size), "copy"},
                               {fmt::format("copy bf16 {}", bf16_size), "copy"}};
  for (const char* op : {"transpose", "cast"}) {
    cases.push_back({fmt::format("{} f32 {}", op, f32_size), "move"});
    cases.push_back({fmt::format("{} bf16 {}", op, bf16_size), "move"});
  }
  for (const char* op : {"add", "mul_number", "relu", "gelu", "exp"}) {
    cases.push_back({fmt::format("{} f32 {}", op, f32_size), "elementwise"});
    cases.push_back({fmt::format("{} bf16 {}", op, bf16_size), "elementwise"});
  }
  cases.push_back({gpu ? "add f32 8192x8192 8192" : "add f32 2048x2048 2048", "elementwise"});
  for (const char* op : {"sum_all", "sum_rows", "sum_columns"}) {
    cases.push_back({fmt::format("{} f32 {}", op, f32_size), "reduce"});
    cases.push_back({fmt::format("{} bf16 {}", op, bf16_size), "reduce"});
  }
  for (const char* op : {"softmax", "layer_norm", "rms_norm"})
    for (int64_t n : {768, 1024, 2048, 4096, 8192})
      cases.push_back({fmt::format("{} bf16 {}x{}", op, (gpu ? 134217728 : 4194304) / n, n), "rows"});
  for (const char* op : {"atan2", "mse_loss", "smooth_l1_loss", "logsumexp_columns", "cumsum_rows", "topk_10"})
    cases.push_back({fmt::format("{} f32 {}", op, f32_size), "other"});
  for (const char* op : {"group_norm_8", "bilinear_x2"})
    cases.push_back({fmt::format("{} f32 {}x64x56x56", op, gpu ? 128 : 8), "other"});
  if (gpu)
    for (const char* m : {"bf16 8192x8192x8192", "f16 8192x8192x8192", "f32 4096x4096x4096", "bf16 4096x1024x1024"})
      cases.push_back({fmt::format("matmul {}", m), "matmul"});
  else
    for (const char* m : {"f32 1024x1024x1024", "f32 128x768x768", "bf16 1024x1024x1024"})
      cases.push_back({fmt::format("matmul {}", m), "matmul"});
  for (const ResNetConv& s : kResNet50)
    cases.push_back({fmt::format("conv {} {}x{}x{}x{} w {}x{}x{} s {} p {}", gpu ? "bf16" : "f32", gpu ? 64 : 1,
                                 s.channels, s.size, s.size, s.out, s.kernel, s.kernel, s.stride, s.kernel / 2),
                     "conv"});
  return cases;
}

Report measure_ops(const OpsOptions& options) {
  Report report;
  std::unique_ptr<Peer> peer = Peer::start(options.peer);
  DEFT_CHECK(peer || options.peer.empty(), UnsupportedError,
             "the peer {} does not answer; run it by hand with --serve to see why, or leave --peer out", options.peer);
  double copy_gb_per_s = 0;
  for (const OpCase& c : op_cases(options.device)) {
    if (!options.family.empty() && c.family != options.family && c.family != "copy") continue;
    if (interrupted()) {
      report.interrupted = true;
      break;
    }
    options.progress(c.name);
    report.add(measure(c, options, peer.get(), copy_gb_per_s));
  }
  add_means(report.results);
  return report;
}

}  // namespace deft::bench
