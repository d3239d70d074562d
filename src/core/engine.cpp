#include "core/engine.h"

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "base/check.h"
#include "core/core_ops.h"
#include "core/describe.h"
#include "core/grad_mode.h"
#include "core/leaf_state.h"
#include "core/op.h"

namespace deft {

namespace {

thread_local int backward_depth = 0;

// A node waiting for its turn, with the gradients of its outputs summed so far.
struct Task {
  Node* node = nullptr;  // owned
  Tensor first;          // gradient of output 0
  std::vector<Tensor> rest;
  Tensor& grad(uint32_t i) {
    if (i == 0) return first;
    if (rest.size() < i) rest.resize(i);
    return rest[i - 1];
  }
};

// Working memory of one backward pass. Kept between passes so that steady state allocates nothing.
struct Run {
  std::vector<Task> tasks;
  std::vector<uint32_t> free_tasks;
  struct Waiting {
    uint64_t seq;
    uint32_t task;
    bool operator<(const Waiting& o) const { return seq < o.seq; }
  };
  std::vector<Waiting> queue;  // max-heap: the latest op first
  // Open addressing from node to task.
  std::vector<std::pair<Node*, uint32_t>> table;
  size_t used = 0;
  std::vector<Tensor> grad_outputs, grad_inputs;

  std::pair<Node*, uint32_t>* slot(Node* n) {
    size_t mask = table.size() - 1;
    size_t h = (reinterpret_cast<uintptr_t>(n) >> 6) * 0x9E3779B97F4A7C15ull >> 20;
    for (size_t i = h & mask;; i = (i + 1) & mask)
      if (table[i].first == n || !table[i].first) return &table[i];
  }
  void grow() {
    auto old = std::move(table);
    table.assign(old.empty() ? 64 : old.size() * 2, {nullptr, 0});
    for (auto& e : old)
      if (e.first) *slot(e.first) = e;
  }
  Task& task_for(Node* n) {
    if (2 * used >= table.size()) grow();
    auto* s = slot(n);
    if (!s->first) {
      uint32_t index;
      if (free_tasks.empty()) {
        index = static_cast<uint32_t>(tasks.size());
        tasks.emplace_back();
      } else {
        index = free_tasks.back();
        free_tasks.pop_back();
      }
      *s = {n, index};
      ++used;
      n->retain();
      tasks[index].node = n;
      queue.push_back({n->seq, index});
      std::push_heap(queue.begin(), queue.end());
    }
    return tasks[s->second];
  }
  void clear() {
    for (Task& t : tasks) {
      if (t.node) std::exchange(t.node, nullptr)->release();
      t.first = Tensor();
      t.rest.clear();
    }
    free_tasks.clear();
    for (uint32_t i = 0; i < tasks.size(); ++i) free_tasks.push_back(i);
    queue.clear();
    std::fill(table.begin(), table.end(), std::pair<Node*, uint32_t>{nullptr, 0});
    used = 0;
    grad_outputs.clear();
    grad_inputs.clear();
  }
};

constexpr size_t kKeepTable = 4096;  // larger working memory is given back after the pass

// Backward may be called inside backward (hooks, checkpointing): each level has a Run of its own.
struct RunLease {
  static std::vector<std::unique_ptr<Run>>& idle() {
    static thread_local std::vector<std::unique_ptr<Run>> runs;
    return runs;
  }
  std::unique_ptr<Run> run;
  RunLease() {
    if (idle().empty()) {
      run = std::make_unique<Run>();
    } else {
      run = std::move(idle().back());
      idle().pop_back();
    }
  }
  ~RunLease() {
    run->clear();
    if (run->table.size() <= kKeepTable) idle().push_back(std::move(run));
  }
};

// True if nobody else can see the tensor's bytes, so that a sum may be made in place.
bool exclusively_ours(const Tensor& t) {
  return t.impl()->unique() && !t.impl()->base && t.impl()->storage->refs.load(std::memory_order_acquire) == 1 &&
         t.impl()->storage->place != StoragePlace::external;
}

void accumulate(Tensor& sum, Tensor&& value, bool create_graph, const Site& site) {
  if (!sum.defined()) {
    sum = std::move(value);
  } else if (!create_graph && exclusively_ours(sum) && sum.dtype() == value.dtype()) {
    sum.add_(value, site);
  } else {
    sum = add(sum, value, site);
  }
}

void accumulate_into_leaf(TensorImpl& leaf, Tensor&& g, bool create_graph, const Site& site) {
  LeafState& state = leaf_state(leaf);
  std::lock_guard lock(state.mutex);
  Tensor sum(ImplPtr::share(state.grad));
  if (!sum.defined()) {
    if (create_graph || (exclusively_ours(g) && g.meta().is_dense())) {
      sum = std::move(g);
    } else {
      sum = g.clone(MemoryFormat::preserve, site);
    }
  } else {
    if (!create_graph && !sum.requires_grad()) {
      sum.add_(g, site);
    } else {
      sum = add(sum, g, site);
    }
  }
  sum.set_memory_category(MemoryCategory::gradient);
  if (sum.impl() == state.grad) return;
  if (TensorImpl* old = std::exchange(state.grad, sum.impl())) old->release();
  state.grad->retain();
}

// Brings a formula's result to the input's shape and type, or explains what is wrong with it.
void fit_gradient(Tensor& g, const Edge& edge, const Node& node, int index) {
  if (g.sizes() == edge.sizes && g.dtype() == edge.dtype) [[likely]] return;
  DEFT_CHECK(is_floating(g.dtype()), GradError, "{}: its gradient for input {} is {}, expected a floating type like the input's {}",
             node.type->name, index, name_of(g.dtype()), name_of(edge.dtype));
  if (!(g.sizes() == edge.sizes)) {
    const Shape& have = g.sizes();
    const Shape& want = edge.sizes;
    bool fits = have.size() >= want.size();
    for (int i = 1; fits && i <= want.size(); ++i) {
      int64_t h = have[have.size() - i], w = want[want.size() - i];
      fits = h == w || w == 1;
    }
    DEFT_CHECK(fits, GradError, "{}: its gradient for input {} has shape {}, expected {} (forward at {})", node.type->name, index,
               to_string(have), to_string(want), to_string(node.site));
    g = sum_to_size(g, edge.sizes, node.site);
  }
  if (g.dtype() != edge.dtype) g = g.to(edge.dtype, node.site);
}

void check_anomaly(const Tensor& g, const Node& node, int index) {
  DEFT_CHECK(!has_nan(g), GradError, "{}: its gradient for input {} holds NaN; its forward pass was at {}", node.type->name, index,
             to_string(node.site));
}

struct Engine {
  Run& run;
  bool create_graph, keep_graph;
  bool anomaly;
  // grad(): where to deliver. Empty for backward().
  struct Capture {
    Node* node;
    uint32_t output_nr;
    Tensor* result;
  };
  std::vector<Capture> captures;
  std::unordered_set<Node*> wanted;  // nodes that lead to a capture; only used with captures

  bool leads_on(Node* n) const { return captures.empty() || wanted.count(n); }

  void push(const Edge& edge, Tensor&& g, const Site& site) {
    accumulate(run.task_for(edge.node).grad(edge.output_nr), std::move(g), create_graph, site);
  }

  void run_hooks(Node& n, Task& task) {
    for (auto& h : n.hooks->output) {
      Tensor& g = task.grad(h.output_nr);
      if (!g.defined()) continue;
      Tensor changed = h.call(g);
      if (!changed.defined()) continue;
      DEFT_CHECK(changed.sizes() == g.sizes(), GradError, "{}: a hook returned a gradient of shape {}, expected {}", n.type->name,
                 to_string(changed.sizes()), to_string(g.sizes()));
      g = std::move(changed);
    }
  }

  // The gradients collected for a node, handed on to its inputs.
  void step(uint32_t task_index) {
    Task task = std::move(run.tasks[task_index]);
    run.tasks[task_index] = Task{};
    run.free_tasks.push_back(task_index);
    NodePtr node = NodePtr::adopt(task.node);
    Node& n = *node;
    if (n.hooks) run_hooks(n, task);
    for (Capture& c : captures)
      if (c.node == &n && task.grad(c.output_nr).defined()) *c.result = task.grad(c.output_nr);
    if (n.has(kNodeIsLeaf)) {
      if (captures.empty()) accumulate_into_leaf(*n.owner, std::move(task.first), create_graph, n.site);
      return;
    }
    if (!leads_on(&n)) return;
    size_t in = n.inputs, out = n.outputs;
    size_t in_base = run.grad_inputs.size(), out_base = run.grad_outputs.size();
    run.grad_inputs.resize(in_base + in);
    run.grad_outputs.resize(out_base + out);
    for (uint32_t i = 0; i < out; ++i) run.grad_outputs[out_base + i] = std::move(task.grad(i));
    if (n.hooks && !n.hooks->around.empty()) [[unlikely]] {
      run_with_hooks(n, in_base, out_base);
    } else {
      call_formula(n, in_base, out_base);
    }
    for (size_t i = 0; i < in; ++i) {
      Edge& edge = n.edges()[i];
      Tensor g = std::move(run.grad_inputs[in_base + i]);
      if (!edge.node || !g.defined() || !leads_on(edge.node)) continue;
      fit_gradient(g, edge, n, static_cast<int>(i));
      if (anomaly) [[unlikely]] check_anomaly(g, n, static_cast<int>(i));
      push(edge, std::move(g), n.site);
    }
    run.grad_inputs.resize(in_base);
    run.grad_outputs.resize(out_base);
    if (!keep_graph) n.release_saved();
  }

  void call_formula(Node& n, size_t in_base, size_t out_base) {
    DEFT_CHECK(!n.has(kNodeReleased), GradError,
               "{}: its saved tensors were freed by an earlier backward (forward at {}); pass retain_graph = true to that one, "
               "or run the forward pass again",
               n.type->name, to_string(n.site));
    if (n.outputs == 1 && !run.grad_outputs[out_base].defined()) return;
    SiteScope scope(n.site);
    VjpContext c{n, run.grad_outputs.data() + out_base, run.grad_inputs.data() + in_base, create_graph};
    n.type->vjp(c);
  }

  void run_with_hooks(Node& n, size_t in_base, size_t out_base) {
    std::vector<Tensor> outs(run.grad_outputs.begin() + static_cast<int64_t>(out_base), run.grad_outputs.end());
    for (auto& h : n.hooks->around)
      if (h.pre) h.pre(outs);
    std::copy(outs.begin(), outs.end(), run.grad_outputs.begin() + static_cast<int64_t>(out_base));
    call_formula(n, in_base, out_base);
    std::vector<Tensor> ins(run.grad_inputs.begin() + static_cast<int64_t>(in_base), run.grad_inputs.end());
    for (auto& h : n.hooks->around)
      if (h.post) h.post(ins, outs);
    std::copy(ins.begin(), ins.end(), run.grad_inputs.begin() + static_cast<int64_t>(in_base));
  }

  void loop() {
    while (!run.queue.empty()) {
      std::pop_heap(run.queue.begin(), run.queue.end());
      uint32_t task = run.queue.back().task;
      run.queue.pop_back();
      step(task);
    }
  }
};

// The root's edge, or an error that says why there is none.
Edge root_edge(const Tensor& root, const char* who, const Site& site) {
  DEFT_CHECK(root.defined(), ValueError, "{}: a root is an undefined tensor", who);
  Edge e;
  set_edge(e, *root.impl());
  if (!e.node) {
    std::string why = describe_grad_mode();
    DEFT_CHECK(is_floating(root.dtype()), GradError, "{}: a root is {}; only floating tensors have gradients", who,
               describe(root.meta()));
    DEFT_FAIL(GradError, "{}: the tensor {} has no graph: {} (called at {})", who, describe(root.meta()),
              why.empty() ? "no input of the ops that made it required grad, or it was made under no_grad" : why,
              to_string(site));
  }
  return e;
}

Tensor root_gradient(const Tensor& root, const std::vector<Tensor>& gradients, size_t i, const char* who, const Site& site) {
  if (i < gradients.size() && gradients[i].defined()) {
    const Tensor& g = gradients[i];
    DEFT_CHECK(g.sizes() == root.sizes(), ShapeError, "{}: the gradient given has shape {}, the tensor has {}", who,
               to_string(g.sizes()), to_string(root.sizes()));
    DEFT_CHECK(g.device() == root.device(), DeviceError, "{}: the gradient given is on {}, the tensor on {}", who,
               to_string(g.device()), to_string(root.device()));
    return g;
  }
  DEFT_CHECK(root.numel() == 1, GradError,
             "{}: the tensor {} is not a scalar; pass a gradient of its shape, or reduce it with sum() or mean()", who,
             describe(root.meta()));
  return ones_like(root, site);
}

// Nodes from which one of the captures can be reached.
void find_wanted(Engine& engine, const std::vector<Edge>& roots) {
  std::unordered_set<Node*> targets, seen;
  for (auto& c : engine.captures) targets.insert(c.node);
  struct Frame {
    Node* node;
    int next;
  };
  std::vector<Frame> stack;
  for (const Edge& r : roots)
    if (seen.insert(r.node).second) stack.push_back({r.node, 0});
  // Depth first; a node is wanted if it is a target or one of its inputs is wanted.
  while (!stack.empty()) {
    Frame& f = stack.back();
    Node* n = f.node;
    if (f.next < n->inputs) {
      Node* child = n->edges()[f.next++].node;
      if (child && seen.insert(child).second) stack.push_back({child, 0});
      continue;
    }
    bool is_wanted = targets.count(n) != 0;
    for (int i = 0; !is_wanted && i < n->inputs; ++i) is_wanted = engine.wanted.count(n->edges()[i].node) != 0;
    if (is_wanted) engine.wanted.insert(n);
    stack.pop_back();
  }
}

void run_engine(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients, Engine& engine, const char* who,
                const Site& site) {
  DEFT_CHECK(gradients.empty() || gradients.size() == roots.size(), ValueError, "{}: {} roots but {} gradients", who,
             roots.size(), gradients.size());
  // Backward's modes are its own: grad mode is create_graph, inference mode is off.
  ExecContext ctx = context();
  ctx.bits &= ~(kInference | kGradOff);
  if (!engine.create_graph) {
    ctx.bits |= kGradOff;
    ctx.grad_site = site;
  }
  std::vector<Edge> edges;
  struct ReleaseEdges {
    std::vector<Edge>& edges;
    ~ReleaseEdges() {
      for (Edge& e : edges) e.node->release();
    }
  } release{edges};
  for (const Tensor& r : roots) edges.push_back(root_edge(r, who, site));
  if (!engine.captures.empty()) find_wanted(engine, edges);
  ContextGuard guard(ctx);
  for (size_t i = 0; i < roots.size(); ++i) {
    Tensor g = root_gradient(roots[i], gradients, i, who, site);
    engine.push(edges[i], std::move(g), site);
  }
  struct Depth {
    Depth() { ++backward_depth; }
    ~Depth() { --backward_depth; }
  } depth;
  engine.loop();
}

}  // namespace

const NodeType kAccumulateGrad{"leaf", nullptr, nullptr};

bool in_backward() { return backward_depth > 0; }

void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients, BackwardOptions options, Site site) {
  RunLease lease;
  Engine engine{*lease.run, options.create_graph, options.retain_graph || options.create_graph,
                (context().bits & kAnomaly) != 0, {}, {}};
  run_engine(roots, gradients, engine, "backward", site);
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients, GradOptions options, Site site) {
  std::vector<Tensor> results(inputs.size());
  RunLease lease;
  Engine engine{*lease.run, options.create_graph, options.retain_graph || options.create_graph,
                (context().bits & kAnomaly) != 0, {}, {}};
  std::vector<Edge> held;
  struct ReleaseEdges {
    std::vector<Edge>& edges;
    ~ReleaseEdges() {
      for (Edge& e : edges) e.node->release();
    }
  } release{held};
  for (size_t i = 0; i < inputs.size(); ++i) {
    DEFT_CHECK(inputs[i].defined(), ValueError, "grad: input {} is an undefined tensor", i);
    Edge e;
    set_edge(e, *inputs[i].impl());
    DEFT_CHECK(e.node, GradError, "grad: input {} {} does not require grad; call requires_grad_() on it before the forward pass", i,
               describe(inputs[i].meta()));
    held.push_back(e);
    engine.captures.push_back({e.node, e.output_nr, &results[i]});
  }
  run_engine(outputs, gradients, engine, "grad", site);
  for (size_t i = 0; i < results.size(); ++i)
    DEFT_CHECK(results[i].defined() || options.allow_unused, GradError,
               "grad: input {} {} does not take part in the outputs; pass allow_unused = true if that is intended", i,
               describe(inputs[i].meta()));
  return results;
}

}  // namespace deft
