#include "graph/compile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "graph/capture.h"
#include "graph/executable.h"
#include "ops/binary.h"
#include "ops/copy.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "runtime/context.h"

namespace deft {

namespace {

using graph::Dependency;

constexpr size_t kMisses = 100;
constexpr uint32_t kModes = kGradOff | kInference | kDeterministic | kAutocast;

// All that decides which plan serves a call.
struct Key {
  std::vector<Meta> inputs;
  std::vector<size_t> shared;  // the first input with the same memory
  uint32_t modes;
  DType autocast;
  uint64_t state;
};

Key key_of(const std::vector<Tensor>& inputs, const CompileOptions& o) {
  const ExecContext& c = context();
  Key k{{}, {}, c.bits & kModes, c.autocast_dtype, o.state ? o.state() : 0};
  for (const Tensor& t : inputs) {
    DEFT_CHECK(t.defined(), ValueError, "compile: input {} is an undefined tensor; give every input a value",
               k.inputs.size());
    size_t first = 0;
    while (first < k.inputs.size() && !inputs[first].shares_storage_with(t)) ++first;
    k.inputs.push_back(t.meta());
    k.shared.push_back(first);
  }
  return k;
}

bool same_meta(const Meta& a, const Meta& b) {
  return a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype && a.device == b.device;
}

std::string modes_text(const Key& k) {
  std::string text = k.modes & kInference ? "inference_mode" : k.modes & kGradOff ? "no_grad" : "gradients on";
  if (k.modes & kAutocast) text += fmt::format(", autocast {}", name_of(k.autocast));
  if (k.modes & kDeterministic) text += ", deterministic";
  return text;
}

// "[2, 3] f32", and the device where that is not the CPU.
std::string where(const Meta& m) {
  return m.device.is_cpu() ? describe(m) : describe(m) + " on " + to_string(m.device);
}

// Nothing where `now` fits `made`; otherwise the first difference, and how far the two agree.
struct Difference {
  int agreed = 0;
  std::string what;
};
Difference difference(const Key& made, const Key& now) {
  if (made.inputs.size() != now.inputs.size())
    return {1, fmt::format("{} inputs instead of {}", now.inputs.size(), made.inputs.size())};
  for (size_t i = 0; i < now.inputs.size(); ++i) {
    const Meta &a = made.inputs[i], &b = now.inputs[i];
    if (!same_meta(a, b)) {
      if (!(a.sizes == b.sizes) || a.dtype != b.dtype || a.device != b.device)
        return {2, fmt::format("input {} is {} instead of {}", i, where(b), where(a))};
      return {3, fmt::format("input {} has strides {} instead of {}", i, to_string(b.strides), to_string(a.strides))};
    }
    if (made.shared[i] != now.shared[i]) return {4, fmt::format("input {} shares memory with another one", i)};
  }
  if (made.modes != now.modes || made.autocast != now.autocast)
    return {5, fmt::format("{} instead of {}", modes_text(now), modes_text(made))};
  if (made.state != now.state) return {6, "the state given by CompileOptions::state changed"};
  return {};
}

std::string changed(const std::vector<Dependency>& dependencies) {
  for (const Dependency& d : dependencies)
    if (d.tensor.impl()->storage->current_version() != d.version)
      return fmt::format("a constant {} that went into the plan was written", describe(d.tensor.meta()));
  return {};
}

struct Plan {
  Key key;
  std::unique_ptr<graph::Executable> executable;
  std::vector<Dependency> dependencies;
  graph::Notes notes;
  size_t instructions = 0;  // as captured
  int64_t calls = 0;
};

// A stated bound for what passes may change: relative to the largest value, a few roundings.
void compare(const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!is_floating(wanted[i].dtype())) {
      DEFT_CHECK(found[i].ne(wanted[i]).to(DType::i64).sum().item<int64_t>() == 0, InternalError,
                 "compile: result {} of a plan differs from the function's; please report it", i);
      continue;
    }
    Tensor a = found[i].to(DType::f64), b = wanted[i].to(DType::f64);
    if (a.numel() == 0) continue;
    double size = b.abs().amax().item(), error = (a - b).abs().amax().item();
    double bound = (wanted[i].dtype() == DType::f64 ? 1e-12 : size_of(wanted[i].dtype()) == 2 ? 0x1p-6 : 1e-4) * size;
    DEFT_CHECK(error <= bound || (!std::isfinite(size) && !std::isfinite(error)), InternalError,
               "compile: result {} of a plan differs by {} from the function's, of values up to {}; please report it",
               i, error, size);
  }
}

}  // namespace

struct Compiled::Impl {
  Function function;
  CompileOptions options;
  std::list<Plan> plans;  // the last used first
  CompileStats stats;
  std::vector<std::string> misses;

  void miss(std::string why) {
    if (misses.size() == kMisses) misses.erase(misses.begin());
    misses.push_back(std::move(why));
  }

  // A plan that serves the call, moved to the front; otherwise how the plan that comes nearest differs.
  Plan* find(const Key& key, std::string& why) {
    why = plans.empty() ? "the first call" : "";
    int nearest = 0;
    for (auto p = plans.begin(); p != plans.end(); ++p) {
      Difference d = difference(p->key, key);
      if (d.what.empty()) {
        why = changed(p->dependencies);
        if (why.empty()) {
          plans.splice(plans.begin(), plans, p);
          return &plans.front();
        }
        plans.erase(p);
        return nullptr;
      }
      if (d.agreed > nearest) nearest = d.agreed, why = std::move(d.what);
    }
    return nullptr;
  }

  std::vector<Tensor> capture(Key key, const std::vector<Tensor>& inputs) {
    graph::Captured captured = graph::capture(function, inputs);
    Plan plan;
    plan.key = std::move(key);
    plan.instructions = captured.graph.instructions.size();
    graph::run_passes(captured.graph, options.passes, plan.dependencies, plan.notes);
    plan.executable = std::make_unique<graph::Executable>(std::move(captured.graph));
    plans.push_front(std::move(plan));
    ++stats.captures;
    evict();
    return std::move(captured.results);
  }
  void evict() {
    auto bytes = [&] {
      size_t sum = 0;
      for (const Plan& p : plans) sum += static_cast<size_t>(p.executable->memory().bytes);
      return sum;
    };
    while (plans.size() > 1 && (plans.size() > options.plans || bytes() > options.plan_bytes)) {
      plans.pop_back();
      ++stats.evictions;
    }
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    ++stats.calls;
    if (context().bits & kCapture) return function(inputs);  // part of a larger function
    Key key = key_of(inputs, options);
    std::string why;
    Plan* plan = find(key, why);
    if (!plan) {
      miss(why);
      return capture(std::move(key), inputs);
    }
    ++plan->calls;
    ++stats.replays;
    std::vector<Tensor> results = plan->executable->run(inputs);
    if (options.shadow > 0 && plan->calls % options.shadow == 0) {
      ++stats.shadows;
      compare(results, function(inputs));
    }
    return results;
  }
};

Compiled::Compiled(Function function, CompileOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->function = std::move(function);
  impl_->options = std::move(options);
}
Compiled::~Compiled() = default;
Compiled::Compiled(Compiled&&) noexcept = default;
Compiled& Compiled::operator=(Compiled&&) noexcept = default;

std::vector<Tensor> Compiled::run(const std::vector<Tensor>& inputs) { return impl_->run(inputs); }
CompileStats Compiled::stats() const { return impl_->stats; }
const std::vector<std::string>& Compiled::misses() const { return impl_->misses; }

std::string Compiled::explain() const {
  const CompileStats& s = impl_->stats;
  std::string text = fmt::format("{} calls: {} by plans, {} captured; {} plans\n", s.calls, s.replays, s.captures,
                                 impl_->plans.size());
  for (const Plan& p : impl_->plans) {
    std::string inputs;
    for (const Meta& m : p.key.inputs) inputs += (inputs.empty() ? "" : ", ") + describe(m);
    const graph::MemoryPlan& memory = p.executable->memory();
    text += fmt::format("\nplan for {} ({}): {} instructions captured, {} kernels, {} calls\n", inputs,
                        modes_text(p.key), p.instructions, p.executable->kernels(), p.calls);
    text += fmt::format("  memory: arena of {} bytes for {} bytes of results in between; no plan needs less than {}\n",
                        memory.bytes, memory.sum, memory.floor);
    for (const std::string& line : p.notes.done) text += "  done: " + line + "\n";
    for (const std::string& line : p.notes.left) text += "  left: " + line + "\n";
    text += graph::to_text(p.executable->graph());
  }
  if (!impl_->misses.empty()) text += "\nmisses\n";
  for (const std::string& why : impl_->misses) text += "  " + why + "\n";
  return text;
}

Compiled compile(Compiled::Function function, CompileOptions options) {
  return Compiled(std::move(function), std::move(options));
}

}  // namespace deft
