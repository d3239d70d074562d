// A recorded op: where gradients go next, what was saved, and the formula. One pooled allocation per node:
// [Node][Edge x inputs][SavedTensor x saved][payload].
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/site.h"
#include "core/tensor_impl.h"
#include "runtime/context.h"

namespace deft {

class Tensor;
struct VjpContext;

// One input of a node: where its gradient goes and which shape and type that gradient must have.
struct Edge {
  Node* node = nullptr;  // owned; nullptr: this input needs no gradient
  uint32_t output_nr = 0;
  DType dtype = DType::f32;
  Device device;
  Shape sizes;
};

// A tensor kept for backward, with the version it had. Outputs are kept as a second header without grad_fn,
// so that node and result do not own each other.
struct CheckpointFrame;  // core/checkpoint.h
struct SavedTensor {
  union {
    TensorImpl* impl = nullptr;  // owned
    CheckpointFrame* frame;      // owned; `deferred`: entry number `version` of what the frame computes again
  };
  uint32_t version = 0;
  bool is_output = false;
  bool counted = false;
  bool deferred = false;
  uint8_t index = 0;  // which input or output; kSavedElse: neither

  // Keeps `t`, or leaves it to the checkpoint that is being recorded.
  void keep(TensorImpl* t, bool of_output, int number);
  void drop() noexcept;
  // The entry that holds the tensor: this one, or the checkpoint's (computed again if it must be).
  SavedTensor& resolve();
};
inline constexpr int kSavedElse = 255;
static_assert(sizeof(SavedTensor) == 16);

struct NodeHooks {
  // Gradient of one output, before the node runs; an undefined result leaves it as it is.
  struct OutputHook {
    uint32_t output_nr;
    uint64_t id;
    std::function<Tensor(const Tensor&)> call;
  };
  std::vector<OutputHook> output;
  // Around the node: pre(grad_outputs), post(grad_inputs, grad_outputs); may change them in place.
  struct NodeHook {
    uint64_t id;
    std::function<void(std::vector<Tensor>&)> pre;
    std::function<void(std::vector<Tensor>&, const std::vector<Tensor>&)> post;
  };
  std::vector<NodeHook> around;
};

// One per kind of node, constant.
struct NodeType {
  const char* name;
  void (*vjp)(VjpContext&);
  void (*destroy_payload)(Node&) noexcept;  // nullptr: payload is trivial
};

enum NodeFlags : uint8_t {
  kNodeReleased = 1 << 0,  // saved tensors were freed by a backward pass
  kNodeIsLeaf = 1 << 1,    // accumulator that lives inside a leaf's LeafState
};

struct Node {
  std::atomic<uint32_t> refs{1};
  uint8_t flags = 0;
  uint16_t inputs = 0;
  uint8_t outputs = 1;
  uint8_t saved = 0;
  Device device;       // of the outputs
  uint8_t stream = 0;  // of that device, which the op ran on: backward uses the same
  uint32_t step = 0;
  uint32_t block_bytes = 0;
  uint32_t payload_bytes = 0;
  uint64_t seq = 0;  // later ops have larger numbers: backward runs in descending order
  const NodeType* type = nullptr;
  Site site;  // the user's line
  NodeHooks* hooks = nullptr;
  TensorImpl* owner = nullptr;  // kNodeIsLeaf only: the leaf, not owned

  Edge* edges() { return reinterpret_cast<Edge*>(this + 1); }
  const Edge* edges() const { return reinterpret_cast<const Edge*>(this + 1); }
  SavedTensor* saved_tensors() { return reinterpret_cast<SavedTensor*>(edges() + inputs); }
  void* payload() { return saved_tensors() + saved; }
  template <class P>
  P& payload_as() {
    return *static_cast<P*>(payload());
  }
  bool has(NodeFlags f) const { return flags & f; }
  // Its formula will run on the stream that is current now.
  void runs_on(Device d) {
    if (d.is_cpu()) [[likely]]
      return;
    device = d;
    stream = context().streams[static_cast<size_t>(d.index)];
  }

  // A leaf's accumulator lives as long as the leaf: references to it are references to the leaf.
  void retain() noexcept {
    if (has(kNodeIsLeaf)) [[unlikely]]
      return owner->retain();
    refs.fetch_add(1, std::memory_order_relaxed);
  }
  void release() noexcept {
    if (has(kNodeIsLeaf)) [[unlikely]]
      return owner->release();
    if (refs.load(std::memory_order_acquire) == 1 || refs.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  // Saves `t` in slot `slot`.
  void save(int slot, TensorImpl* t, bool is_output, int index) { saved_tensors()[slot].keep(t, is_output, index); }
  // Frees saved tensors and payload; edges stay, so that errors can still name the node.
  void release_saved() noexcept;

 private:
  void destroy() noexcept;
};

// Edges and saved slots are empty, payload is uninitialised.
// What slot `slot` holds, connected to the graph if gradients are on. Throws InplaceError naming both sites if it was
// written since. Empty slots give an undefined tensor.
Tensor unpack_saved(Node& node, int slot);
// InferenceError if `t` may not be kept for backward.
void check_savable(const TensorImpl& t, const char* op, const Site& site);
NodePtr make_node(const NodeType* type, int inputs, int outputs, int saved, size_t payload_bytes, const Site& site);

// The edge through which gradients reach `t`: its grad_fn, its accumulator if it is a leaf, or nothing.
// Fills shape, dtype and device in any case.
void set_edge(Edge& edge, TensorImpl& t);
// Brings a view's grad_fn up to date after its base was written in place.
void refresh_view(TensorImpl& t);
[[gnu::always_inline]] inline bool needs_grad(TensorImpl& t) {
  if (t.base && t.view_version.load(std::memory_order_acquire) != t.storage->current_version()) [[unlikely]]
    refresh_view(t);
  return t.has(kRequiresGrad);
}

// Makes `t` output `output_nr` of `node`.
void set_history(TensorImpl& t, const NodePtr& node, uint32_t output_nr);
// The same after an in-place write; takes care of views and their bases.
void rebase_history(TensorImpl& t, const NodePtr& node, uint32_t output_nr);
// Throws if `t` may not be written in place now. `needs` says whether the write will be recorded.
void check_inplace(TensorImpl& t, bool recorded, const char* op, const Site& site);

}  // namespace deft
