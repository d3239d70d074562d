#include "bench/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "amp/autocast.h"
#include "base/check.h"
#include "bench/clock.h"
#include "bench/interrupt.h"
#include "bench/mode.h"
#include "bench/peer.h"
#include "bench/statistics.h"
#include "deft/deft.h"
#include "graph/compile.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/gpt2.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "models/transformer_xl.h"
#include "optim/sgd.h"
#include "runtime/stream.h"

namespace deft::bench {

namespace {

constexpr double kRowSeconds = 4;  // with default repeats
constexpr int kLeastTurns = 5;
// Calls of each side in its turn: as where a model runs on its own, most of them find the weights where caches keep
// them. One where calls are long, and weights matter little.
constexpr int kTurnCalls = 3;
constexpr double kLongMs = 300;
// Calls per sample on a device: it is kept busy while the host runs ahead, as in a training loop.
constexpr int kDeviceCalls = 4;

// A model with inputs and targets of a batch.
struct Workload {
  std::shared_ptr<nn::Module> model;
  Tensor x, y;
  std::function<Tensor(const Tensor& x)> outputs;
  std::function<Tensor(const Tensor& x, const Tensor& y)> loss;
};

Workload image_workload(std::shared_ptr<nn::Module> model, Tensor x, int64_t classes, Device device) {
  Tensor y = randint(0, classes, {x.size(0)}).to(device);
  x = x.to(device);
  model->to(device);
  auto* m = model.get();
  // bf16 models take bf16 inputs.
  auto outputs = [m](const Tensor& in) { return (*m)(in.to(m->parameters()[0].dtype())); };
  auto loss = [outputs](const Tensor& in, const Tensor& classes_of) { return cross_entropy(outputs(in), classes_of); };
  return {std::move(model), x, y, outputs, loss};
}

constexpr int64_t kLength = 128;  // tokens per row

// Everything is made on the CPU, so that it is the same on every device.
Workload make_workload(const std::string& name, int64_t batch, Device device) {
  RngScope rng({2024, 0});
  if (name == "mlp")
    return image_workload(std::make_shared<models::Mlp>(std::vector<int64_t>{784, 1024, 1024, 10}), randn({batch, 784}),
                          10, device);
  if (name == "cnn") return image_workload(std::make_shared<models::Cnn>(), randn({batch, 1, 28, 28}), 10, device);
  if (name == "resnet18" || name == "resnet50") {
    models::ResNetOptions o = name == "resnet18" ? models::resnet18_options() : models::resnet50_options();
    Tensor x = randn({batch, 3, 224, 224}).contiguous(MemoryFormat::channels_last);
    auto model = std::make_shared<models::ResNet>(o);
    if (!device.is_cpu()) model->to(MemoryFormat::channels_last);  // the CPU's engine packs weights anyway
    return image_workload(model, x, 1000, device);
  }
  if (name == "bert-base" || name == "bert-large") {
    models::BertOptions o = name == "bert-base" ? models::bert_base_options() : models::bert_large_options();
    o.dropout = o.attention_dropout = 0;  // peers are measured without it too
    auto model = std::make_shared<models::BertForSequenceClassification>(2, o);
    Tensor tokens = randint(1, o.vocabulary, {batch, kLength}).to(device), y = randint(0, 2, {batch}).to(device);
    model->to(device);
    auto outputs = [m = model.get()](const Tensor& in) { return m->logits(in); };
    auto loss = [outputs](const Tensor& in, const Tensor& labels) { return cross_entropy(outputs(in), labels); };
    return {model, tokens, y, outputs, loss};
  }
  if (name == "gpt2") {
    models::Gpt2Options o;
    o.dropout = 0;
    auto model = std::make_shared<models::Gpt2>(o);
    Tensor tokens = randint(0, o.vocabulary, {batch, kLength}).to(device);
    Tensor next = randint(0, o.vocabulary, {batch * kLength}).to(device);
    model->to(device);
    auto outputs = [m = model.get()](const Tensor& in) { return m->logits(in); };
    auto loss = [outputs, words = o.vocabulary](const Tensor& in, const Tensor& targets) {
      return cross_entropy(outputs(in).reshape({-1, words}), targets);
    };
    return {model, tokens, next, outputs, loss};
  }
  models::TransformerXLOptions o;
  o.dropout = 0;
  auto model = std::make_shared<models::TransformerXL>(o);
  Tensor tokens = randint(0, 20000, {batch, kLength}).to(device);
  Tensor next = randint(0, o.vocabulary, {batch, kLength}).to(device);
  model->to(device);
  auto outputs = [m = model.get()](const Tensor& in) { return (*m)(in); };
  auto loss = [m = model.get()](const Tensor& in, const Tensor& targets) {
    models::TransformerXL::Memory memory;
    return m->loss(in, targets, memory).mean();
  };
  return {model, tokens, next, outputs, loss};
}

// What one way of running a row took.
struct Samples {
  std::vector<double> ms;
  int64_t peak = 0, saved = 0;
  int64_t activations = 0;  // what a call needs beyond what was there, and the arena of a plan
  std::array<int64_t, kMemoryCategoryCount> peaks{};
};

// train: forward, backward and an SGD step; validate: forward with gradients on, as a forgotten no_grad leaves it, and
// under no_grad; infer: inference mode.
struct Row {
  std::string pass;
  Mode mode;
  std::string type;
  Samples eager = {}, compiled = {};
  double cold_ms = 0, warm_ms = 0;  // of making a plan, for the first and the second time
  double peer_ns = 0;
};

class RowRunner {
 public:
  RowRunner(Workload& workload, const Row& row, Device device)
      : workload_(workload), row_(row), device_(device), optimizer_(workload.model->parameters(), {}) {
    workload.model->train(row.pass == "train");
  }

  // From here on by a plan. Milliseconds of the first call.
  double compile() {
    compiled_.emplace([this](const std::vector<Tensor>& in) { return std::vector<Tensor>{call(in[0], in[1])}; });
    return run_once();
  }
  // Milliseconds of a call.
  double run() {
    int calls = device_.is_cpu() ? 1 : kDeviceCalls;
    Clock::time_point start = Clock::now();
    for (int i = 0; i < calls; ++i) run([] {});
    wait();
    return seconds_since(start) * 1e3 / calls;
  }
  double run_once() {
    wait();
    Clock::time_point start = Clock::now();
    run([] {});
    wait();
    return seconds_since(start) * 1e3;
  }
  // Without what belongs to `others`.
  void measure_memory(Samples& to, const MemoryUse& others) {
    int64_t before = graph_stats().saved_bytes;
    wait();
    MemoryScope scope;
    run([&] { to.saved = graph_stats().saved_bytes - before; });
    to.peak = scope.peak_bytes() - others.total;
    to.activations = scope.peak_growth() + (compiled_ ? compiled_->stats().arena_bytes : 0);
    for (int i = 0; i < kMemoryCategoryCount; ++i) {
      const auto category = static_cast<MemoryCategory>(i);
      to.peaks[static_cast<size_t>(i)] = scope.peak_bytes(category) - others[category];
    }
  }

 private:
  // `after_forward` is called while the results of the forward pass live.
  void run(const std::function<void()>& after_forward) {
    AutocastGuard autocast(row_.type == "amp" ? choose_autocast(device_).dtype : DType::f32);
    ModeScope mode(row_.mode);
    after_forward_ = &after_forward;
    if (compiled_)
      (*compiled_)(workload_.x, workload_.y);
    else
      call(workload_.x, workload_.y);
  }
  Tensor call(const Tensor& x, const Tensor& y) {
    Tensor result = row_.pass == "train" ? workload_.loss(x, y) : workload_.outputs(x);
    (*after_forward_)();
    if (row_.pass != "train") return result;
    result.backward();
    optimizer_.step();
    optimizer_.zero_grad();
    return result.detach();
  }

  void wait() {
    if (!device_.is_cpu()) synchronize(device_);
  }

  Workload& workload_;
  const Row& row_;
  Device device_;
  optim::SGD optimizer_;
  std::optional<Compiled> compiled_;
  const std::function<void()>* after_forward_ = nullptr;
};

std::vector<Row> rows_of(const ModelsOptions& o) {
  auto wanted = [](const std::vector<std::string>& list, const std::string& name) {
    return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
  };
  std::vector<Row> rows;
  for (const std::string type : {"f32", "amp", "bf16"}) {
    if (!wanted(o.types, type)) continue;
    if (wanted(o.passes, "train") && type != "bf16") rows.push_back({"train", Mode::grad, type});
    if (wanted(o.passes, "validate")) {
      if (type == "f32" && !o.compile) rows.push_back({"validate", Mode::grad, type});
      rows.push_back({"validate", Mode::no_grad, type});
    }
    if (wanted(o.passes, "infer")) rows.push_back({"infer", Mode::inference, type});
  }
  return rows;
}

constexpr int kModelWarmUp = 2;  // packed weights are kept from the second call on

// Eager, the plan and the peer take turns. Of what trains each has a model of its own: steps keep forms of the weights
// for the next step.
bool sample(Workload& workload, const std::function<Workload()>& make, Row& row, const std::string& peer_case,
            Peer* peer, const ModelsOptions& o) {
  RowRunner eager(workload, row, o.device);
  for (int i = 0; i < kModelWarmUp; ++i) eager.run();
  eager.measure_memory(row.eager, {});
  std::optional<Workload> own;
  std::optional<RowRunner> plan;
  if (o.compile) {
    double call = eager.run_once();
    const MemoryUse others = row.pass == "train" ? memory_live() : MemoryUse();
    if (row.pass == "train") own = make();
    Workload& trained = own ? *own : workload;
    row.cold_ms = std::max(0.0, plan.emplace(trained, row, o.device).compile() - call);
    row.warm_ms = std::max(0.0, plan.emplace(trained, row, o.device).compile() - call);
    for (int i = 0; i < kModelWarmUp; ++i) plan->run();
    plan->measure_memory(row.compiled, others);
  }
  const int turn = eager.run() < kLongMs ? kTurnCalls : 1, wanted = o.repeats > 0 ? o.repeats : kLeastTurns * turn;
  Clock::time_point start = Clock::now();
  for (int done = 0; done < wanted || (o.repeats == 0 && seconds_since(start) < kRowSeconds);) {
    if (interrupted()) return false;
    const int calls = o.repeats > 0 ? std::min(turn, wanted - done) : turn;
    for (int k = 0; k < calls; ++k) row.eager.ms.push_back(eager.run());
    for (int k = 0; k < calls && plan; ++k) row.compiled.ms.push_back(plan->run());
    if (peer && done < wanted) {
      std::string where = o.device.is_cpu() ? fmt::format("threads={}", num_threads()) : to_string(o.device);
      auto ns = peer->ns_per_op(peer_case, where, calls);
      row.peer_ns = ns.value_or(0);
    }
    done += calls;
  }
  return true;
}

Json to_json(const std::string& name, int64_t batch, const Row& row, const Peer* peer) {
  const Samples& s = row.compiled.ms.empty() ? row.eager : row.compiled;
  double p50 = percentile(s.ms, 50);
  Json memory;
  for (int i = 0; i < kMemoryCategoryCount; ++i)
    memory[name_of(static_cast<MemoryCategory>(i))] = static_cast<double>(s.peaks[static_cast<size_t>(i)]) / 1e6;
  bool has_peer = peer && row.peer_ns > 0;
  Json json{{"case", name},
            {"batch", batch},
            {"pass", row.pass},
            {"mode", name_of(row.mode)},
            {"type", row.type},
            {"p50_ms", rounded(p50, 4)},
            {"p99_ms", rounded(percentile(s.ms, 99), 4)},
            {"total_ms", rounded(std::accumulate(s.ms.begin(), s.ms.end(), 0.0), 4)},
            {"samples_per_second", rounded(static_cast<double>(batch) * 1e3 / p50, 2)},
            {"peak_mb", static_cast<double>(s.peak) / 1e6},
            {"saved_for_backward_mb", static_cast<double>(s.saved) / 1e6},
            {"peak_mb_by_category", memory},
            {"samples", s.ms.size()},
            {"peer", has_peer ? Json(peer->name()) : Json()},
            {"peer_ms", has_peer ? Json(rounded(row.peer_ns / 1e6, 4)) : Json()},
            {"peer_ratio", has_peer ? Json(rounded(row.peer_ns / 1e6 / p50, 3)) : Json()}};
  if (&s == &row.eager) return json;
  double eager = percentile(row.eager.ms, 50);
  json["eager_ms"] = rounded(eager, 4);
  json["times_eager"] = rounded(eager / p50, 3);
  json["activations_mb"] = rounded(static_cast<double>(s.activations) / 1e6, 3);
  json["activations_of_eager"] =
      rounded(static_cast<double>(s.activations) / static_cast<double>(std::max<int64_t>(1, row.eager.activations)), 3);
  json["compile_cold_ms"] = rounded(row.cold_ms, 3);
  json["compile_warm_ms"] = rounded(row.warm_ms, 3);
  return json;
}

bool measure_model(const BenchModelInfo& info, const ModelsOptions& o, Peer* peer, Report& report) {
  int64_t batch = o.batch > 0 ? o.batch : info.default_batch;
  const auto make = [&] { return make_workload(info.name, batch, o.device); };
  Workload workload = make();
  bool low = false;
  for (Row& row : rows_of(o)) {
    o.progress(fmt::format("{}, {} {} {}", info.name, row.pass, name_of(row.mode), row.type));
    if (row.type == "bf16" && !low) {  // the rows of bf16 weights come last
      workload.model->to(DType::bf16);
      low = true;
    }
    std::string peer_case = fmt::format("model {} {} {} {}", info.name, batch, row.pass, row.type);
    bool complete =
        sample(workload, make, row, peer_case, row.mode == Mode::grad && row.pass == "validate" ? nullptr : peer, o);
    if (!row.eager.ms.empty()) report.add(to_json(info.name, batch, row, peer));
    if (!complete) return false;
  }
  return true;
}

}  // namespace

const std::vector<BenchModelInfo>& bench_models() {
  static const std::vector<BenchModelInfo> models = {
      {"mlp", "three linear layers, 784 to 1024 to 1024 to 10", 128, true},
      {"cnn", "the convolutional net of deft train, 28 x 28", 128, true},
      {"resnet18", "images of 224 x 224", 8, true},
      {"resnet50", "images of 224 x 224", 8, true},
      {"bert-base", "rows of 128 tokens", 4, true},
      {"bert-large", "rows of 128 tokens", 2, false},
      {"gpt2", "rows of 128 tokens", 4, false},
      {"transformer-xl", "rows of 128 tokens, 16 layers of 410", 4, false},
  };
  return models;
}

Report measure_models(const ModelsOptions& o) {
  Report report;
  std::unique_ptr<Peer> peer = o.peer.empty() ? nullptr : Peer::start(o.peer);
  DEFT_CHECK(peer || o.peer.empty(), UnsupportedError,
             "the peer {} does not answer; run it by hand with --serve to see why, or leave --peer out", o.peer);
  for (const BenchModelInfo& info : bench_models()) {
    bool named = std::find(o.models.begin(), o.models.end(), info.name) != o.models.end();
    if (o.models.empty() ? !info.quick : !named) continue;
    report.interrupted = !measure_model(info, o, peer.get(), report);
    if (report.interrupted) break;
  }
  return report;
}

}  // namespace deft::bench
