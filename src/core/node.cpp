#include "core/node.h"

#include <new>

#include "base/check.h"
#include "core/checkpoint.h"
#include "core/core_ops.h"
#include "core/describe.h"
#include "core/graph_stats.h"
#include "core/hooks.h"
#include "core/leaf_state.h"
#include "core/observer.h"
#include "core/op.h"
#include "runtime/context.h"
#include "runtime/small_pool.h"

namespace deft {

// Leaves are numbered below all nodes: backward comes to them last.
constexpr uint64_t kFirstNode = uint64_t{1} << 62;

NodePtr make_node(const NodeType* type, int inputs, int outputs, int saved, size_t payload_bytes, const Site& site) {
  size_t bytes = sizeof(Node) + static_cast<size_t>(inputs) * sizeof(Edge) +
                 static_cast<size_t>(saved) * sizeof(SavedTensor) + payload_bytes;
  auto* n = new (allocate_small(bytes)) Node;
  n->inputs = static_cast<uint16_t>(inputs);
  n->outputs = static_cast<uint8_t>(outputs);
  n->saved = static_cast<uint8_t>(saved);
  n->block_bytes = static_cast<uint32_t>(bytes);
  n->payload_bytes = static_cast<uint32_t>(payload_bytes);
  n->type = type;
  n->site = site;
  for (int i = 0; i < inputs; ++i) n->edges()[i].node = nullptr;  // the rest is set_edge()'s
  for (int i = 0; i < saved; ++i) new (n->saved_tensors() + i) SavedTensor;
  n->seq = kFirstNode + count_node_created(n->step);
  return NodePtr::adopt(n);
}

void SavedTensor::keep(TensorImpl* t, bool of_output, int number) {
  is_output = of_output;
  index = static_cast<uint8_t>(number);
  if (CheckpointFrame* recording = detail::recording_frame) [[unlikely]] {
    if (detail::frame_takes(*recording, *this, *t)) return;
  }
  if (of_output) {
    // Another header on the same bytes: holding the output itself would be a cycle through its grad_fn.
    impl = make_alias(*t, t->meta, 0).detach();
  } else {
    t->retain();
    impl = t;
  }
  version = t->storage->current_version();
  counted = t->storage->add_saved();
}

void SavedTensor::drop() noexcept {
  if (!impl) return;
  if (deferred) {
    deferred = false;
    detail::frame_forget(*std::exchange(frame, nullptr), version);
    return;
  }
  if (counted) impl->storage->drop_saved();
  std::exchange(impl, nullptr)->release();
}

SavedTensor& SavedTensor::resolve() { return deferred ? detail::frame_entry(*frame, version) : *this; }

void Node::release_saved() noexcept {
  if (has(kNodeReleased)) return;
  if (!saved && !type->destroy_payload) return;  // nothing to free: such a node may run again
  for (int i = 0; i < saved; ++i) saved_tensors()[i].drop();
  if (type->destroy_payload) type->destroy_payload(*this);
  flags |= kNodeReleased;
}

void Node::destroy() noexcept {
  // Long chains are freed in a loop, not by recursion: a graph may be a million nodes deep.
  static thread_local Node* pending = nullptr;
  static thread_local bool draining = false;
  // The count is zero, so the seq field is free to carry the list link.
  seq = reinterpret_cast<uint64_t>(pending);
  pending = this;
  if (draining) return;
  draining = true;
  while (Node* n = pending) {
    pending = reinterpret_cast<Node*>(n->seq);
    n->release_saved();
    for (int i = 0; i < n->inputs; ++i)
      if (Node* next = n->edges()[i].node) next->release();
    delete n->hooks;
    count_node_freed(n->step);
    free_small(n, n->block_bytes);
  }
  draining = false;
}

GradSource grad_source(TensorImpl& t) {
  if (!is_floating(t.meta.dtype) || !needs_grad(t)) return {};
  if (t.grad_fn) return {NodePtr::share(t.grad_fn), t.output_nr};
  return {NodePtr::share(&leaf_state(t).accumulator), 0};
}

void set_edge(Edge& edge, TensorImpl& t) {
  edge.dtype = t.meta.dtype;
  edge.device = t.meta.device;
  edge.sizes = t.meta.sizes;
  GradSource source = grad_source(t);
  edge.node = source.node.detach();
  edge.output_nr = source.output_nr;
}

void set_history(TensorImpl& t, const NodePtr& node, uint32_t output_nr) {
  DEFT_DEBUG_ASSERT(!t.has(kInferenceTensor));
  node->retain();
  if (Node* old = std::exchange(t.grad_fn, node.get())) old->release();
  t.output_nr = output_nr;
  t.flags |= kRequiresGrad;
}

// --- Views and in-place writes ---------------------------------------------------------------------------------

namespace {

struct Region {
  Shape sizes, strides;
  int64_t offset;  // in elements from the base's first element
  Shape base_sizes, base_strides;
  int64_t base_span;  // 0: the base is row-major
};
Region region_of(const TensorImpl& view) {
  int64_t bytes = static_cast<char*>(view.data) - static_cast<char*>(view.base->data);
  const Meta& base = view.base->meta;
  return {view.meta.sizes, view.meta.strides, bytes / static_cast<int64_t>(size_of(view.meta.dtype)),
          base.sizes,      base.strides,      base.contiguous ? 0 : base.span()};
}

// Regions are places in the base's memory. Gradients have an order of their own, so those of bases that are not
// row-major are first laid out like the base's memory, and read back from there.
Tensor blank_memory(const Region& r, const TensorOptions& options, const Site& site) {
  return r.base_span ? zeros({r.base_span}, options, site) : zeros(r.base_sizes, options, site);
}
Tensor to_memory(const Region& r, const Tensor& grad, const Site& site) {
  if (!r.base_span) return grad.contiguous(MemoryFormat::contiguous, site);
  Tensor blank = blank_memory(r, {grad.dtype(), grad.device()}, site);
  return as_strided_scatter(blank, grad, r.base_sizes, r.base_strides, 0, site);
}
Tensor from_memory(const Region& r, const Tensor& memory, const Site& site) {
  return r.base_span ? as_strided(memory, r.base_sizes, r.base_strides, 0, site) : memory;
}

// Gradient of "read this region of the base".
void region_read_vjp(VjpContext& c) {
  const auto& r = c.node.payload_as<Region>();
  const Edge& base = c.node.edges()[0];
  const Site& site = c.node.site;
  Tensor blank = blank_memory(r, {base.dtype, base.device}, site);
  c.grad_in(0) = from_memory(r, as_strided_scatter(blank, c.grad(), r.sizes, r.strides, r.offset, site), site);
}
constexpr NodeType kRegionRead{"view", region_read_vjp, nullptr};

// Gradient of "the base, with a region rewritten by `inner`".
struct RegionWrite {
  Region region;
  Node* inner;  // owned
};
void region_write_vjp(VjpContext& c) {
  auto& w = c.node.payload_as<RegionWrite>();
  const Region& r = w.region;
  const Site& site = c.node.site;
  Tensor base_grad = to_memory(r, c.grad(), site);
  Tensor region_grad = as_strided(base_grad, r.sizes, r.strides, r.offset, site);
  std::vector<Tensor> inner_grads(w.inner->inputs);
  VjpContext inner{*w.inner, &region_grad, inner_grads.data(), c.create_graph};
  w.inner->type->vjp(inner);
  if (c.needs(0)) {
    Tensor through = inner_grads[0];
    if (!through.defined()) through = zeros(r.sizes, {base_grad.dtype(), base_grad.device()}, site);
    if (!(through.sizes() == r.sizes)) through = sum_to_size(through, r.sizes, site);
    c.grad_in(0) = from_memory(r, as_strided_scatter(base_grad, through, r.sizes, r.strides, r.offset, site), site);
  }
  for (int i = 1; i < c.input_count(); ++i)
    if (c.needs(i)) c.grad_in(i) = inner_grads[static_cast<size_t>(i)];
}
void destroy_region_write(Node& n) noexcept { n.payload_as<RegionWrite>().inner->release(); }
constexpr NodeType kRegionWrite{"in-place write to a view", region_write_vjp, destroy_region_write};

}  // namespace

void refresh_view(TensorImpl& t) {
  static std::mutex refreshing;  // threads may share a view
  std::lock_guard lock(refreshing);
  TensorImpl& base = *t.base;
  uint32_t now = t.storage->current_version();
  uint32_t made = t.view_version.load(std::memory_order_relaxed);
  auto publish = [&] { t.view_version.store(now, std::memory_order_release); };
  if (made == now) return;
  bool constant = t.view_origin == ViewOrigin::no_grad || t.view_origin == ViewOrigin::inference ||
                  t.view_origin == ViewOrigin::custom_function;
  bool recorded_since = static_cast<int32_t>(base.view_version.load(std::memory_order_relaxed) - made) > 0;
  if (constant || !recorded_since || !base.has(kRequiresGrad) || !base.grad_fn)
    return publish();  // its own history holds
  NodePtr node = make_node(&kRegionRead, 1, 1, 0, sizeof(Region), effective_site(t.site));
  node->runs_on(base.meta.device);
  set_edge(node->edges()[0], base);
  new (node->payload()) Region(region_of(t));
  set_history(t, node, 0);
  publish();
}

void rebase_history(TensorImpl& t, const NodePtr& node, uint32_t output_nr) {
  uint32_t now = t.storage->current_version();
  if (!t.base) {
    t.view_version.store(now, std::memory_order_relaxed);
    NodePtr before = NodePtr::share(t.grad_fn);
    uint32_t before_nr = t.output_nr;
    set_history(t, node, output_nr);
    if (before && before->hooks) [[unlikely]]
      move_retain_hooks(*before, before_nr, t);
    return;
  }
  TensorImpl& base = *t.base;
  NodePtr write = make_node(&kRegionWrite, node->inputs, 1, 0, sizeof(RegionWrite), node->site);
  write->runs_on(base.meta.device);
  set_edge(write->edges()[0], base);
  for (int i = 1; i < node->inputs; ++i) {
    write->edges()[i] = node->edges()[i];
    if (write->edges()[i].node) write->edges()[i].node->retain();
  }
  // The inner formula must compute the gradient of the region even if the base did not need one so far.
  if (!node->edges()[0].node && write->edges()[0].node) {
    write->edges()[0].node->retain();
    node->edges()[0].node = write->edges()[0].node;
  }
  node->retain();
  new (write->payload()) RegionWrite{region_of(t), node.get()};
  set_history(base, write, 0);
  base.view_version.store(now, std::memory_order_relaxed);
  t.view_version.store(now - 1, std::memory_order_relaxed);  // stale on purpose: refreshed from the base
  refresh_view(t);
}

void check_inplace(TensorImpl& t, bool recorded, const char* op, const Site& site) {
  const ExecContext& ctx = context();
  if (t.has(kInferenceTensor)) {
    if (Observer* o = ctx.bits & kInference ? nullptr : observer())
      o->refused(op, "an inference tensor cannot be written in place outside of inference_mode", effective_site(site));
    DEFT_CHECK(
        ctx.bits & kInference, InferenceError,
        "{}: a tensor {} made inside inference_mode cannot be written in place outside of it (at {}); clone() it first",
        op, describe(t), to_string(site));
    return;
  }
  DEFT_CHECK(
      !t.meta.overlaps_itself(), InplaceError,
      "{}: a tensor {} whose elements share memory (an expanded view) cannot be written in place; clone() it first", op,
      describe(t));
  if (ctx.bits & (kGradOff | kInference)) return;
  bool leaf_with_grad = t.has(kRequiresGrad) && !t.grad_fn;
  DEFT_CHECK(!leaf_with_grad, InplaceError,
             "{}: a leaf {} that requires grad is written in place at {}; do it inside a NoGradGuard, or on a clone()",
             op, describe(t), to_string(site));
  if (!t.base) return;
  bool tracks = recorded || t.base->has(kRequiresGrad);
  if (!tracks) return;
  DEFT_CHECK(
      !(t.base->has(kRequiresGrad) && !t.base->grad_fn), InplaceError,
      "{}: a view (made at {}) of a leaf that requires grad is written in place at {}; do it inside a NoGradGuard, or "
      "on a clone()",
      op, to_string(t.site), to_string(site));
  DEFT_CHECK(
      t.view_origin != ViewOrigin::no_grad, InplaceError,
      "{}: a view made at {} under no_grad is written at {} with gradients on; make the view and the write in the same "
      "mode",
      op, to_string(t.site), to_string(site));
  DEFT_CHECK(
      t.view_origin != ViewOrigin::inference, InplaceError,
      "{}: a view made at {} inside inference_mode is written at {} with gradients on; make the view outside of it", op,
      to_string(t.site), to_string(site));
  DEFT_CHECK(
      t.view_origin != ViewOrigin::custom_function, InplaceError,
      "{}: a view returned by a custom function at {} is written in place at {} with gradients on; clone() it first",
      op, to_string(t.site), to_string(site));
  DEFT_CHECK(t.view_origin != ViewOrigin::multi_output, InplaceError,
             "{}: one of several views made together at {} (split, chunk or unbind) is written in place at {} with "
             "gradients on; "
             "use narrow() or select(), or write out of place",
             op, to_string(t.site), to_string(site));
}

// --- Leaves ----------------------------------------------------------------------------------------------------

LeafState& make_leaf_state(TensorImpl& t) {
  static std::mutex making;
  std::lock_guard lock(making);
  LeafState* state = t.leaf.load(std::memory_order_relaxed);
  if (!state) {
    state = new LeafState;
    Node& n = state->accumulator;
    n.flags = kNodeIsLeaf;
    n.type = &kAccumulateGrad;
    n.owner = &t;
    static std::atomic<uint64_t> leaves{0};
    n.seq = leaves.fetch_add(1, std::memory_order_relaxed);
    t.leaf.store(state, std::memory_order_release);
  }
  return *state;
}

void delete_leaf_state(LeafState* state) noexcept {
  if (state->on_death) state->on_death();
  if (state->grad) state->grad->release();
  delete state->accumulator.hooks;
  delete state;
}

}  // namespace deft
