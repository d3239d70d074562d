#include "core/tensor.h"

#include "core/capture_hook.h"

#include "base/check.h"
#include "core/core_ops.h"
#include "core/derived_cache.h"
#include "core/describe.h"
#include "core/engine.h"
#include "core/graph_stats.h"
#include "core/leaf_state.h"
#include "core/observer.h"
#include "core/op.h"
#include "runtime/context.h"
#include "runtime/stream.h"

namespace deft {

void Tensor::throw_undefined() {
  DEFT_FAIL(ValueError, "tensor: it is undefined and has no sizes, type or data; give it a value first");
}

int64_t Tensor::size(int64_t dim, Site) const {
  return sizes()[static_cast<int>(normalize_dim(dim, this->dim(), "size"))];
}
int64_t Tensor::stride(int64_t dim) const {
  return strides()[static_cast<int>(normalize_dim(dim, this->dim(), "stride"))];
}

int64_t Tensor::storage_offset() const {
  return (static_cast<char*>(held().data) - static_cast<char*>(impl_->storage->data)) /
         static_cast<int64_t>(element_size());
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  return format == MemoryFormat::channels_last ? meta().is_channels_last() : meta().contiguous;
}

uint32_t Tensor::version() const {
  DEFT_CHECK(!is_inference(), InferenceError, "version: a tensor made inside inference_mode has no version counter");
  return impl_->storage->current_version();
}

void Tensor::wait_for_host_access() const {
  DeviceMemory& memory = *impl_->storage->memory;
  if (device().is_cpu() && memory.in_flight.load(std::memory_order_acquire)) wait_for_copies(memory);
}

void Tensor::note_pointer() const { note_host_read("data_ptr", *this, Site()); }

void Tensor::check_dtype(DType wanted, bool writable) const {
  DEFT_CHECK(defined(), ValueError, "data: the tensor is undefined");
  DEFT_CHECK(dtype() == wanted, DTypeError, "data: the tensor holds {}, not {}; convert it with to()", name_of(dtype()),
             name_of(wanted));
  // The pointer may be written through.
  if (writable) impl_->storage->exposed.fetch_add(1, std::memory_order_release);
  note_host_read("data", *this, Site());
  if (!writable) return;
  if (impl_->storage->place.load(std::memory_order_relaxed) == StoragePlace::known_buffer) [[unlikely]]
    forget_derived(*impl_->storage);
}

Scalar Tensor::item_scalar(Site site) const {
  DEFT_CHECK(defined(), ValueError, "item: the tensor is undefined");
  DEFT_CHECK(numel() == 1, ShapeError, "item: needs a tensor of one element, found {} (at {})", describe(meta()),
             deft::to_string(site));
  note_host_read("item", *this, site);
  if (!device().is_cpu()) {
    return detail::to_host(*this, "item", site).item_scalar(site);
  }
  Scalar found = dispatch_all(dtype(), [&]<class T>() -> Scalar {
    T v = *static_cast<const T*>(host_data());
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
      return Scalar(static_cast<float>(v));
    else
      return Scalar(v);
  });
  if (Observer* o = observer()) [[unlikely]]
    o->host_read(*this, found.to_double(), effective_site(site));
  return found;
}

template <class T>
std::vector<T> Tensor::to_vector(Site site) const {
  note_host_read("to_vector", *this, site);
  Tensor c = detach();
  if (!device().is_cpu()) c = detail::to_host(c, "to_vector", site);
  c = c.to(dtype_of<T>).contiguous();
  const T* p = static_cast<const T*>(c.host_data());
  return std::vector<T>(p, p + c.numel());
}
template std::vector<float> Tensor::to_vector<float>(Site) const;
template std::vector<double> Tensor::to_vector<double>(Site) const;
template std::vector<int32_t> Tensor::to_vector<int32_t>(Site) const;
template std::vector<int64_t> Tensor::to_vector<int64_t>(Site) const;
template std::vector<uint8_t> Tensor::to_vector<uint8_t>(Site) const;
template std::vector<int8_t> Tensor::to_vector<int8_t>(Site) const;
template std::vector<bool> Tensor::to_vector<bool>(Site) const;

// --- Gradients -------------------------------------------------------------------------------------------------

bool Tensor::requires_grad() const { return needs_grad(held()); }
bool Tensor::is_leaf() const { return !needs_grad(held()) || !impl_->grad_fn; }

const Tensor& Tensor::requires_grad_(bool on, Site site) const {
  DEFT_CHECK(defined(), ValueError, "requires_grad_: the tensor is undefined");
  if (Observer* o = observer()) [[unlikely]]
    o->requires_grad_set(*this, on, effective_site(site));
  if (on) {
    DEFT_CHECK(is_floating(dtype()), GradError, "requires_grad_: only floating tensors can require grad, found {}",
               describe(meta()));
    if (Observer* o = is_inference() ? observer() : nullptr)
      o->refused("requires_grad_", "an inference tensor cannot require gradients", effective_site(site));
    DEFT_CHECK(!is_inference(), InferenceError,
               "requires_grad_: a tensor {} made inside inference_mode cannot require grad (at {}); clone() it outside",
               describe(meta()), deft::to_string(site));
    impl_->flags |= kRequiresGrad;
    if (!impl_->grad_fn && memory_category() == MemoryCategory::other && !is_view())
      set_memory_category(MemoryCategory::parameter);
  } else {
    DEFT_CHECK(is_leaf(), GradError,
               "requires_grad_: only a leaf can stop requiring grad, and this one is the result of {}; use detach()",
               grad_fn_name());
    impl_->flags &= static_cast<uint8_t>(~kRequiresGrad);
    if (memory_category() == MemoryCategory::parameter) set_memory_category(MemoryCategory::other);
  }
  return *this;
}
Tensor& Tensor::requires_grad_(bool on, Site site) {
  static_cast<const Tensor*>(this)->requires_grad_(on, site);
  return *this;
}

Tensor Tensor::grad() const {
  note_leaf_grad(held());
  LeafState* state = impl_->leaf.load(std::memory_order_acquire);
  if (!state) return {};
  std::lock_guard lock(state->mutex);
  return Tensor(ImplPtr::share(state->grad));
}

void Tensor::set_grad(const Tensor& g, Site site) const {
  if (g.defined()) {
    DEFT_CHECK(g.sizes() == sizes() && g.dtype() == dtype() && g.device() == device(), GradError,
               "set_grad: the gradient is {}, the tensor is {} (at {}); they must match", describe(g.meta()),
               describe(meta()), deft::to_string(site));
    DEFT_CHECK(!g.is_inference() || is_inference(), InferenceError,
               "set_grad: a tensor made inside inference_mode cannot be a gradient; clone() it outside");
  }
  note_leaf_grad(held());
  LeafState& state = leaf_state(held());
  std::lock_guard lock(state.mutex);
  if (g.defined()) {
    g.impl()->retain();
    g.set_memory_category(MemoryCategory::gradient);
  }
  if (TensorImpl* old = std::exchange(state.grad, g.impl())) old->release();
}

void Tensor::zero_grad(bool set_to_none) const {
  note_leaf_grad(held());
  if (set_to_none) {
    LeafState* state = impl_->leaf.load(std::memory_order_acquire);
    if (!state) return;
    state->mutex.lock();
    TensorImpl* old = std::exchange(state->grad, nullptr);
    state->mutex.unlock();
    if (old) old->release();
    return;
  }
  Tensor g = grad();
  if (!g.defined()) return;
  ExecContext quiet = context();
  quiet.bits |= kGradOff;
  ContextGuard guard(quiet);
  Tensor fresh = g.detach();
  fresh.zero_();
  set_grad(fresh);
}

void Tensor::backward(BackwardOptions options, Site site) const {
  deft::backward(std::span(this, 1), {}, options, site);
}
void Tensor::backward(const Tensor& gradient, BackwardOptions options, Site site) const {
  deft::backward(std::span(this, 1), std::span(&gradient, 1), options, site);
}

Tensor Tensor::detach(Site site) const {
  DEFT_CHECK(defined(), ValueError, "detach: the tensor is undefined");
  ImplPtr t = make_alias(*impl_, meta(), 0);
  t->flags |= kDetached;
  t->site = effective_site(site);
  note_detached(*this);
  return Tensor(t);
}

Tensor& Tensor::detach_() {
  DEFT_CHECK(!is_view(), GradError, "detach_: a view cannot be detached in place; use detach()");
  if (Node* n = std::exchange(impl_->grad_fn, nullptr)) n->release();
  impl_->flags &= static_cast<uint8_t>(~kRequiresGrad);
  return *this;
}

NodePtr Tensor::grad_fn() const {
  if (!needs_grad(held())) return {};
  return NodePtr::share(impl_->grad_fn);
}
const char* Tensor::grad_fn_name() const {
  NodePtr n = grad_fn();
  return n ? n->type->name : "";
}

}  // namespace deft
