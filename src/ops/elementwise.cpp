#include "ops/elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "core/describe.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "ops/cuda_ops.h"
#include "ops/elementwise_gradient.h"
#include "ops/op_table.h"
#include "runtime/context.h"
#include "runtime/parallel.h"

namespace deft {

namespace {
constexpr int64_t kGrain = 32768;  // elements per thread from which threads pay
}

Tensor wrap_number(Scalar value, Device) {
  Meta m;
  m.dtype = value.kind();
  m.wrapped_number = true;
  ImplPtr t = make_tensor(m);
  switch (value.kind()) {
    case DType::f64:
      *static_cast<double*>(t->data) = value.to_double();
      break;
    case DType::i64:
      *static_cast<int64_t*>(t->data) = value.to_int64();
      break;
    default:
      *static_cast<bool*>(t->data) = value.to_bool();
  }
  // A number is no user's tensor: it may be saved for backward even when made inside inference_mode.
  t->flags &= static_cast<uint8_t>(~kInferenceTensor);
  return Tensor(t);
}

namespace elementwise {

namespace {
// Promotion is by weight (tensors, 0-d tensors, numbers): first among equals, then from light to heavy.
std::array<const Meta*, 3> by_weight(const Meta* const* inputs) {
  auto weight = [](const Meta* m) { return m->wrapped_number ? 0 : m->rank() == 0 ? 1 : 2; };
  std::array<const Meta*, 3> in = {inputs[0], inputs[1], inputs[2]};
  std::sort(in.begin(), in.end(), [&](const Meta* a, const Meta* b) { return weight(a) < weight(b); });
  if (weight(in[1]) == weight(in[2])) std::rotate(in.begin(), in.begin() + 1, in.end());
  return in;
}
}  // namespace

DType common_type(const Meta* const* inputs, int count, ResultType result) {
  std::array<const Meta*, 3> ordered;
  if (count == 3) inputs = (ordered = by_weight(inputs)).data();
  Meta sum = *inputs[0];
  for (int i = 1; i < count; ++i) {
    const Meta& next = *inputs[i];
    DType t = result_type(sum, next);
    bool stronger = (sum.wrapped_number && !next.wrapped_number) || (sum.rank() == 0 && next.rank() > 0);
    if (stronger) {
      sum.wrapped_number = next.wrapped_number;
      sum.sizes = next.sizes;
    }
    sum.dtype = t;
  }
  DType t = sum.dtype;
  if (count > 0 && sum.wrapped_number && t == DType::f64) t = DType::f32;
  return result == ResultType::floating && !is_floating(t) ? DType::f32 : t;
}

namespace {

// Strides for the result: those of the first input that has its full shape and is dense, so that layouts survive.
void keep_layout(Meta& out, const Meta* const* inputs, int count) {
  for (int i = 0; i < count; ++i) {
    const Meta& m = *inputs[i];
    if (!(m.sizes == out.sizes)) continue;
    if (m.contiguous) return;
    if (m.is_dense()) return out.set_strides(m.strides);
  }
}

}  // namespace

void check_types(const OpInfo& info, ResultType result, const Meta* const* inputs, int count, bool condition) {
  for (int i = 0; i < count; ++i)
    if (!inputs[i]->defined) return;  // infer() says so
  // The type of the inputs, not that of a result which is always floating.
  bool any = result == ResultType::floating && info.dtypes.contains(DType::i64);
  DType t = condition || any ? inputs[0]->dtype : common_type(inputs, count, ResultType::same);
  DEFT_CHECK(any || info.dtypes.contains(t), DTypeError,
             "{}: does not take {}; found an input {}, convert it with to()", info.name, name_of(t),
             describe(*inputs[0]));
}

Meta infer(const char* name, ResultType result, const Meta* const* inputs, int count, bool condition) {
  for (int i = 1; i < count; ++i)
    DEFT_CHECK(inputs[i]->defined, ValueError, "{}: input {} is an undefined tensor; give it a value first", name, i);
  DType t = common_type(inputs + condition, count - condition, result);
  Shape sizes = inputs[0]->sizes;
  Device device = inputs[0]->device;
  for (int i = 1; i < count; ++i) {
    if (!(inputs[i]->sizes == sizes)) sizes = broadcast_shapes(sizes, inputs[i]->sizes, name);
    if (!inputs[i]->device.is_cpu()) device = inputs[i]->device;  // numbers lie on the host
  }
  Meta out = Meta::dense(sizes, result == ResultType::boolean ? DType::boolean : t, device);
  keep_layout(out, inputs, count);
  return out;
}

void run(cpu::ChunkFn fn, const Tensor* const* inputs, int count, const Tensor& out, DType compute, DType result,
         const void* params) {
  const Meta& m = out.meta();
  int64_t n = m.numel;
  if (n == 0) return;
  // Same type, shape and dense strides everywhere: one linear run, whatever the layout.
  bool linear = m.dtype == result;
  for (int i = 0; linear && i < count; ++i) {
    const Meta& in = inputs[i]->meta();
    linear = in.dtype == compute && in.sizes == m.sizes &&
             ((in.contiguous && m.contiguous) || (in.strides == m.strides && m.is_dense()));
  }
  if (linear) {
    cpu::LinearCall call;
    call.fn = fn;
    call.inputs = count;
    for (int i = 0; i < count; ++i) call.in[i] = inputs[i]->data_ptr();
    call.out = out.data_ptr();
    call.in_size = size_of(compute);
    call.out_size = size_of(result);
    call.params = params;
    return cpu::elementwise_linear(call, n);
  }
  cpu::ElementwiseCall call;
  call.ndim = m.rank();
  for (int d = 0; d < m.rank(); ++d) {
    call.sizes[d] = m.sizes[d];
    call.out.strides[d] = m.strides[d];
  }
  call.inputs = count;
  for (int i = 0; i < count; ++i) {
    const Meta& in = inputs[i]->meta();
    call.in[i].data = inputs[i]->data_ptr();
    call.in[i].dtype = in.dtype;
    int shift = m.rank() - in.rank();
    for (int d = 0; d < m.rank(); ++d) {
      int s = d - shift;
      call.in[i].strides[d] = s < 0 || (in.sizes[s] == 1 && m.sizes[d] != 1) ? 0 : in.strides[s];
    }
  }
  call.out.data = out.data_ptr();
  call.out.dtype = m.dtype;
  call.compute = compute;
  call.result = result;
  call.fn = fn;
  call.params = params;
  cpu::elementwise(call);
}

void cpu_kernel(KernelCall& c) {
  const auto& e = *c.def.elementwise;
  const Meta* metas[cpu::kMaxInputs];
  for (int i = 0; i < c.input_count; ++i) metas[i] = &c.in(i).meta();
  DType compute = compute_type(common_type(metas + e.condition, c.input_count - e.condition, e.result));
  cpu::ChunkFn fn = e.table()[e.row * kDTypeCount + static_cast<int>(compute)];
  DEFT_CHECK(fn, DTypeError, "{}: does not take {}; convert it with to()", c.def.info.name, name_of(compute));
  run(fn, c.inputs, c.input_count, c.out(), compute, e.result == ResultType::boolean ? DType::boolean : compute,
      c.params_data);
}

namespace {

// The fast path: one small linear run on the CPU, no broadcasting, no conversion.
constexpr int64_t kSmall = kGrain;

// Most calls are f32, which every op that computes in the type of its inputs takes.
[[gnu::always_inline]] inline cpu::ChunkFn find_fast(const OpDef& def, DType t) {
  const auto& e = *def.elementwise;
  if (t != DType::f32) [[unlikely]] {
    if (e.result == ResultType::floating && !is_floating(t)) return nullptr;
    if (!def.info.dtypes.contains(t) || t == DType::bf16 || t == DType::f16) return nullptr;
  } else if (!def.info.dtypes.contains(DType::f32)) {
    return nullptr;
  }
  if (e.result == ResultType::boolean) return nullptr;
  if (!is_floating(t) && def.cpu != &cpu_kernel) return nullptr;  // values are checked first
  return e.table()[e.row * kDTypeCount + static_cast<int>(t)];
}

[[gnu::always_inline]] inline bool fast_pair(const Meta& a, const Meta& b) {
  return a.dtype == b.dtype && a.contiguous && b.contiguous && a.numel <= kSmall && a.sizes == b.sizes &&
         a.device.is_cpu() && b.device.is_cpu() && !a.wrapped_number;
}

constexpr uint32_t kNotFast = kSlowPath | kAnomaly;

// A number, a 0-d tensor, or one of those expanded.
[[gnu::always_inline]] inline bool is_one_value(const Meta& s) {
  for (int i = 0; i < s.rank(); ++i)
    if (s.strides[i] != 0 && s.sizes[i] != 1) return false;
  return true;
}
// True if x and the single value `s` give a result like x.
[[gnu::always_inline]] inline bool fast_with_value(const Meta& x, const Meta& s) {
  if (!x.contiguous || x.numel > kSmall || !x.device.is_cpu() || !s.device.is_cpu() || x.wrapped_number) return false;
  if (s.dtype != x.dtype && !(s.wrapped_number && (x.dtype == DType::f32 || x.dtype == DType::f64))) return false;
  return s.dtype != DType::boolean && (s.rank() == 0 || s.sizes == x.sizes);
}

template <class T>
void run_with_value(cpu::ChunkFn fn, const T* x, T value, bool value_first, T* out, int64_t n) {
  constexpr int64_t kRun = 128, kFew = 16;
  T repeated[kRun];
  for (int64_t i = 0; i < kFew; ++i) repeated[i] = value;  // a few vector stores, no loop
  for (int64_t i = kFew; i < std::min(n, kRun); ++i) repeated[i] = value;
  for (int64_t at = 0; at < n; at += kRun) {
    const void* in[] = {x + at, repeated};
    if (value_first) std::swap(in[0], in[1]);
    fn(in, out + at, static_cast<size_t>(std::min(kRun, n - at)), nullptr);
  }
}

// x op value or value op x, without broadcasting machinery. Undefined in other cases.
Tensor with_value(const OpDef& def, const Tensor& x, const Tensor& s, bool value_first) {
  if (!fast_with_value(x.meta(), s.meta())) return {};
  DType t = x.dtype();
  cpu::ChunkFn fn = t == DType::f32 || t == DType::f64 ? find_fast(def, t) : nullptr;
  if (!fn) return {};
  Tensor out(make_tensor(x.meta()));
  auto value = [&](auto zero) {
    using T = decltype(zero);
    if (s.dtype() == t) return *static_cast<const T*>(s.data_ptr());
    return static_cast<T>(s.item_scalar().to_double());
  };
  if (t == DType::f32)
    run_with_value(fn, static_cast<const float*>(x.data_ptr()), value(0.0f), value_first,
                   static_cast<float*>(out.data_ptr()), x.numel());
  else
    run_with_value(fn, static_cast<const double*>(x.data_ptr()), value(0.0), value_first,
                   static_cast<double*>(out.data_ptr()), x.numel());
  return out;
}

// The end of a fast path: what dispatch() does after its kernel.
inline void finish(const OpDef& def, const Tensor* const* inputs, int count, const Tensor& out, const void* params,
                   const Site& site) {
  const ExecContext& ctx = context();
  if (!(ctx.bits & (kGradOff | kInference))) return record(def, inputs, count, &out, params, site, false);
  out.impl()->flags |= kMadeWithGradOff;
  out.impl()->site = ctx.grad_site;
}

}  // namespace

namespace {

// A 0-d tensor does not widen a result of 16 bits: it counts as one of that type, so it is rounded to it before the op.
// (Autocast chooses types of its own.)
void round_scalars(const OpDef& def, const Tensor** inputs, int count, Tensor* rounded, const Site& site) {
  if (context().bits & kAutocast) return;
  const bool condition = def.elementwise->condition;
  const Meta* metas[cpu::kMaxInputs];
  bool same = true;
  for (int i = condition; i < count; ++i) {
    if (!inputs[i]->defined()) return;
    metas[i] = &inputs[i]->meta();
    same &= metas[i]->dtype == metas[condition]->dtype;
  }
  if (same) return;
  const DType t = common_type(metas + condition, count - condition, def.elementwise->result);
  if (t != DType::bf16 && t != DType::f16) return;
  for (int i = condition; i < count; ++i) {
    const Meta& m = *metas[i];
    if (m.rank() > 0 || m.wrapped_number || !is_floating(m.dtype) || m.dtype == t) continue;
    rounded[i] = inputs[i]->to(t, site);
    inputs[i] = &rounded[i];
  }
}

}  // namespace

Tensor binary(const OpDef& def, const Tensor& a, const Tensor& b, const Site& site) {
  uint32_t bits = context().bits;
  if (!(bits & kNotFast) && a.defined() && b.defined() && fast_pair(a.meta(), b.meta())) [[likely]] {
    if (cpu::ChunkFn fn = find_fast(def, a.dtype())) [[likely]] {
      Tensor out(make_tensor(a.meta()));
      const void* in[] = {a.data_ptr(), b.data_ptr()};
      fn(in, out.data_ptr(), static_cast<size_t>(a.numel()), nullptr);
      const Tensor* inputs[] = {&a, &b};
      finish(def, inputs, 2, out, nullptr, site);
      return out;
    }
  }
  const Tensor* inputs[] = {&a, &b};
  Tensor out;
  if (!(bits & kNotFast) && a.defined() && b.defined()) {
    out = is_one_value(b.meta())   ? with_value(def, a, b, false)
          : is_one_value(a.meta()) ? with_value(def, b, a, true)
                                   : Tensor();
    if (!out.defined() && !(a.device().is_cpu() && b.device().is_cpu()))
      out = cuda_ops.elementwise_fast(def, inputs, 2, nullptr);
    if (out.defined()) {
      finish(def, inputs, 2, out, nullptr, site);
      return out;
    }
  }
  Tensor rounded[2];
  round_scalars(def, inputs, 2, rounded, site);
  dispatch(def, inputs, 2, &out, nullptr, site);
  return out;
}

Tensor unary(const OpDef& def, const Tensor& x, void* params, const Site& site) {
  uint32_t bits = context().bits;
  const Tensor* inputs[] = {&x};
  if (!(bits & kNotFast) && x.defined() && x.meta().contiguous && x.numel() <= kSmall && x.device().is_cpu() &&
      !x.meta().wrapped_number) [[likely]] {
    if (cpu::ChunkFn fn = find_fast(def, x.dtype())) [[likely]] {
      Tensor out(make_tensor(x.meta()));
      const void* in[] = {x.data_ptr()};
      fn(in, out.data_ptr(), static_cast<size_t>(x.numel()), params);
      finish(def, inputs, 1, out, params, site);
      return out;
    }
  }
  Tensor out;
  if (!(bits & kNotFast) && x.defined() && !x.device().is_cpu()) {
    out = cuda_ops.elementwise_fast(def, inputs, 1, params);
    if (out.defined()) {
      finish(def, inputs, 1, out, params, site);
      return out;
    }
  }
  dispatch(def, inputs, 1, &out, params, site);
  return out;
}

Tensor& unary_inplace(const OpDef& def, Tensor& x, void* params, const Site& site) {
  const Tensor* inputs[] = {&x};
  dispatch_inplace(def, inputs, 1, params, site);
  return x;
}

Tensor& binary_inplace(const OpDef& def, Tensor& a, const Tensor& b, const Site& site) {
  uint32_t bits = context().bits;
  if (!(bits & kNotFast) && (bits & (kGradOff | kInference)) && a.defined() && b.defined() &&
      fast_pair(a.meta(), b.meta()) && (!a.is_inference() || (bits & kInference)) &&
      (a.data_ptr() == b.data_ptr() || !a.shares_storage_with(b))) [[likely]] {
    if (cpu::ChunkFn fn = find_fast(def, a.dtype())) [[likely]] {
      const void* in[] = {a.data_ptr(), b.data_ptr()};
      fn(in, a.data_ptr(), static_cast<size_t>(a.numel()), nullptr);
      a.impl()->storage->bump_version(def.info.name, effective_site(site));
      return a;
    }
  }
  const Tensor* inputs[] = {&a, &b};
  Tensor rounded[2];
  round_scalars(def, inputs, 2, rounded, site);
  dispatch_inplace(def, inputs, 2, nullptr, site);
  return a;
}

Tensor ternary(const OpDef& def, const Tensor& a, const Tensor& b, const Tensor& c, void* params, const Site& site) {
  const Tensor* inputs[] = {&a, &b, &c};
  Tensor out, rounded[3];
  round_scalars(def, inputs, 3, rounded, site);
  dispatch(def, inputs, 3, &out, params, site);
  return out;
}

Tensor& ternary_inplace(const OpDef& def, Tensor& a, const Tensor& b, const Tensor& c, void* params, const Site& site) {
  const Tensor* inputs[] = {&a, &b, &c};
  Tensor rounded[3];
  round_scalars(def, inputs, 3, rounded, site);
  dispatch_inplace(def, inputs, 3, params, site);
  return a;
}

namespace {

// The same as an op, which captures and observers see.
Tensor gradient_as_op(const VjpContext& c, const Tensor* const* inputs, const void* params) {
  ElementwiseGradient::Params p{op_index(*find_op(c.node.type->name)), c.input_dtype(0)};
  DEFT_ASSERT(c.node.payload_bytes <= sizeof p.params);
  if (params) std::memcpy(p.params.data(), params, c.node.payload_bytes);
  return call<ElementwiseGradient>(c.node.site, p, *inputs[0], *inputs[1], *inputs[2]);
}

}  // namespace

void step_vjp(VjpContext& c) {
  for (int i = 0; i < c.input_count(); ++i) c.set_zeros(i);
}

void unary_vjp_fused(VjpContext& c, const ElementwiseDef& def, const void* params) {
  const Tensor& g = c.grad();
  uint16_t uses = 0;
  Tensor x, y;
  for (int i = 0; i < c.node.saved; ++i) uses |= c.node.saved_tensors()[i].is_output ? output(0) : input(0);
  if (uses & input(0)) x = c.saved_input(0);
  if (uses & output(0)) y = c.saved_output(0);
  const Tensor* inputs[] = {&g, uses & input(0) ? &x : &g, uses & output(0) ? &y : &g};
  if (context().bits & (kCapture | kProfile)) [[unlikely]] {
    c.grad_in(0) = gradient_as_op(c, inputs, params);
    return;
  }
  const Meta* metas[] = {&g.meta(), &inputs[1]->meta(), &inputs[2]->meta()};
  Meta m = infer("gradient", ResultType::same, metas, 3);
  m.dtype = c.input_dtype(0);
  Tensor out(make_tensor(m));
  DType compute = compute_type(m.dtype);
  if (!m.device.is_cpu()) {
    prepare_device_inputs(inputs, 3);
    cuda_ops.elementwise_gradient(def, inputs, out, compute, params, c.node.type->name);
    c.grad_in(0) = std::move(out);
    return;
  }
  run(def.grad_table()[def.row * kDTypeCount + static_cast<int>(compute)], inputs, 3, out, compute, compute, params);
  c.grad_in(0) = std::move(out);
}

}  // namespace elementwise

}  // namespace deft
