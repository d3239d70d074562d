#include "graph/compile.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <list>
#include <optional>
#include <span>

#include "base/check.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "core/observer.h"
#include "graph/capture.h"
#include "graph/executable.h"
#include "graph/shadow.h"
#include "graph/symbolic.h"
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

// The first input with the same memory, and how many bytes behind that one this one begins.
struct Place {
  size_t first = 0;
  int64_t distance = 0;
  bool operator==(const Place&) const = default;
};

// The key of a plan: everything that decides which plan serves a call.
struct Key {
  std::vector<Meta> inputs;
  std::vector<Place> shared;
  uint32_t modes = 0;
  DType autocast = DType::f32;
  uint64_t state = 0;
  bool any_mode = false;  // plans from files: modes, autocast and state are decided
};

int64_t distance(const Tensor& from, const Tensor& to) {
  return static_cast<const char*>(to.data_ptr()) - static_cast<const char*>(from.data_ptr());
}

Key key_of(const std::vector<Tensor>& inputs, const CompileOptions& o) {
  const ExecContext& c = context();
  Key k{{}, {}, c.bits & kModes, c.autocast_dtype, o.state ? o.state() : 0, false};
  for (const Tensor& t : inputs) {
    DEFT_CHECK(t.defined(), ValueError, "compile: input {} is an undefined tensor; give every input a value",
               k.inputs.size());
    size_t first = 0;
    while (first < k.inputs.size() && !inputs[first].shares_storage_with(t)) ++first;
    k.inputs.push_back(t.meta());
    k.shared.push_back({first, distance(inputs[first], t)});
  }
  return k;
}

// Strides of sizes 1 and 0 reach nothing and make no difference.
bool same_strides(const Meta& a, const Meta& b) {
  for (int d = 0; d < a.rank(); ++d)
    if (a.strides[d] != b.strides[d] && a.sizes[d] > 1 && a.numel > 0) return false;
  return true;
}
bool same_meta(const Meta& a, const Meta& b) {
  return a.sizes == b.sizes && same_strides(a, b) && a.dtype == b.dtype && a.device == b.device;
}

using Inputs = std::span<const Tensor* const>;

// What difference() finds nothing between, without a key of the call.
bool serves(const Key& made, Inputs inputs, const CompileOptions& o) {
  const ExecContext& c = context();
  if (made.inputs.size() != inputs.size()) return false;
  if (!made.any_mode && (made.modes != (c.bits & kModes) || made.autocast != c.autocast_dtype)) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]->defined() || !same_meta(made.inputs[i], inputs[i]->meta())) return false;
    size_t first = 0;
    while (first < i && !inputs[first]->shares_storage_with(*inputs[i])) ++first;
    if (made.shared[i] != Place{first, distance(*inputs[first], *inputs[i])}) return false;
  }
  return made.any_mode || made.state == (o.state ? o.state() : 0);
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
    if (made.shared[i] != now.shared[i])
      return {4, fmt::format("input {} shares memory with another one in another way", i)};
  }
  if (made.any_mode) return {};
  if (made.modes != now.modes || made.autocast != now.autocast)
    return {5, fmt::format("{} instead of {}", modes_text(now), modes_text(made))};
  if (made.state != now.state) return {6, "the state given by CompileOptions::state changed"};
  return {};
}

bool is_changed(const Dependency& d) { return d.tensor.impl()->storage->stamp() != d.stamp; }
std::string changed(const std::vector<Dependency>& dependencies) {
  for (const Dependency& d : dependencies)
    if (is_changed(d))
      return fmt::format("a constant {} that went into the plan was written", describe(d.tensor.meta()));
  return {};
}

struct Plan {
  Key key;
  std::unique_ptr<graph::Executable> executable;
  std::vector<Dependency> dependencies;
  graph::Notes notes;
  graph::GradState gradients;
  std::vector<std::pair<size_t, Tensor>> held;  // inputs that the function also holds itself
  std::vector<const Storage*> constants;        // as captured, of plans that write memory from outside
  std::vector<size_t> written;                  // inputs that it writes
  size_t instructions = 0;                      // as captured
  int64_t calls = 0;

  bool depends_on_place() const { return !held.empty() || !constants.empty() || !written.empty(); }
  size_t results() const { return executable->graph().outputs.size() - gradients.made; }
};

// The first input whose memory aliases differently than in the capture; otherwise nothing.
std::string elsewhere(const Plan& p, Inputs inputs) {
  for (const auto& [i, t] : p.held)
    if (!inputs[i]->shares_storage_with(t) || distance(t, *inputs[i]) != 0)
      return fmt::format("input {} is not the tensor that the function has hold of itself", i);
  for (size_t i : p.written)
    if (inputs[i]->is_inference() && !(context().bits & kInference))
      return fmt::format("input {} is written, and was made in inference_mode", i);
  if (p.constants.empty()) return {};
  for (size_t i = 0; i < inputs.size(); ++i)
    if (std::find(p.constants.begin(), p.constants.end(), inputs[i]->impl()->storage) != p.constants.end() &&
        std::none_of(p.held.begin(), p.held.end(), [&](const auto& h) { return h.first == i; }))
      return fmt::format("input {} shares memory with a constant of a plan that writes", i);
  return {};
}
std::vector<size_t> written_inputs(const graph::Graph& g, size_t inputs) {
  std::vector<bool> written(g.buffers.size(), false);
  for (const graph::Instruction& x : g.instructions)
    for (graph::ValueId id : rewritten_values(x)) written[static_cast<size_t>(g.value(id).buffer)] = true;
  std::vector<size_t> found;
  for (size_t i = 0; i < inputs; ++i)
    if (written[static_cast<size_t>(g.value(g.inputs[i]).buffer)]) found.push_back(i);
  return found;
}
std::vector<const Storage*> constants_beside_writes(const graph::Graph& g) {
  bool writes = false;
  for (const graph::Instruction& x : g.instructions)
    for (graph::ValueId id : rewritten_values(x)) writes |= g.buffer_of(id).kind != graph::BufferKind::temporary;
  std::vector<const Storage*> all;
  for (const graph::Buffer& b : g.buffers)
    if (writes && b.kind == graph::BufferKind::constant) all.push_back(b.constant.impl()->storage);
  return all;
}

// A plan has one arena. The function may call itself while it is captured, or watched op by op.
class OneCall {
 public:
  explicit OneCall(std::atomic<bool>& inside) : inside_(context().bits & (kCapture | kAnomaly) ? nullptr : &inside) {
    DEFT_CHECK(!inside_ || !inside.exchange(true, std::memory_order_acquire), ValueError,
               "compile: a call of this function is still running, in another thread or around this one; compile it "
               "once for each thread");
  }
  ~OneCall() {
    if (inside_) inside_->store(false, std::memory_order_release);
  }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

 private:
  std::atomic<bool>* inside_;
};

// Captures that differ in sizes only.
struct Family {
  Key key;
  graph::Template graphs;
};

bool is_relative(const Family& f, const Key& key) {
  const bool same_modes = f.key.modes == key.modes && f.key.autocast == key.autocast && f.key.state == key.state;
  return (f.key.any_mode || same_modes) && graph::same_kind(f.key.inputs, key.inputs);
}
bool any_shared(const Key& key) {
  for (size_t i = 0; i < key.shared.size(); ++i)
    if (key.shared[i].first != i) return true;
  return false;
}

// With strides as a new tensor has them where they make no difference, so that captures do not differ in them.
Tensor canonical(const Tensor& t) {
  Meta m = t.meta();
  if (m.contiguous)
    m.set_strides(contiguous_strides(m.sizes));
  else if (m.is_channels_last())
    m.set_strides(channels_last_strides(m.sizes));
  if (m.strides == t.meta().strides || t.requires_grad()) return t;
  ImplPtr alias = make_alias(*t.impl(), m, 0);
  alias->data = t.data_ptr();
  return Tensor(alias);
}

// Distinguishes the use of an input that the function holds itself from the use of its argument.
Tensor other_header(const Tensor& t) { return Tensor(make_alias(*t.impl(), t.meta(), 0)); }

std::string describe_inputs(const std::vector<Meta>& inputs) {
  std::string text;
  for (const Meta& m : inputs) text += (text.empty() ? "" : ", ") + describe(m);
  return text;
}

}  // namespace

struct Compiled::Impl {
  Function function;
  CompileOptions options;
  std::list<Plan> plans;       // the last used first
  std::list<Family> families;  // the last made first
  CompileStats stats;
  std::vector<std::string> misses;

  Site site;  // of compile()
  std::atomic<bool> inside = false;

  void miss(std::string why) {
    if (Observer* o = observer()) o->plan_missed(this, why, site);
    if (misses.size() == kMisses) misses.erase(misses.begin());
    misses.push_back(std::move(why));
  }

  // A plan that serves the call, moved to the front; otherwise how the plan that comes nearest differs.
  Plan* find(const Key& key, Inputs inputs, std::string& why) {
    why = plans.empty() ? "the first call" : "";
    int nearest = 0;
    for (auto p = plans.begin(); p != plans.end(); ++p) {
      Difference d = difference(p->key, key);
      if (d.what.empty()) d = {7, p->gradients.difference(inputs)};
      if (d.what.empty()) d = {8, elsewhere(*p, inputs)};
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

  Plan& add_plan(Key key, graph::Graph graph) {
    Plan plan;
    plan.key = std::move(key);
    plan.instructions = graph.instructions.size();
    plan.constants = constants_beside_writes(graph);
    plan.written = written_inputs(graph, plan.key.inputs.size());
    {
      InferenceModeGuard off(false);  // so that packed forms of folded weights may be kept: see derived_cache.h
      NoGradGuard no_grad;
      graph::run_passes(graph, options.passes, plan.dependencies, plan.notes);
    }
    plan.executable = std::make_unique<graph::Executable>(std::move(graph));
    plans.push_front(std::move(plan));
    evict();
    return plans.front();
  }
  std::vector<Tensor> capture(Key key, const std::vector<Tensor>& inputs) {
    std::vector<Tensor> given;
    for (const Tensor& t : inputs)
      given.push_back(is_grad_enabled() && t.requires_grad() ? t : other_header(canonical(t)));
    graph::Captured captured = graph::capture(function, given, inputs);
    ++stats.captures;
    if (options.symbolic && !any_shared(key) && captured.gradients.is_empty() && captured.held.empty() &&
        captured.read.empty() && captured.kept.empty())
      learn(key, captured.graph);
    for (Tensor& t : captured.results)
      for (size_t i = 0; i < given.size(); ++i)
        if (t.is_same(given[i])) t = inputs[i];
    if (!captured.kept.empty()) {
      misses.back() += "; no plan: " + captured.kept;
      return std::move(captured.results);
    }
    Plan& plan = add_plan(std::move(key), std::move(captured.graph));
    plan.gradients = std::move(captured.gradients);
    for (size_t i : captured.held) plan.held.emplace_back(i, inputs[i]);
    plan.dependencies.insert(plan.dependencies.end(), captured.read.begin(), captured.read.end());
    if (options.shadow > 0 && !graph::Shadow::is_possible(plan.executable->graph()))
      plan.notes.left.push_back("shadow: the plan calls code with a state of its own, which would go on twice");
    return std::move(captured.results);
  }

  Family* family_of(const Key& key) {
    if (any_shared(key)) return nullptr;
    auto f = std::find_if(families.begin(), families.end(), [&](const Family& each) { return is_relative(each, key); });
    return f == families.end() ? nullptr : &*f;
  }
  void learn(const Key& key, const graph::Graph& captured) {
    if (Family* f = family_of(key)) return f->graphs.add(captured);
    families.push_front({key, graph::Template(captured)});
    if (families.size() > options.plans) families.pop_back();
  }
  // A function may behave differently at new sizes: only templates that were confirmed once, or promised, are used.
  bool is_trusted(const graph::Template& t, bool confirmed) const {
    auto promised = [&](const std::vector<graph::InputDim>& dims) {
      return std::any_of(dims.begin(), dims.end(), [&](const graph::InputDim& d) {
        return std::find(options.dynamic.begin(), options.dynamic.end(), d) != options.dynamic.end();
      });
    };
    return confirmed || (t.fault().empty() && std::all_of(t.symbols().begin(), t.symbols().end(), promised));
  }
  bool in_ranges(const Key& key, std::string& why) const {
    for (const auto& [dim, low, high] : options.ranges) {
      if (dim.input >= key.inputs.size() || dim.dim >= key.inputs[dim.input].rank()) continue;
      const int64_t n = key.inputs[dim.input].sizes[dim.dim];
      if (n >= low && n <= high) continue;
      why += fmt::format("; dimension {} of input {} is {}, expected {} to {}", dim.dim, dim.input, n, low, high);
      return false;
    }
    return true;
  }
  // A plan from a template, without running the function. `why` receives the outcome.
  Plan* instantiate(const Key& key, std::string& why) {
    Family* f = options.symbolic ? family_of(key) : nullptr;
    if (!f || !in_ranges(key, why)) return nullptr;
    if (!is_trusted(f->graphs, f->graphs.confirmed_for(key.inputs))) {
      if (f->graphs.is_over()) why += "; no template: " + f->graphs.fault();
      return nullptr;
    }
    std::string fault;
    auto graph = f->graphs.instantiate(key.inputs, fault);
    if (!graph) {
      why += "; not from the template: " + fault;
      return nullptr;
    }
    why += fmt::format("; instantiated for {} from the template", describe_inputs(key.inputs));
    ++stats.instantiated;
    Key made = key;
    made.any_mode = f->key.any_mode;
    return &add_plan(std::move(made), std::move(*graph));
  }

  size_t arena_bytes() const {
    size_t sum = 0;
    for (const Plan& p : plans) sum += static_cast<size_t>(p.executable->memory().bytes + p.executable->memory().kept);
    return sum;
  }
  void evict() {
    while (plans.size() > 1 && (plans.size() > options.plans || arena_bytes() > options.plan_bytes)) {
      plans.pop_back();
      ++stats.evictions;
    }
  }

  std::string explain(const Family& f) const {
    std::string text = fmt::format("template of {}: ", describe_inputs(f.key.inputs));
    for (const auto& dims : f.graphs.symbols())
      text += fmt::format("dimension {} of input {} is a symbol, ", dims[0].dim, dims[0].input);
    if (!f.graphs.fault().empty()) return text + "not in use: " + f.graphs.fault();
    return text + (is_trusted(f.graphs, f.graphs.confirmed())
                       ? "in use"
                       : "not in use before a third capture comes out as foretold");
  }

  // The plan of the last call if it serves this one as well, as most of the time.
  Plan* same_again(Inputs inputs) {
    if (plans.empty() || context().bits & (kCapture | kAnomaly) || options.shadow > 0 ||
        (!function && is_grad_enabled()))
      return nullptr;
    Plan& p = plans.front();
    if (!serves(p.key, inputs, options) || !p.gradients.serves(inputs)) return nullptr;
    if (p.depends_on_place() && !elsewhere(p, inputs).empty()) return nullptr;
    return std::none_of(p.dependencies.begin(), p.dependencies.end(), is_changed) ? &p : nullptr;
  }
  void replay(Plan& plan, Inputs inputs, Tensor* results) {
    if (Observer* o = observer()) [[unlikely]]
      o->plan_ran(this, site);
    ++stats.calls, ++stats.replays, ++plan.calls;
    plan.gradients.run(*plan.executable, inputs, results);
  }

  Tensor run_one(Inputs inputs) {
    OneCall one(inside);
    if (Plan* plan = same_again(inputs); plan && plan->results() == 1) {
      Tensor result;
      replay(*plan, inputs, &result);
      return result;
    }
    std::vector<Tensor> copies;
    for (const Tensor* t : inputs) copies.push_back(*t);
    std::vector<Tensor> results = run_any(copies);
    DEFT_CHECK(results.size() == 1, ValueError, "compile: the function gives {} results; call run() for them",
               results.size());
    return std::move(results[0]);
  }
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& results) {
    OneCall one(inside);
    if (&inputs == &results) {
      results = run_any(std::vector<Tensor>(inputs));
      return;
    }
    results.clear();
    constexpr size_t kMost = 32;
    const Tensor* pointers[kMost];
    const size_t count = inputs.size() <= kMost ? inputs.size() : 0;
    for (size_t i = 0; i < count; ++i) pointers[i] = &inputs[i];
    Plan* plan = count == inputs.size() ? same_again({pointers, count}) : nullptr;
    if (!plan) {
      results = run_any(inputs);
      return;
    }
    results.resize(plan->results());
    replay(*plan, {pointers, count}, results.data());
  }
  static void check_without_function(const std::vector<Tensor>& inputs) {
    DEFT_CHECK(!(context().bits & kCapture), CaptureError,
               "compile: a plan from a file cannot become part of another; compile the function itself");
    for (const Tensor& t : inputs)
      DEFT_CHECK(!t.defined() || !t.requires_grad() || !is_grad_enabled(), GradError,
                 "compile: a plan from a file records no gradients, and an input {} requires grad; call it under "
                 "no_grad",
                 describe(t.meta()));
  }
  std::vector<Tensor> run_any(const std::vector<Tensor>& inputs) {
    ++stats.calls;
    if (!function) check_without_function(inputs);
    // Part of a larger function, or watched op by op.
    if (context().bits & (kCapture | kAnomaly) && function) return function(inputs);
    std::vector<const Tensor*> pointers;
    for (const Tensor& t : inputs) pointers.push_back(&t);
    Key key = key_of(inputs, options);
    std::string why;
    Plan* plan = find(key, pointers, why);
    if (!plan) {
      plan = instantiate(key, why);
      DEFT_CHECK(plan || function, ValueError,
                 "compile: no plan of the file serves {}: {}; save plans for such inputs too",
                 describe_inputs(key.inputs), why);
      miss(why);
      if (!plan) return capture(std::move(key), inputs);
    }
    if (Observer* o = observer()) [[unlikely]]
      o->plan_ran(this, site);
    ++plan->calls;
    ++stats.replays;
    std::vector<Tensor> results(plan->results());
    const graph::Graph& graph = plan->executable->graph();
    std::optional<graph::Shadow> shadow;
    if (options.shadow > 0 && plan->calls % options.shadow == 0 && graph::Shadow::is_possible(graph))
      shadow.emplace(graph, plan->gradients, pointers);
    plan->gradients.run(*plan->executable, pointers, results.data());
    if (shadow) {
      ++stats.shadows;
      shadow->compare(results, function, inputs);
    }
    return results;
  }
};

Compiled::Compiled(Function function, CompileOptions options, Site site) : impl_(std::make_unique<Impl>()) {
  impl_->function = std::move(function);
  impl_->options = std::move(options);
  impl_->site = site;
}
Compiled::~Compiled() = default;
Compiled::Compiled(Compiled&&) noexcept = default;
Compiled& Compiled::operator=(Compiled&&) noexcept = default;

std::vector<Tensor> Compiled::run(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> results;
  impl_->run(inputs, results);
  return results;
}
void Compiled::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& results) { impl_->run(inputs, results); }
Tensor Compiled::run_one(std::span<const Tensor* const> inputs) { return impl_->run_one(inputs); }
CompileStats Compiled::stats() const {
  CompileStats stats = impl_->stats;
  stats.arena_bytes = static_cast<int64_t>(impl_->arena_bytes());
  return stats;
}
const std::vector<std::string>& Compiled::misses() const { return impl_->misses; }

std::string Compiled::explain() const {
  const CompileStats& s = impl_->stats;
  std::string text = fmt::format("{} calls: {} by plans, {} captured; {} plans, {} were made from templates\n", s.calls,
                                 s.replays, s.captures, impl_->plans.size(), s.instantiated);
  for (const Plan& p : impl_->plans) {
    const graph::MemoryPlan& memory = p.executable->memory();
    text += fmt::format("\nplan for {} ({}): {} instructions captured, {} kernels, {} calls\n",
                        describe_inputs(p.key.inputs), p.key.any_mode ? "from a file" : modes_text(p.key),
                        p.instructions, p.executable->kernels(), p.calls);
    text += fmt::format(
        "  memory: arena of {} bytes for {} bytes of results in between, {} of which are written over an "
        "input; no plan needs less than {}\n",
        memory.bytes, memory.sum, memory.in_place, memory.floor);
    if (memory.kept) text += fmt::format("  memory: {} bytes of weights stay cast from call to call\n", memory.kept);
    for (const std::string& line : p.notes.done) text += "  done: " + line + "\n";
    for (const std::string& line : p.notes.left) text += "  left: " + line + "\n";
    text += graph::to_text(p.executable->graph());
  }
  for (const Family& f : impl_->families) text += "\n" + impl_->explain(f) + "\n";
  if (!impl_->misses.empty()) text += "\nmisses\n";
  for (const std::string& why : impl_->misses) text += "  " + why + "\n";
  return text;
}

std::vector<const graph::Graph*> Compiled::graphs() const {
  std::vector<const graph::Graph*> found;
  for (const Plan& p : impl_->plans) {
    const Key &last = impl_->plans.front().key, &key = p.key;
    if (key.modes == last.modes && key.autocast == last.autocast && key.state == last.state && p.gradients.is_empty() &&
        p.held.empty() && std::none_of(p.dependencies.begin(), p.dependencies.end(), is_changed))
      found.push_back(&p.executable->graph());
  }
  return found;
}

std::vector<const graph::Template*> Compiled::templates() const {
  std::vector<const graph::Template*> found;
  for (const Family& f : impl_->families) {
    const bool same_modes = impl_->plans.empty() || f.key.any_mode || [&](const Key& last) {
      return f.key.modes == last.modes && f.key.autocast == last.autocast && f.key.state == last.state;
    }(impl_->plans.front().key);
    if (same_modes && f.graphs.confirmed()) found.push_back(&f.graphs);
  }
  return found;
}

const std::vector<graph::DimRange>& Compiled::ranges() const { return impl_->options.ranges; }

Compiled Compiled::of_graphs(std::vector<graph::Graph> graphs, std::vector<graph::Template> templates,
                             std::vector<graph::DimRange> ranges) {
  Compiled made{Function()};
  made.impl_->options.ranges = std::move(ranges);
  for (graph::Template& t : templates) {
    Key key;
    key.any_mode = true;
    key.inputs = t.inputs();
    made.impl_->families.push_back({std::move(key), std::move(t)});
  }
  for (graph::Graph& g : graphs) {
    Plan plan;
    plan.key.any_mode = true;
    for (graph::ValueId id : g.inputs) {
      size_t first = 0;
      while (g.value(g.inputs[first]).buffer != g.value(id).buffer) ++first;
      plan.key.inputs.push_back(g.value(id).meta);
      plan.key.shared.push_back({first, g.value(id).offset - g.value(g.inputs[first]).offset});
    }
    plan.instructions = g.instructions.size();
    graph::prepack_weights(g, plan.notes);  // what files do not hold
    plan.executable = std::make_unique<graph::Executable>(std::move(g));
    made.impl_->plans.push_back(std::move(plan));
  }
  return made;
}

void detail::check_input_count(size_t found, size_t wanted) {
  DEFT_CHECK(found == wanted, ValueError,
             "compile: found a call with {} inputs, expected {}; pass one tensor for each "
             "parameter of the function",
             found, wanted);
}

Compiled compile(Compiled::Function function, CompileOptions options, Site site) {
  DEFT_CHECK(function, ValueError, "compile: the function is empty; give one that can be called");
  return Compiled(std::move(function), std::move(options), site);
}

}  // namespace deft
