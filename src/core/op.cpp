#include "core/op.h"

#include "base/check.h"
#include "core/capture_hook.h"
#include "core/core_ops.h"
#include "core/describe.h"
#include "core/engine.h"
#include "core/observer.h"
#include "core/stale_view.h"
#include "runtime/backend.h"
#include "runtime/context.h"
#include "runtime/profile_hook.h"
#include "runtime/stream.h"

namespace deft {

namespace detail {

void throw_not_differentiable(const char* op, const char* reason) {
  DEFT_FAIL(GradError, "{}: has no gradient: {}", op, reason);
}

void check_defined(const Tensor& x, const char* op) {
  DEFT_CHECK(x.defined(), ValueError, "{}: an input is an undefined tensor; give it a value first", op);
}

}  // namespace detail

void prepare_device_inputs(const Tensor* const* inputs, int count) {
  for (int i = 0; i < count; ++i) {
    TensorImpl* t = inputs[i]->impl();
    if (t && !t->meta.device.is_cpu() && t->storage->memory)
      order_read(*t->storage->memory, context().streams[static_cast<size_t>(t->meta.device.index)]);
  }
}

bool supports(const OpDef& def, Device device, DType dtype) {
  const bool there = device.is_cpu() || backend(device.type);
  return there && def.info.dtypes.contains(dtype) && def.kernel(device.type) != nullptr;
}

namespace {

// Room for the metas of all outputs; infer() fills them, so they need no initial value.
struct OutputMetas {
  alignas(Meta) unsigned char bytes[kMaxOutputs * sizeof(Meta)];
  Meta* data() { return reinterpret_cast<Meta*>(bytes); }
  Meta& operator[](int i) { return data()[i]; }
};

const Meta kUndefinedMeta = Meta::undefined();
constexpr int kFewInputs = 16;

// Pointers to the inputs' metas, in place for the usual few.
struct MetaList {
  const Meta* few[kFewInputs];
  std::vector<const Meta*> many;
  const Meta** data;
  MetaList(const Tensor* const* inputs, int count) : data(few) {
    if (count > kFewInputs) {
      many.resize(static_cast<size_t>(count));
      data = many.data();
    }
    for (int i = 0; i < count; ++i) data[i] = inputs[i]->defined() ? &inputs[i]->meta() : &kUndefinedMeta;
  }
};

void check_inputs(const OpDef& def, const Tensor* const* inputs, int count) {
  if (count == 0) return;
  detail::check_defined(*inputs[0], def.info.name);
  const Meta& first = inputs[0]->meta();
  // Elementwise ops of several tensors check the type that all are converted to (elementwise::check_types).
  DEFT_CHECK((def.elementwise && count > 1) || def.info.dtypes.contains(first.dtype), DTypeError,
             "{}: does not take {}; found an input {}, convert it with to()", def.info.name, name_of(first.dtype),
             describe(first));
  for (int i = 1; i < count; ++i) {
    if (!inputs[i]->defined()) continue;
    const Meta& other = inputs[i]->meta();
    DEFT_CHECK(other.device == first.device || other.wrapped_number || first.wrapped_number, DeviceError,
               "{}: inputs are on {} and {}; move one of them with to()", def.info.name, to_string(first.device),
               to_string(other.device));
  }
}

KernelFn find_kernel(const OpDef& def, Device device) {
  KernelFn kernel = def.kernel(device.type);
  DEFT_CHECK(kernel, UnsupportedError, "{}: has no kernel for {}; move its inputs to the CPU with to()", def.info.name,
             to_string(device));
  return kernel;
}

// Errors that the kernel reports later, and its synchronisations, belong to the user's line.
void run_on_device(KernelFn kernel, KernelCall& call, const Site& site) {
  SiteScope scope(site);
  prepare_device_inputs(call.inputs, call.input_count);
  kernel(call);
}

void check_finite_results(const OpDef& def, const Tensor* const* inputs, int count, const Tensor* outputs,
                          const Site& site) {
  if (in_backward()) return;  // the engine checks gradients and names the op they belong to
  for (int o = 0; o < def.info.outputs; ++o) {
    if (!outputs[o].defined() || !is_floating(outputs[o].dtype()) || !has_nan(outputs[o])) continue;
    for (int i = 0; i < count; ++i)
      if (inputs[i]->defined() && is_floating(inputs[i]->dtype()) && has_nan(*inputs[i]))
        return;  // not this op's doing
    DEFT_FAIL(GradError, "{}: made the first NaN in the forward pass at {} (result {}); check its inputs",
              def.info.name, to_string(effective_site(site)), describe(outputs[o].meta()));
  }
}

}  // namespace

namespace {

void run_watched(const OpDef& def, const Tensor* const* inputs, int count, Tensor* outputs, void* params,
                 const Site& site);

// Autocast first: a capture sees the conversions and the op on their results. Not marked cold, as nothing observed is:
// code that GCC optimises for size here would slow down profiles.
[[gnu::noinline]] void dispatch_slowly(const OpDef& def, const Tensor* const* inputs, int count, Tensor* outputs,
                                       void* params, const Site& site) {
  if (context().bits & kAutocast) return dispatch_autocast(def, inputs, count, outputs, params, site);
  if (!(context().bits & kCapture)) {
    Zone zone(def.info.name, Bucket::dispatch, effective_site(site));
    return run_watched(def, inputs, count, outputs, params, site);
  }
  {
    detail::CapturePause pause;
    dispatch(def, inputs, count, outputs, params, site);
  }
  active_capture()->op(def, inputs, count, outputs, params, effective_site(site));
}

[[gnu::noinline]] void run_kernel_watched(KernelFn kernel, KernelCall& call, Device device, const Site& site) {
  if (device.is_cpu()) {
    Zone zone(call.def.info.name, kernel_bucket(call.def.info), site);
    kernel(call);
  } else {
    run_on_device(kernel, call, site);  // to ask a device for a kernel is part of dispatch
  }
  if (Observer* o = observer()) o->kernel_ran(call, effective_site(site));
}

bool has_new_node(const OpDef& def, const Tensor& output) {
  return output.defined() && output.impl()->grad_fn && output.impl()->grad_fn->type == &def.node;
}

[[gnu::noinline]] void record_watched(const OpDef& def, const Tensor* const* inputs, int count, const Tensor* outputs,
                                      const void* params, const Site& site, bool inplace) {
  const bool records = !(context().bits & (kGradOff | kInference));
  if (records) {
    Zone zone("record", Bucket::autograd, site);
    record(def, inputs, count, outputs, params, site, inplace);
  }
  if (Observer* o = observer())
    o->op_ran(def, {inputs, static_cast<size_t>(count)}, {outputs, static_cast<size_t>(inplace ? 1 : def.info.outputs)},
              records && def.info.outputs && has_new_node(def, outputs[0]), effective_site(site));
}

[[gnu::always_inline]] inline void run_op(const OpDef& def, const Tensor* const* inputs, int count, Tensor* outputs,
                                          void* params, const Site& site, bool watched) {
  check_inputs(def, inputs, count);
  Device device = count ? inputs[0]->device() : kCPU;
  if (def.infer) {
    MetaList metas(inputs, count);
    OutputMetas out_metas;
    def.infer(metas.data, count, params, out_metas.data());
    for (int i = 0; i < def.info.outputs; ++i) outputs[i] = Tensor(make_tensor(out_metas[i]));
    if (def.info.outputs) device = out_metas[0].device;
  }
  KernelFn kernel = find_kernel(def, device);
  KernelCall call{def, inputs, count, outputs, params};
  if (watched)
    run_kernel_watched(kernel, call, device, site);
  else if (device.is_cpu()) [[likely]]
    kernel(call);
  else
    run_on_device(kernel, call, site);
  const ExecContext& ctx = context();
  if (ctx.bits & kAnomaly) [[unlikely]]
    check_finite_results(def, inputs, count, outputs, site);
  if (watched) record_watched(def, inputs, count, outputs, params, site, false);
  if (!(ctx.bits & (kGradOff | kInference))) {
    if (!watched) record(def, inputs, count, outputs, params, site, false);
    return;
  }
  // Two stores, so that "no graph" can name the guard that is gone by then.
  for (int i = 0; i < def.info.outputs; ++i) {
    outputs[i].impl()->flags |= kMadeWithGradOff;
    outputs[i].impl()->site = ctx.grad_site;
  }
}

void run_watched(const OpDef& def, const Tensor* const* inputs, int count, Tensor* outputs, void* params,
                 const Site& site) {
  run_op(def, inputs, count, outputs, params, site, true);
}

}  // namespace

void dispatch(const OpDef& def, const Tensor* const* inputs, int count, Tensor* outputs, void* params,
              const Site& site) {
  if (context().bits & (kAutocast | kCapture | kProfile)) [[unlikely]]
    return dispatch_slowly(def, inputs, count, outputs, params, site);
  run_op(def, inputs, count, outputs, params, site, false);
}

namespace {

// A copy that takes the original's place in the graph. A capture records it although the op itself is paused.
Tensor copy_with_history(const Tensor& x, bool captured, const Site& site) {
  ExecContext quiet = context();
  quiet.bits |= captured ? kGradOff | kCapture : kGradOff;
  ContextGuard guard(quiet);
  Tensor copy = x.clone(MemoryFormat::preserve, site);
  TensorImpl& t = *x.impl();
  if (needs_grad(t) && t.grad_fn) set_history(*copy.impl(), NodePtr::share(t.grad_fn), t.output_nr);
  return copy;
}

}  // namespace

namespace {

void run_inplace_watched(const OpDef& def, const Tensor* const* inputs, int count, void* params, CaptureHook* hook,
                         const Site& site);

// A capture or an observer is there; with a capture alone, the zones inside are silent.
[[gnu::noinline]] void dispatch_inplace_slowly(const OpDef& def, const Tensor* const* inputs, int count, void* params,
                                               const Site& site) {
  if (!(context().bits & kCapture)) return run_inplace_watched(def, inputs, count, params, nullptr, site);
  CaptureHook& hook = *active_capture();
  hook.before_write(def, inputs, count, effective_site(site));
  detail::CapturePause pause;
  run_inplace_watched(def, inputs, count, params, &hook, site);
}

[[gnu::always_inline]] inline void run_inplace(const OpDef& def, const Tensor* const* inputs, int count, void* params,
                                               CaptureHook* hook, const Site& site, bool watched) {
  check_inputs(def, inputs, count);
  const Tensor& x = *inputs[0];
  bool will_record = false;
  if (!(context().bits & (kGradOff | kInference)))
    for (int i = 0; i < count; ++i) will_record |= inputs[i]->defined() && needs_grad(*inputs[i]->impl());
  check_inplace(*x.impl(), will_record, def.info.name, effective_site(site));
  {
    MetaList metas(inputs, count);
    OutputMetas out_metas;
    def.infer(metas.data, count, params, out_metas.data());
    DEFT_CHECK(out_metas[0].sizes == x.sizes(), ShapeError,
               "{}: the result has shape {} and cannot be written in place into {}; use the out-of-place form",
               def.info.name, to_string(out_metas[0].sizes), describe(x.meta()));
    auto kind = [](DType t) { return is_floating(t) ? 2 : is_integral(t) ? 1 : 0; };
    DEFT_CHECK(kind(out_metas[0].dtype) <= kind(x.dtype()), DTypeError,
               "{}: the result is {} and cannot be written in place into {}; use the out-of-place form", def.info.name,
               name_of(out_metas[0].dtype), describe(x.meta()));
  }
  // Inputs that share memory with x: the kernel may not read what it overwrites, unless it is x itself, element by
  // element; the gradient formula must see the values of before.
  DEFT_ASSERT(count <= kMaxUses);
  Tensor copies[kMaxUses];
  const Tensor* kernel_inputs[kMaxUses];
  const Tensor* record_inputs[kMaxUses];
  uint16_t uses = 0;
  for (int i = 0; i < count; ++i) {
    kernel_inputs[i] = record_inputs[i] = inputs[i];
    if (will_record && inputs[i]->defined() && needs_grad(*inputs[i]->impl()))
      uses |= def.info.uses[static_cast<size_t>(i)];
  }
  for (int i = 0; i < count; ++i) {
    if (!inputs[i]->defined() || !inputs[i]->shares_storage_with(x)) continue;
    bool same =
        inputs[i]->data_ptr() == x.data_ptr() && inputs[i]->sizes() == x.sizes() && inputs[i]->strides() == x.strides();
    bool saved = uses & input(i);
    if (same && !saved) continue;
    copies[i] = copy_with_history(*inputs[i], hook != nullptr, site);
    record_inputs[i] = &copies[i];
    if (!same) kernel_inputs[i] = &copies[i];
  }
  Tensor out = x;
  KernelFn kernel = find_kernel(def, x.device());
  KernelCall call{def, kernel_inputs, count, &out, params};
  if (!x.device().is_cpu()) [[unlikely]]
    order_write(*x.impl()->storage->memory, context().streams[static_cast<size_t>(x.device().index)]);
  if (watched) [[unlikely]]
    run_kernel_watched(kernel, call, x.device(), site);
  else if (x.device().is_cpu()) [[likely]]
    kernel(call);
  else
    run_on_device(kernel, call, site);
  x.impl()->storage->bump_version(def.info.name, effective_site(site));
  if (watched) [[unlikely]]
    record_watched(def, record_inputs, count, &out, params, site, true);
  else if (will_record)
    record(def, record_inputs, count, &out, params, site, true);
  if (hook) [[unlikely]]
    hook->write(def, kernel_inputs, count, params, effective_site(site));
}

void run_inplace_watched(const OpDef& def, const Tensor* const* inputs, int count, void* params, CaptureHook* hook,
                         const Site& site) {
  Zone zone(def.info.name, Bucket::dispatch, site);
  run_inplace(def, inputs, count, params, hook, site, true);
}

}  // namespace

void dispatch_inplace(const OpDef& def, const Tensor* const* inputs, int count, void* params, const Site& site) {
  if (context().bits & (kCapture | kProfile)) [[unlikely]]
    return dispatch_inplace_slowly(def, inputs, count, params, site);
  run_inplace(def, inputs, count, params, nullptr, site, false);
}

namespace {

[[gnu::cold, gnu::noinline]] Tensor capture_view(const OpDef& def, const Tensor& x, const ViewSpec& spec,
                                                 const void* params, const Site& site, ViewOrigin origin) {
  CaptureHook& hook = *active_capture();
  detail::CapturePause pause;
  Tensor out = dispatch_view(def, x, spec, params, site, origin);
  hook.view(def, x, out, params, effective_site(site));
  return out;
}

}  // namespace

Tensor dispatch_view(const OpDef& def, const Tensor& x, const ViewSpec& spec, const void* params, const Site& site,
                     ViewOrigin origin) {
  if (context().bits & kCapture) [[unlikely]]
    return capture_view(def, x, spec, params, site, origin);
  TensorImpl& source = *x.impl();
  ImplPtr v = make_alias(source, spec.meta, spec.offset);
  v->meta.wrapped_number = false;
  Tensor out(v);
  uint32_t bits = context().bits;
  if (source.has(kInferenceTensor)) return out;  // its views are inference tensors too: nothing to track
  TensorImpl* base = source.base ? source.base : &source;
  base->retain();
  v->base = base;
  v->site = site;
  v->view_version = v->storage->current_version();
  if (bits & kInference) {
    v->view_origin = ViewOrigin::inference;
  } else if (bits & kGradOff) {
    v->view_origin = ViewOrigin::no_grad;
  } else {
    // A view of a marked view keeps the mark.
    v->view_origin = source.base && source.view_origin != ViewOrigin::tracked ? source.view_origin : origin;
    const Tensor* in[] = {&x};
    record(def, in, 1, &out, params, site, false);
  }
  if (Observer* o = observer()) [[unlikely]] {
    const Tensor* in[] = {&x};
    o->op_ran(def, in, {&out, 1}, has_new_node(def, out), effective_site(site));
  }
  return out;
}

void check_savable(const TensorImpl& t, const char* op, const Site& site) {
  if (t.has(kInferenceTensor)) [[unlikely]]
    if (Observer* o = observer()) o->refused(op, "an inference tensor cannot be saved for backward", site);
  DEFT_CHECK(
      !t.has(kInferenceTensor), InferenceError,
      "{}: a tensor {} made inside inference_mode cannot be saved for backward (forward at {}); clone() it outside "
      "inference_mode, or make it under no_grad instead",
      op, describe(t), to_string(site));
}

void record(const OpDef& def, const Tensor* const* inputs, int count, const Tensor* outputs, const void* params,
            const Site& site, bool inplace) {
  const OpInfo& info = def.info;
  uint16_t uses = 0;
  bool any = false;
  for (int i = 0; i < count; ++i) {
    TensorImpl* t = inputs[i]->impl();
    if (!t || !is_floating(t->meta.dtype) || !needs_grad(*t)) continue;
    any = true;
    uses |= info.uses[static_cast<size_t>(info.inputs == kListInput ? 0 : i)];
  }
  if (!any) return;
  int out_count = inplace ? 1 : info.outputs;
  bool floats = is_floating(outputs[0].dtype());
  for (int i = 1; i < out_count; ++i) floats |= is_floating(outputs[i].dtype());
  if (!floats) return;

  Site user = effective_site(site);
  for (unsigned left = uses & 0xff; left; left &= left - 1) {
    int i = std::countr_zero(left);
    if (TensorImpl* t = inputs[i]->impl())
      check_savable(*t, info.name, user);
    else
      uses &= static_cast<uint16_t>(~input(i));
  }
  NodePtr node = make_node(&def.node, count, out_count, std::popcount(uses), def.params_bytes, user);
  for (int i = 0; i < count; ++i) {
    if (inputs[i]->defined())
      set_edge(node->edges()[i], *inputs[i]->impl());
    else
      node->edges()[i] = Edge{};
  }
  node->runs_on(outputs[0].device());
  if (def.params_bytes) __builtin_memcpy(node->payload(), params, def.params_bytes);
  int slot = 0;
  for (unsigned left = uses; left; left &= left - 1) {
    int bit = std::countr_zero(left);
    bool is_output = bit >= 8;
    int index = is_output ? bit - 8 : bit;
    node->save(slot++, is_output ? outputs[index].impl() : inputs[index]->impl(), is_output, index);
  }
  if (inplace) {
    rebase_history(*outputs[0].impl(), node, 0);
    for (int i = 1; i < count; ++i)
      if (inputs[i]->defined()) mark_stale(*inputs[i]->impl(), *outputs[0].impl());
    return;
  }
  for (int i = 0; i < out_count; ++i)
    if (is_floating(outputs[i].dtype())) set_history(*outputs[i].impl(), node, static_cast<uint32_t>(i));
}

namespace {

// "input 1 [2, 3] f32".
std::string name_of_saved(const SavedTensor& slot, const SavedTensor& s) {
  if (slot.index == kSavedElse) return "a tensor " + describe(*s.impl);
  return fmt::format("{} {} {}", slot.is_output ? "output" : "input", slot.index, describe(*s.impl));
}

[[noreturn, gnu::cold]] void throw_saved_changed(const Node& node, const SavedTensor& slot, const SavedTensor& s) {
  Storage& bytes = *s.impl->storage;
  const char* writer = bytes.last_write_op.load(std::memory_order_relaxed);
  DEFT_FAIL(InplaceError,
            "{}: {}, saved for backward at {}, was changed in place by {} at {} (saved version {}, now {}); clone() it "
            "before "
            "the write, or write out of place",
            node.type->name, name_of_saved(slot, s), to_string(node.site), writer ? writer : "a write",
            to_string(bytes.last_write_site.load(std::memory_order_relaxed)), s.version, bytes.current_version());
}

Tensor unpack(Node& node, bool is_output, int index) {
  for (int i = 0; i < node.saved; ++i) {
    SavedTensor& s = node.saved_tensors()[i];
    if (s.is_output == is_output && s.index == index) return unpack_saved(node, i);
  }
  DEFT_FAIL(InternalError, "{}: {} {} is read by its gradient but not in OpInfo::uses", node.type->name,
            is_output ? "output" : "input", index);
}

}  // namespace

Tensor unpack_saved(Node& node, int at) {
  DEFT_CHECK(!node.has(kNodeReleased), GradError,
             "{}: its saved tensors were freed by an earlier backward (forward at {}); pass retain_graph = true to "
             "that one, or "
             "run the forward pass again",
             node.type->name, to_string(node.site));
  SavedTensor& slot = node.saved_tensors()[at];
  if (!slot.impl) return {};
  SavedTensor& s = slot.resolve();
  if (s.version != s.impl->storage->current_version()) [[unlikely]]
    throw_saved_changed(node, slot, s);
  bool connected = slot.is_output || slot.deferred;  // other inputs carry their history themselves
  if (!connected || (context().bits & kGradOff) || slot.index == kSavedElse || !is_floating(s.impl->meta.dtype))
    return Tensor(ImplPtr::share(s.impl));
  Node* from = slot.is_output ? &node : node.edges()[slot.index].node;
  if (!from) return Tensor(ImplPtr::share(s.impl));
  ImplPtr alias = make_alias(*s.impl, s.impl->meta, 0);
  set_history(*alias, NodePtr::share(from), slot.is_output ? slot.index : node.edges()[slot.index].output_nr);
  return Tensor(alias);
}

void VjpContext::set_zeros(int i) const {
  if (needs(i)) grad_inputs[i] = zeros(input_sizes(i), {input_dtype(i), input_device(i)}, node.site);
}

Tensor VjpContext::saved_input(int i) const { return unpack(node, false, i); }
Tensor VjpContext::saved_output(int i) const { return unpack(node, true, i); }

}  // namespace deft
