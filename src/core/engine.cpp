#include "core/engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/core_ops.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "core/hooks.h"
#include "core/leaf_state.h"
#include "core/observer.h"
#include "core/op.h"
#include "runtime/per_thread.h"
#include "runtime/stream.h"

namespace deft {

namespace {

thread_local int backward_depth = 0;

// A node waiting for its turn, with the gradients of its outputs summed so far.
struct Task {
  Node* node = nullptr;  // kept alive by the roots: edges do not change while a pass runs
  Tensor first;          // gradient of output 0
  std::unique_ptr<std::vector<Tensor>> rest;
  Tensor& grad(uint32_t i) {
    if (i == 0) [[likely]]
      return first;
    if (!rest) rest = std::make_unique<std::vector<Tensor>>();
    if (rest->size() < i) rest->resize(i);
    return (*rest)[i - 1];
  }
};

// Working memory of one backward pass. Kept between passes so that steady state allocates nothing.
struct Run {
  bool leased = false;
  std::vector<Task> tasks;
  std::vector<uint32_t> free_tasks;
  // Sorted by sequence number, which is also what a node is found by: the latest op is at the end, and new entries
  // usually belong near it.
  struct Waiting {
    uint64_t seq;
    uint32_t task;
    bool operator<(const Waiting& o) const { return seq < o.seq; }
  };
  std::vector<Waiting> queue;

  Task& task_for(Node* n) {
    auto at = queue.end();
    if (!queue.empty() && queue.back().seq >= n->seq) {
      if (queue.back().seq == n->seq) return tasks[queue.back().task];
      at = std::lower_bound(queue.begin(), queue.end(), Waiting{n->seq, 0});
      if (at->seq == n->seq) return tasks[at->task];
    }
    if (free_tasks.empty()) {
      free_tasks.push_back(static_cast<uint32_t>(tasks.size()));
      tasks.emplace_back();
    }
    uint32_t index = free_tasks.back();
    queue.insert(at, {n->seq, index});
    free_tasks.pop_back();
    tasks[index].node = n;
    return tasks[index];
  }
  Task* find(const Node* n) {
    auto at = std::lower_bound(queue.begin(), queue.end(), Waiting{n->seq, 0});
    return at != queue.end() && at->seq == n->seq ? &tasks[at->task] : nullptr;
  }
  // The latest task's contents; its place is free again.
  Task take_last() {
    uint32_t index = queue.back().task;
    queue.pop_back();
    free_tasks.push_back(index);
    Task& t = tasks[index];
    return Task{std::exchange(t.node, nullptr), std::move(t.first), std::move(t.rest)};
  }
  // A pass that threw leaves tasks behind.
  void clear() {
    while (!queue.empty()) take_last();
  }
};

constexpr size_t kKeepTasks = 4096;  // larger working memory is given back after the pass

// Backward may be called inside backward (hooks, checkpointing): each level has a Run of its own.
struct RunLease {
  Run* run = &PerThread<Run>::get();
  std::unique_ptr<Run> own;
  RunLease() {
    if (run->leased) [[unlikely]] {
      own = std::make_unique<Run>();
      run = own.get();
    }
    run->leased = true;
  }
  ~RunLease() {
    run->clear();
    if (run->tasks.size() > kKeepTasks) [[unlikely]]
      *run = Run();
    run->leased = false;
  }
};

// References held by a capture do not count.
[[gnu::cold, gnu::noinline]] bool only_captured(const Tensor& t) { return active_capture()->is_only_here(t); }
// True if the tensor's bytes have no other owner, so that a sum may be computed in place.
bool exclusively_ours(const Tensor& t) {
  bool single = t.impl()->unique() && t.impl()->storage->refs.load(std::memory_order_acquire) == 1;
  if (!single && (!(context().bits & kCapture) || !only_captured(t))) return false;
  const Storage& storage = *t.impl()->storage;
  return !t.impl()->base && storage.place != StoragePlace::external && !storage.on_free &&
         (t.meta().contiguous || t.meta().is_dense());
}

// True for a view of all of a tensor without other owners, for example a matmul result that is transposed back.
bool is_all_of_ours(const Tensor& t) {
  const TensorImpl* base = t.impl()->base;
  const Storage& storage = *t.impl()->storage;
  if (!base || t.requires_grad() || storage.place == StoragePlace::external || storage.on_free) return false;
  if (!t.meta().is_dense()) return false;
  if (static_cast<size_t>(t.numel()) * size_of(t.dtype()) != storage.nbytes) return false;
  bool single = t.impl()->unique() && base->unique() && storage.refs.load(std::memory_order_acquire) == 2;
  return single || (context().bits & kCapture && only_captured(t));
}
// The gradient itself where it is the leaf's alone. Also with create_graph: two leaves must not share a gradient, the
// next pass may add to one in place.
Tensor own_gradient(Tensor&& g, const Site& site) {
  if (exclusively_ours(g)) return std::move(g);
  if (is_all_of_ours(g)) return Tensor(make_alias(*g.impl(), g.meta(), 0));
  return g.clone(MemoryFormat::preserve, site);
}

void accumulate(Tensor& sum, Tensor&& value, bool create_graph, const Site& site) {
  if (!create_graph && exclusively_ours(sum)) {
    sum.add_(value, site);
  } else {
    sum = add(sum, value, site);
  }
}

[[gnu::always_inline]] inline void accumulate_into_leaf(TensorImpl& leaf, Tensor&& g, bool create_graph,
                                                        const Site& site) {
  LeafState& state = leaf_state(leaf);
  std::lock_guard lock(state.mutex);
  Tensor sum;
  if (!state.grad) {
    sum = own_gradient(std::move(g), site);
  } else {
    sum = Tensor(ImplPtr::share(state.grad));
    if (!create_graph && !sum.requires_grad()) {
      sum.add_(g, site);
      return;
    }
    sum = add(sum, g, site);
  }
  sum.set_memory_category(MemoryCategory::gradient);
  sum.impl()->retain();
  if (TensorImpl* old = std::exchange(state.grad, sum.impl())) old->release();
}

// Brings a formula's result to the input's shape and type, or explains what is wrong with it.
[[gnu::noinline]] void fit_gradient(Tensor& g, const Edge& edge, const Node& node, int index) {
  DEFT_CHECK(is_floating(g.dtype()), GradError,
             "{}: its gradient for input {} is {}, expected a floating type like the input's {}", node.type->name,
             index, name_of(g.dtype()), name_of(edge.dtype));
  if (!(g.sizes() == edge.sizes)) {
    const Shape& have = g.sizes();
    const Shape& want = edge.sizes;
    bool fits = have.size() >= want.size();
    for (int i = 1; fits && i <= want.size(); ++i) {
      int64_t h = have[have.size() - i], w = want[want.size() - i];
      fits = h == w || w == 1;
    }
    DEFT_CHECK(fits, GradError, "{}: its gradient for input {} has shape {}, expected {} (forward at {})",
               node.type->name, index, to_string(have), to_string(want), to_string(node.site));
    g = sum_to_size(g, edge.sizes, node.site);
  }
  if (g.dtype() != edge.dtype) g = g.to(edge.dtype, node.site);
}

void check_anomaly(const Tensor& g, const Node& node, int index) {
  DEFT_CHECK(!has_nan(g), GradError, "{}: its gradient for input {} holds NaN; its forward pass was at {}",
             node.type->name, index, to_string(node.site));
}

struct Engine {
  Engine(Run& r, bool create, bool keep) : run(r), create_graph(create), keep_graph(keep || create) {
    anomaly = (context().bits & kAnomaly) != 0;
  }

  Run& run;
  bool create_graph, keep_graph;
  bool anomaly;
  bool on_device = false;  // some formula ran on a device
  bool watched = false;    // core/observer.h
  // grad(): where to deliver. Empty for backward().
  struct Capture {
    Node* node;
    uint32_t output_nr;
    Tensor* result;
  };
  std::vector<Capture> captures;
  std::array<uint64_t, kMaxDevices> used_streams;   // only set where on_device is
  std::optional<std::unordered_set<Node*>> wanted;  // nodes that lead to a capture; only with captures
  CaptureHook* hook = nullptr;                      // of compile()

  bool leads_on(Node* n) const { return captures.empty() || wanted->count(n); }
  // Where grad() ends: the node of a requested tensor need not run, and keeps what it saved.
  bool any_input_wanted(Node& n) const {
    for (int i = 0; i < n.inputs; ++i)
      if (n.edges()[i].node && wanted->count(n.edges()[i].node)) return true;
    return false;
  }

  void push(Node* node, uint32_t output_nr, Tensor&& g, const Site& site) {
    Tensor& sum = run.task_for(node).grad(output_nr);
    if (!sum.defined()) [[likely]] {
      sum = std::move(g);
    } else {
      accumulate(sum, std::move(g), create_graph, site);
    }
  }

  [[gnu::noinline]] void run_hooks(Node& n, Task& task) {
    auto hooks = n.hooks->output;  // a copy: a hook may remove itself
    for (auto& h : hooks) {
      Tensor& g = task.grad(h.output_nr);
      if (!g.defined()) continue;
      const size_t recorded = hook ? hook->recorded_count() : 0;
      Tensor changed = h.call(g);
      if (hook && !(h.id & kRetainHook)) check_replayable(n, recorded, changed.defined());
      if (!changed.defined()) continue;
      check_hook_result(changed, g, n);
      g = std::move(changed);
    }
  }

  // A capture sees only the ops of a hook: a hook without ops would be lost.
  void check_replayable(const Node& n, size_t recorded, bool changed) const {
    DEFT_CHECK(
        changed || hook->recorded_count() != recorded, CaptureError,
        "capture: a hook on the gradient of {}{} calls no op and changes no gradient, so a replay would leave it "
        "out; remove it, or leave this function uncompiled",
        n.type->name, n.has(kNodeIsLeaf) ? "" : " (forward at " + to_string(n.site) + ")");
  }
  template <class F>
  void call_node_hook(const Node& n, std::vector<Tensor>& grads, F call) {
    if (!hook) return call();
    const size_t recorded = hook->recorded_count();
    std::vector<Tensor> before = grads;
    call();
    bool changed = before.size() != grads.size();
    for (size_t i = 0; !changed && i < grads.size(); ++i) changed = !grads[i].is_same(before[i]);
    check_replayable(n, recorded, changed);
  }

  static void check_hook_result(const Tensor& changed, const Tensor& g, const Node& n) {
    Site where = n.has(kNodeIsLeaf) ? Site{} : n.site;
    DEFT_CHECK(changed.defined() && changed.sizes() == g.sizes() && changed.dtype() == g.dtype() &&
                   changed.device() == g.device(),
               GradError, "{}: a hook returned a gradient {}, expected {}{}", n.type->name,
               changed.defined() ? describe(changed.meta()) : "(undefined)", describe(g.meta()),
               n.has(kNodeIsLeaf) ? std::string(" like the leaf's") : " (forward at " + to_string(where) + ")");
  }

  void finish_leaf(Node& n, Tensor&& g) {
    if (!captures.empty()) return;
    if (hook || n.hooks) [[unlikely]]
      return finish_with_hooks(n, std::move(g));
    accumulate_into_leaf(*n.owner, std::move(g), create_graph, n.site);
  }
  [[gnu::noinline]] void finish_with_hooks(Node& n, Tensor&& g) {
    if (hook) hook->leaf_grad(*n.owner);
    if (!n.hooks || n.hooks->around.empty()) return accumulate_into_leaf(*n.owner, std::move(g), create_graph, n.site);
    auto hooks = n.hooks->around;
    std::vector<Tensor> outs{std::move(g)}, none;
    for (auto& h : hooks)
      if (h.pre) call_pre(h, outs, n);
    accumulate_into_leaf(*n.owner, Tensor(outs[0]), create_graph, n.site);
    for (auto& h : hooks)
      if (h.post) call_node_hook(n, none, [&] { h.post(none, outs); });
  }

  void call_pre(NodeHooks::NodeHook& h, std::vector<Tensor>& outs, const Node& n) {
    std::vector<Tensor> before = outs;
    call_node_hook(n, outs, [&] { h.pre(outs); });
    DEFT_CHECK(outs.size() == before.size(), GradError, "{}: a node hook changed the number of gradients from {} to {}",
               n.type->name, before.size(), outs.size());
    for (size_t i = 0; i < outs.size(); ++i)
      if (before[i].defined()) check_hook_result(outs[i], before[i], n);
  }

  // The gradients collected for a node, handed on to its inputs.
  void step() {
    Task task = run.take_last();
    Node& n = *task.node;
    if (n.hooks) run_hooks(n, task);
    for (Capture& c : captures)
      if (c.node == &n && task.grad(c.output_nr).defined()) *c.result = task.grad(c.output_nr);
    if (n.has(kNodeIsLeaf)) {
      return finish_leaf(n, std::move(task.first));
    }
    if (!captures.empty() && !any_input_wanted(n)) return;
    int in = n.inputs, out = n.outputs;
    constexpr int kFew = 4;
    Tensor few[kFew];
    std::vector<Tensor> many;
    Tensor* grad_inputs = few;
    if (in + out > kFew) {
      many.resize(static_cast<size_t>(in + out));
      grad_inputs = many.data();
    }
    Tensor* grad_outputs = grad_inputs + in;
    for (int i = 0; i < out; ++i) grad_outputs[i] = std::move(task.grad(static_cast<uint32_t>(i)));
    if (n.hooks && !n.hooks->around.empty()) [[unlikely]] {
      run_with_hooks(n, grad_inputs, grad_outputs);
    } else {
      call_formula(n, grad_inputs, grad_outputs);
    }
    for (int i = 0; i < in; ++i) {
      Edge& edge = n.edges()[i];
      Tensor g = std::move(grad_inputs[i]);
      if (!edge.node || !g.defined() || !leads_on(edge.node)) continue;
      if (!(g.sizes() == edge.sizes) || g.dtype() != edge.dtype) [[unlikely]]
        fit_gradient(g, edge, n, i);
      if (anomaly) [[unlikely]]
        check_anomaly(g, n, i);
      push(edge.node, edge.output_nr, std::move(g), n.site);
    }
    if (keep_graph) return;
    n.release_saved();
    if (hook) [[unlikely]]
      hook->backward_ran(n);
  }

  // The formula and what follows it runs on the stream its op ran on. Gradients that come from other streams are waited
  // for there by the ops that read them; see Note [Stream order].
  [[gnu::noinline]] void use_stream(Device device, uint8_t stream) {
    if (!on_device) used_streams.fill(0);
    on_device = true;
    context().streams[static_cast<size_t>(device.index)] = stream;
    used_streams[static_cast<size_t>(device.index)] |= uint64_t{1} << stream;
  }
  // At the end the caller's stream waits for all of them, so that the gradients it finds are finished.
  [[gnu::noinline]] void join_streams(const ExecContext& caller) {
    for (size_t d = 0; d < kMaxDevices; ++d) {
      uint8_t own = caller.streams[d];
      for (uint64_t left = used_streams[d] & ~(uint64_t{1} << own); left; left &= left - 1)
        make_wait({DeviceType::cuda, static_cast<int8_t>(d)}, own, static_cast<uint8_t>(std::countr_zero(left)));
    }
  }

  void call_formula(Node& n, Tensor* grad_inputs, const Tensor* grad_outputs) {
    // Nodes that had nothing to free may run again, as in PyTorch.
    DEFT_CHECK(!n.has(kNodeReleased) || (n.saved == 0 && !n.type->destroy_payload), GradError,
               "{}: its saved tensors were freed by an earlier backward (forward at {}); pass retain_graph = true to "
               "that one, "
               "or run the forward pass again",
               n.type->name, to_string(n.site));
    if (n.outputs == 1 && !grad_outputs[0].defined()) return;
    if (!n.device.is_cpu()) [[unlikely]]
      use_stream(n.device, n.stream);
    SiteScope scope(n.site);
    VjpContext c{n, grad_outputs, grad_inputs, create_graph, this};
    if (watched) [[unlikely]]
      return call_watched(n, c);
    n.type->vjp(c);
  }
  [[gnu::cold, gnu::noinline]] static void call_watched(Node& n, VjpContext& c) {
    {
      Zone zone(n.type->name, Bucket::autograd, n.site);
      n.type->vjp(c);
    }
    if (Observer* o = observer()) o->node_ran(n);
  }

  // Hooks around a node and the search for NaN read its results.
  Tensor* sum_so_far(const Node& n, const Edge& edge, DType dtype) {
    if (create_graph || anomaly || (n.hooks && !n.hooks->around.empty()) || !leads_on(edge.node)) return nullptr;
    Task* task = run.find(edge.node);
    if (!task) return nullptr;
    Tensor& sum = task->grad(edge.output_nr);
    bool fits = sum.defined() && sum.dtype() == dtype && sum.sizes() == edge.sizes && exclusively_ours(sum);
    return fits ? &sum : nullptr;
  }

  [[gnu::noinline]] void run_with_hooks(Node& n, Tensor* grad_inputs, Tensor* grad_outputs) {
    std::vector<Tensor> outs(grad_outputs, grad_outputs + n.outputs);
    auto hooks = n.hooks->around;
    for (auto& h : hooks)
      if (h.pre) call_pre(h, outs, n);
    std::copy(outs.begin(), outs.end(), grad_outputs);
    call_formula(n, grad_inputs, grad_outputs);
    std::vector<Tensor> ins(grad_inputs, grad_inputs + n.inputs);
    for (auto& h : hooks)
      if (h.post) call_node_hook(n, ins, [&] { h.post(ins, outs); });
    DEFT_CHECK(ins.size() == n.inputs, GradError, "{}: a node hook changed the number of gradients from {} to {}",
               n.type->name, int{n.inputs}, ins.size());
    std::copy(ins.begin(), ins.end(), grad_inputs);
  }

  void loop() {
    while (!run.queue.empty()) step();
  }
};

}  // namespace

Tensor* VjpContext::sum_so_far(int i) const {
  const Edge& edge = node.edges()[i];
  return pass && edge.node ? static_cast<Engine*>(pass)->sum_so_far(node, edge, grad_outputs[0].dtype()) : nullptr;
}

namespace {

// Where the root's gradient goes in, or an error that says why there is no such place.
GradSource root_source(const Tensor& root, const char* who, const Site& site) {
  DEFT_CHECK(root.defined(), ValueError, "{}: a root is an undefined tensor", who);
  GradSource source = grad_source(*root.impl());
  if (!source.node) {
    DEFT_CHECK(is_floating(root.dtype()), GradError,
               "{}: the tensor {} has no graph: only floating tensors have gradients (called at {})", who,
               describe(root.meta()), to_string(site));
    if (Observer* o = observer()) o->refused(who, describe_missing_graph(*root.impl()), effective_site(site));
    DEFT_FAIL(GradError, "{}: the tensor {} has no graph: {} (called at {})", who, describe(root.meta()),
              describe_missing_graph(*root.impl()), to_string(site));
  }
  return source;
}

Tensor root_gradient(const Tensor& root, std::span<const Tensor> gradients, size_t i, const char* who,
                     const Site& site) {
  if (i < gradients.size() && gradients[i].defined()) {
    const Tensor& g = gradients[i];
    DEFT_CHECK(g.sizes() == root.sizes(), ShapeError, "{}: the gradient given has shape {}, the tensor has {}", who,
               to_string(g.sizes()), to_string(root.sizes()));
    DEFT_CHECK(g.device() == root.device(), DeviceError, "{}: the gradient given is on {}, the tensor on {}", who,
               to_string(g.device()), to_string(root.device()));
    return g.dtype() == root.dtype() ? g : g.to(root.dtype(), site);
  }
  DEFT_CHECK(root.numel() == 1, GradError,
             "{}: the tensor {} is not a scalar; pass a gradient of its shape, or reduce it with sum() or mean()", who,
             describe(root.meta()));
  if (root.dtype() == DType::f32 && root.device().is_cpu() && root.meta().contiguous) {  // the usual loss
    Tensor one(make_tensor(root.meta()));
    *static_cast<float*>(one.impl()->data) = 1;
    return one;
  }
  return ones_like(root, site);
}

// Nodes from which one of the captures can be reached.
void find_wanted(Engine& engine, std::span<const GradSource> roots) {
  std::unordered_set<Node*> targets, seen;
  engine.wanted.emplace();
  for (auto& c : engine.captures) targets.insert(c.node);
  struct Frame {
    Node* node;
    int next;
  };
  std::vector<Frame> stack;
  // Depth first, one root after the other, so that a node seen before is a node done; a node is wanted if it is a
  // target or one of its inputs is wanted.
  for (const GradSource& r : roots) {
    if (seen.insert(r.node.get()).second) stack.push_back({r.node.get(), 0});
    while (!stack.empty()) {
      Frame& f = stack.back();
      Node* n = f.node;
      if (f.next < n->inputs) {
        Node* child = n->edges()[f.next++].node;
        if (child && seen.insert(child).second) stack.push_back({child, 0});
        continue;
      }
      bool is_wanted = targets.count(n) != 0;
      for (int i = 0; !is_wanted && i < n->inputs; ++i) is_wanted = engine.wanted->count(n->edges()[i].node) != 0;
      if (is_wanted) engine.wanted->insert(n);
      stack.pop_back();
    }
  }
}

void run_engine(std::span<const Tensor> roots, std::span<const Tensor> gradients, Engine& engine, const char* who,
                const Site& site) {
  DEFT_CHECK(gradients.empty() || gradients.size() == roots.size(), ValueError, "{}: {} roots but {} gradients", who,
             roots.size(), gradients.size());
  GradSource one;  // the usual case
  std::vector<GradSource> many(roots.size() == 1 ? 0 : roots.size());
  std::span<GradSource> sources = roots.size() == 1 ? std::span<GradSource>(&one, 1) : std::span<GradSource>(many);
  for (size_t i = 0; i < roots.size(); ++i) sources[i] = root_source(roots[i], who, site);
  if (!engine.captures.empty()) find_wanted(engine, sources);
  // Backward's modes are its own: grad mode is create_graph, inference mode and autocast are off.
  struct Caller {
    const ExecContext context = deft::context();
    ~Caller() { deft::context() = context; }
  } caller;
  ExecContext& ctx = context();
  if (ctx.bits & kCapture) [[unlikely]]
    engine.hook = active_capture();
  ctx.bits &= ~(kInference | kGradOff | kAutocast);
  if (!engine.create_graph) {
    ctx.bits |= kGradOff;
    ctx.grad_site = site;
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    Tensor g = root_gradient(roots[i], gradients, i, who, site);
    engine.push(sources[i].node.get(), sources[i].output_nr, std::move(g), site);
  }
  struct Depth {
    Depth() { ++backward_depth; }
    ~Depth() { --backward_depth; }
  } depth;
  engine.loop();
  if (engine.on_device) engine.join_streams(caller.context);
}

}  // namespace

const NodeType kAccumulateGrad{"leaf", nullptr, nullptr};

bool in_backward() { return backward_depth > 0; }

namespace {

void run_backward(std::span<const Tensor> roots, std::span<const Tensor> gradients, const BackwardOptions& options,
                  const Site& site, bool watched) {
  RunLease lease;
  Engine engine(*lease.run, options.create_graph, options.retain_graph);
  engine.watched = watched;
  run_engine(roots, gradients, engine, "backward", site);
}

// Notifies the observer of a backward pass, of its end by an exception, too.
struct WatchedBackward {
  Zone zone;
  Observer* observer = deft::observer();
  WatchedBackward(std::span<const Tensor> roots, const BackwardOptions& options, const Site& site)
      : zone("backward", Bucket::autograd, site) {
    if (observer) observer->backward_begins(roots, options, effective_site(site));
  }
  ~WatchedBackward() {
    if (observer) observer->backward_ends();
  }
};

[[gnu::cold, gnu::noinline]] void backward_watched(std::span<const Tensor> roots, std::span<const Tensor> gradients,
                                                   const BackwardOptions& options, const Site& site) {
  WatchedBackward watched(roots, options, site);
  run_backward(roots, gradients, options, site, true);
}

}  // namespace

void backward(std::span<const Tensor> roots, std::span<const Tensor> gradients, BackwardOptions options, Site site) {
  if (context().bits & kProfile) [[unlikely]]
    return backward_watched(roots, gradients, options, site);
  run_backward(roots, gradients, options, site, false);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients, GradOptions options, Site site) {
  std::vector<Tensor> results(inputs.size());
  std::optional<WatchedBackward> watched;
  if (context().bits & kProfile)
    watched.emplace(outputs,
                    BackwardOptions{.retain_graph = options.retain_graph, .create_graph = options.create_graph}, site);
  RunLease lease;
  Engine engine(*lease.run, options.create_graph, options.retain_graph);
  engine.watched = watched.has_value();
  std::vector<GradSource> sources;  // keeps the nodes alive
  for (size_t i = 0; i < inputs.size(); ++i) {
    DEFT_CHECK(inputs[i].defined(), ValueError, "grad: input {} is an undefined tensor", i);
    sources.push_back(grad_source(*inputs[i].impl()));
    const GradSource& s = sources.back();
    DEFT_CHECK(s.node, GradError,
               "grad: input {} {} does not require grad; call requires_grad_() on it before the forward pass", i,
               describe(inputs[i].meta()));
    engine.captures.push_back({s.node.get(), s.output_nr, &results[i]});
  }
  run_engine(outputs, gradients, engine, "grad", site);
  for (size_t i = 0; i < results.size(); ++i)
    DEFT_CHECK(results[i].defined() || options.allow_unused, GradError,
               "grad: input {} {} does not take part in the outputs; pass allow_unused = true if that is intended", i,
               describe(inputs[i].meta()));
  return results;
}

}  // namespace deft
