// The tensor header. Small tensors have header, storage and bytes in one pooled block.
#pragma once

#include <atomic>

#include "base/intrusive_ptr.h"
#include "base/site.h"
#include "core/shape.h"
#include "core/storage.h"

namespace deft {

struct Node;
struct LeafState;  // gradient, accumulator and hooks of a leaf: core/leaf_state.h

enum TensorFlags : uint8_t {
  kRequiresGrad = 1 << 0,     // leaf that asked for it, or result of a recorded op
  kInferenceTensor = 1 << 1,  // made inside inference_mode: no versions, no view tracking
  kOwnsBlock = 1 << 2,        // header lies in its storage's block and goes with it
  kMadeWithGradOff = 1 << 3,  // result of an op under no_grad or inference_mode; `site` says who turned gradients off
  kDetached = 1 << 4,         // by detach(), at `site`
};

// How a view came to be: decides whether it may be written in place with gradients on.
enum class ViewOrigin : uint8_t { tracked, no_grad, multi_output, inference, custom_function };

struct TensorImpl {
  std::atomic<uint32_t> refs{1};
  uint8_t flags = 0;
  ViewOrigin view_origin = ViewOrigin::tracked;
  uint32_t output_nr = 0;  // which output of grad_fn
  // Views: storage version at which grad_fn was made. Others: version after the last recorded write through a view or
  // in place, so that views know whether they are older. Relaxed: threads may share a view whose base was updated.
  std::atomic<uint32_t> view_version{0};
  uint32_t block_bytes = 0;  // of the header's own block, when it does not lie in the storage's
  void* data = nullptr;
  Storage* storage = nullptr;
  Node* grad_fn = nullptr;                // owned
  TensorImpl* base = nullptr;             // owned; the tensor this one is a view of, never itself a view
  std::atomic<LeafState*> leaf{nullptr};  // owned
  Site site;                              // views: where they were made; others: see kMadeWithGradOff and kDetached
  Meta meta;

  explicit TensorImpl(const Meta& m) : meta(m) {}
  void retain() noexcept { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs.load(std::memory_order_acquire) == 1 || refs.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  bool has(TensorFlags f) const { return flags & f; }
  bool unique() const { return refs.load(std::memory_order_acquire) == 1; }

 private:
  void destroy() noexcept;
};

using ImplPtr = IntrusivePtr<TensorImpl>;
using NodePtr = IntrusivePtr<Node>;

// A new tensor with storage of its own. Strides of `meta` must be dense. Bytes are not initialised.
ImplPtr make_tensor(const Meta& meta);
// Another header on the same storage; `offset` in elements from the source's first element.
ImplPtr make_alias(const TensorImpl& source, const Meta& meta, int64_t offset);
// In pinned host memory, which devices copy from and to without the host waiting.
ImplPtr make_pinned(const Meta& meta);
// Around memory that Deft does not own.
ImplPtr make_external(void* data, const Meta& meta, std::function<void()> on_free);

}  // namespace deft
