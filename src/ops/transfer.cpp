// Copies between host and devices.
#include "base/check.h"
#include "core/describe.h"
#include "core/observer.h"
#include "core/op.h"
#include "ops/copy.h"
#include "ops/dense.h"
#include "runtime/context.h"
#include "runtime/stream.h"
#include "runtime/sync.h"

namespace deft {

namespace {

// Keeps a tensor's bytes alive until `done` is reached.
void hold_storage(const Tensor& t, const Event& done) {
  Storage* s = t.impl()->storage;
  s->retain();
  hold_until(done, s, [](void* storage) { static_cast<Storage*>(storage)->release(); });
}

uint8_t stream_of(Device device) { return context().streams[static_cast<size_t>(device.index)]; }

bool same_order(const Tensor& a, const Tensor& b) {
  const Meta &x = a.meta(), &y = b.meta();
  return x.dtype == y.dtype && x.sizes == y.sizes &&
         ((x.contiguous && y.contiguous) || (x.strides == y.strides && x.is_dense()));
}

// Plain bytes from one place to another, on a stream of the device; no waiting unless pageable memory takes part.
// Both have the same type, sizes and order in memory.
Event copy_bytes(const Tensor& from, const Tensor& to, const char* what, const Site& site) {
  size_t bytes = static_cast<size_t>(to.numel()) * to.element_size();
  Device device = to.device().is_cpu() ? from.device() : to.device();
  uint8_t stream = stream_of(device);
  DeviceMemory *source = from.impl()->storage->memory, *target = to.impl()->storage->memory;
  bool pageable = (from.device().is_cpu() && !source) || (to.device().is_cpu() && !target);
  if (bytes == 0) return {};
  if (pageable) count_sync(what, site);
  Backend& b = require_backend(device, "to");
  if (!from.device().is_cpu()) {
    if (from.device() == device) {
      order_read(*source, stream);
    } else {  // another GPU: the copy runs on the target's stream, after what the source's stream holds now
      order_read(*source, stream_of(from.device()));
      Stream::numbered(device, stream).wait(Stream::numbered(from.device(), stream_of(from.device())));
    }
  }
  if (!to.device().is_cpu()) order_write(*target, stream);
  // Pinned memory has no stream of its own: copies that use it wait for each other.
  if (from.device().is_cpu() && source) wait_for_copies(*source, device, stream);
  if (to.device().is_cpu() && target) wait_for_copies(*target, device, stream);
  // A copy to pageable memory waits for the work before it anyway: a profile shows the two separately.
  if (pageable && to.device().is_cpu() && (context().bits & kProfile)) {
    Zone zone(what, Bucket::sync, site);
    b.synchronize_stream(device, stream);
  }
  Zone zone("copy", Bucket::copy, site);
  b.copy(to.impl()->data, from.impl()->data, bytes, device, stream, "to");
  if (pageable) {
    // From pageable memory the driver takes its own copy before it returns; memory of others may be of another kind.
    bool others = from.impl()->storage->place == StoragePlace::external;
    if (to.device().is_cpu() || others) {
      b.synchronize_stream(device, stream);
      b.check_faults(device);
    }
    return {};
  }
  Event done(device);
  done.record(Stream::numbered(device, stream));
  if (source && source != target && (from.device().is_cpu() || from.device() != device)) {
    add_copy(*source, done, false);
    hold_storage(from, done);
  }
  add_copy(*target, done, true);
  if (to.device().is_cpu()) hold_storage(to, done);
  return done;
}

Event copy_between(const Tensor& from, const Tensor& to, const char* what, const Site& site) {
  if (same_order(from, to)) return copy_bytes(from, to, what, site);
  if (to.device().is_cpu()) {
    // Ordered and converted where it is, then copied at once.
    Meta m = Meta::dense(to.sizes(), to.dtype(), from.device());
    if (to.meta().is_dense()) m.set_strides(to.strides());
    Tensor packed(make_tensor(m));
    const Tensor* in[] = {&from};
    prepare_device_inputs(in, 1);
    copy_values(from, packed);
    if (same_order(packed, to)) return copy_bytes(packed, to, what, site);
    Meta host = m;
    host.device = kCPU;
    Tensor arrived(make_tensor(host));
    copy_bytes(packed, arrived, what, site);
    copy_values(arrived, to);
    return {};
  }
  Tensor packed = from;
  if (!from.meta().is_dense()) {
    const Tensor* in[] = {&from};
    if (!from.device().is_cpu()) prepare_device_inputs(in, 1);
    packed = Tensor(make_tensor(Meta::dense(from.sizes(), from.dtype(), from.device())));
    copy_values(from, packed);
  }
  Meta m = packed.meta();
  m.device = to.device();
  Tensor arrived(make_tensor(m));
  copy_bytes(packed, arrived, what, site);
  order_write(*to.impl()->storage->memory, stream_of(to.device()));
  copy_values(arrived, to);
  Event done(to.device());
  done.record(Stream::numbered(to.device(), stream_of(to.device())));
  return done;
}

const char* name_of_copy(const Tensor& from) {
  return from.device().is_cpu() ? "copy from pageable memory" : "copy to pageable memory";
}

void notify_copied(const Tensor& from, const Tensor& to, bool non_blocking, const Site& site) {
  Observer* o = observer();
  if (!o) [[likely]]
    return;
  o->copied({from, to, (from.device().is_cpu() ? from : to).is_pinned(), non_blocking, effective_site(site)});
}

}  // namespace

Meta Transfer::infer(const Meta& x, const Params& p) {
  Meta m = Meta::dense(x.sizes, x.dtype, p.device);
  if (!x.contiguous && x.is_dense()) m.set_strides(x.strides);
  return m;
}

void Transfer::run(KernelCall& c) {
  const Params& p = c.params<Transfer>();
  const char* what = p.what ? p.what : name_of_copy(c.in());
  if (p.pinned) c.out() = Tensor(make_pinned(c.out().meta()));
  copy_between(c.in(), c.out(), what, Site());
}
void Transfer::vjp(VjpContext& c) { c.grad_in(0) = c.grad().to(c.input_device(0), c.node.site); }

namespace detail {

Tensor to_host(const Tensor& x, const char* what, const Site& site) {
  SiteScope scope(site);
  Tensor found = call<Transfer>(site, {kCPU, false, what}, x);
  notify_copied(x, found, false, site);
  return found;
}

}  // namespace detail

Tensor Tensor::to(Device device, bool non_blocking, Site site) const {
  detail::check_defined(*this, "to");
  if (device == this->device()) return *this;
  Device other = device.is_cpu() ? this->device() : device;
  require_backend(other, "to");
  SiteScope scope(site);
  Tensor found = call<Transfer>(site, {device, non_blocking && device.is_cpu(), nullptr}, *this);
  notify_copied(*this, found, non_blocking, site);
  return found;
}

namespace {

void check_uncaptured(const char* what, const char* instead) {
  DEFT_CHECK(!(context().bits & kCapture), CaptureError,
             "capture: {}() is no op, so a replay would leave it out; call it outside, or use {}", what, instead);
}

}  // namespace

Tensor Tensor::pin_memory(Site site) const {
  detail::check_defined(*this, "pin_memory");
  DEFT_CHECK(device().is_cpu(), DeviceError, "pin_memory: only host memory can be pinned, found a tensor on {}",
             deft::to_string(device()));
  if (is_pinned()) return *this;
  check_uncaptured("pin_memory", "clone()");
  DEFT_CHECK(!requires_grad() || (context().bits & (kGradOff | kInference)), GradError,
             "pin_memory: the copy would lose the history of {} (at {}); detach() it first", describe(meta()),
             deft::to_string(site));
  Meta m = Meta::dense(sizes(), dtype(), kCPU);
  if (!meta().contiguous && meta().is_dense()) m.set_strides(strides());
  Tensor t(make_pinned(m));
  copy_values(*this, t);
  return t;
}

Event copy_async(Tensor& to, const Tensor& from, Site site) {
  detail::check_defined(to, "copy_async");
  detail::check_defined(from, "copy_async");
  check_uncaptured("copy_async", "copy_()");
  DEFT_CHECK(
      to.sizes() == from.sizes() && to.dtype() == from.dtype(), ShapeError,
      "copy_async: source {} and target {} must have the same shape and type; use copy_() to broadcast or convert",
      to_string(from.sizes()), to_string(to.sizes()));
  DEFT_CHECK(!to.requires_grad() || (context().bits & (kGradOff | kInference)), GradError,
             "copy_async: the target requires grad and the copy is not recorded; use copy_(), or no_grad");
  if (to.device().is_cpu() && from.device().is_cpu()) {
    to.copy_(from, site);
    return {};
  }
  Event done = copy_between(from, to, name_of_copy(from), site);
  to.impl()->storage->bump_version("copy_async", effective_site(site));
  notify_copied(from, to, true, site);
  return done;
}

}  // namespace deft
