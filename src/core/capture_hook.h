// How ops notify a capture. kCapture is a slow-path bit, so ops that nobody captures pay nothing.
#pragma once

#include <functional>
#include <span>

#include "core/op.h"

namespace deft {

// Gets every op of the thread it is installed on, in order, after it ran, without ops inside kernels.
class CaptureHook {
 public:
  virtual ~CaptureHook() = default;
  virtual void op(const OpDef& def, const Tensor* const* inputs, int count, const Tensor* outputs, const void* params,
                  const Site& site) = 0;
  // Before and after an op writes inputs[0] in place.
  virtual void before_write(const OpDef& def, const Tensor* const* inputs, int count, const Site& site) = 0;
  virtual void write(const OpDef& def, const Tensor* const* inputs, int count, const void* params,
                     const Site& site) = 0;
  virtual void view(const OpDef& def, const Tensor& x, const Tensor& out, const void* params, const Site& site) = 0;
  // Code that keeps a state of its own ran: the first `written` of the tensors were written, the others read. A replay
  // calls `run` with the tensors that take their places.
  virtual void outside_call(const char* name, std::span<const Tensor> tensors, size_t written,
                            std::function<void(std::span<const Tensor>)> run, const Site& site) = 0;
  // Values are about to be read by the host: what comes after may depend on them.
  virtual void host_read(const char* what, const Tensor& x, const Site& site) = 0;
  // Whether its values stay what they are: the host may read them, and a replay is guarded by them.
  virtual bool is_constant(const Tensor& x) const = 0;

  // --- Gradients
  // The .grad of a leaf is about to be read, written, replaced or taken away.
  virtual void leaf_grad(TensorImpl& leaf) = 0;
  // A node handed its gradients on and gave up what it saved.
  virtual void backward_ran(const Node& node) = 0;
  // Nobody but the caller and this capture holds the tensor or its memory.
  virtual bool is_only_here(const Tensor& x) const = 0;
  // The number of ops, writes, views and calls recorded so far.
  virtual size_t recorded_count() const = 0;

  // A header without history was made on the memory of `x`, by detach(): that is no op, so no other call reports it.
  virtual void detached(const Tensor& x) = 0;
  // `copy` holds a part of `x` that eager mode shows as a view: a write to either would not reach the other.
  virtual void copied_view(const Tensor& x, const Tensor& copy) = 0;
};

// Installs a hook on this thread. Captures do not nest: ValueError.
class CaptureScope {
 public:
  explicit CaptureScope(CaptureHook& hook);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
};

// nullptr unless this thread captures and is not inside a kernel.
CaptureHook* active_capture();

// These notify the capture, if there is one.
inline void note_host_read(const char* what, const Tensor& x, const Site& site) {
  if (context().bits & kCapture) [[unlikely]]
    active_capture()->host_read(what, x, site);
}
inline void note_detached(const Tensor& x) {
  if (context().bits & kCapture) [[unlikely]]
    active_capture()->detached(x);
}
inline void note_leaf_grad(TensorImpl& leaf) {
  if (detail::exec_context.bits & kCapture) [[unlikely]]  // a fresh thread captures nothing
    active_capture()->leaf_grad(leaf);
}

namespace detail {

// The op and what its kernel calls run uncaptured.
class CapturePause {
 public:
  CapturePause() { context().bits &= ~static_cast<uint32_t>(kCapture); }
  ~CapturePause() { context().bits |= kCapture; }
  CapturePause(const CapturePause&) = delete;
  CapturePause& operator=(const CapturePause&) = delete;
};

}  // namespace detail

}  // namespace deft
