// An op is a type. Its data is a constexpr OpInfo, its rules are static functions, and everything else - the eager
// call, the graph node, what is saved, tests and documentation - is derived from those. See docs/design.md, section 2.
#pragma once

#include <array>
#include <bit>
#include <span>
#include <type_traits>

#include "core/node.h"
#include "core/tensor.h"
#include "runtime/random.h"

namespace deft {

enum class Fusion : uint8_t { none, elementwise, row_reduce, contraction, view };
enum class Autocast : uint8_t {
  none,
  low,
  fp32,
  promote
};  // compute in low precision, in fp32, or in the widest input's type
enum class Cost : uint8_t { metadata, memory_bound, compute_bound };

// Bits of OpInfo::uses.
constexpr uint16_t input(int i) { return static_cast<uint16_t>(1u << i); }
constexpr uint16_t output(int i = 0) { return static_cast<uint16_t>(1u << (8 + i)); }

inline constexpr int kMaxOutputs = 4;
inline constexpr int kMaxUses = 6;
inline constexpr int kListInput = -1;  // OpInfo::inputs of ops that take a list of tensors (cat, stack)

struct OnnxName {
  const char* name = nullptr;
  int since_opset = 0;
};

struct OpInfo {
  const char* name;
  int inputs = 1;
  int outputs = 1;
  DTypeSet dtypes = kFloats;  // what input 0 may be; checked before infer()
  Fusion fusion = Fusion::none;
  Autocast autocast = Autocast::none;
  Cost cost = Cost::memory_bound;
  // uses[i]: which inputs and outputs the gradient of input i reads. Only what is needed gets saved.
  std::array<uint16_t, kMaxUses> uses{};
  OnnxName onnx{};
};

struct OpDef;
struct ElementwiseDef;

// What a kernel gets: inputs (some may be undefined), allocated outputs, parameters. For an in-place call
// out(0) is in(0): kernels of ops with an in-place form must allow exactly that.
struct KernelCall {
  const OpDef& def;
  const Tensor* const* inputs;
  int input_count;
  Tensor* outputs;
  const void* params_data;

  const Tensor& in(int i = 0) const { return *inputs[i]; }
  bool has(int i) const { return i < input_count && inputs[i]->defined(); }
  Tensor& out(int i = 0) const { return outputs[i]; }
  template <class Op>
  const typename Op::Params& params() const {
    return *static_cast<const typename Op::Params*>(params_data);
  }
};
using KernelFn = void (*)(KernelCall&);

// Where the CUDA kernel of an op is found: that of an op of the library once the plug-in is loaded
// (runtime/device_plugin.h), that of a program's own op by its definition: template <> deft::KernelFn
// deft::CudaKernel<MyOp>::fn = &MyOp::cuda;
template <class Op>
struct CudaKernel {
  static KernelFn fn;
};

// What a gradient formula gets. It is written in public ops, so that double backward and capture come free.
struct VjpContext {
  Node& node;
  const Tensor* grad_outputs;  // undefined entries mean zero
  Tensor* grad_inputs;         // to be filled where needs(i)
  bool create_graph;
  void* pass = nullptr;  // the engine's

  // The gradient of an output; undefined means zero (only possible for ops with several outputs).
  const Tensor& grad(int i = 0) const { return grad_outputs[i]; }
  Tensor& grad_in(int i) const { return grad_inputs[i]; }
  bool needs(int i) const { return node.edges()[i].node != nullptr; }
  // Saved inputs and outputs; throws InplaceError naming both sites if one was written since.
  Tensor saved_input(int i) const;
  Tensor saved_output(int i = 0) const;
  // What other formulas of this pass gave for an input, if it may be written and has the type of grad(0): a formula
  // that adds its part there leaves grad_in(i) undefined. Null if there is nothing yet. For views, so that a tensor in
  // many slices is not made zeros for each.
  Tensor* sum_so_far(int i) const;
  // Zeros for an input that has no influence on the result, where a gradient of it is wanted.
  void set_zeros(int i) const;
  // Shape and type of an input, whether saved or not.
  const Shape& input_sizes(int i) const { return node.edges()[i].sizes; }
  DType input_dtype(int i) const { return node.edges()[i].dtype; }
  Device input_device(int i) const { return node.edges()[i].device; }
  int input_count() const { return node.inputs; }
  template <class Op>
  const typename Op::Params& params() const {
    return node.payload_as<typename Op::Params>();
  }
};

struct NoParams {
  bool operator==(const NoParams&) const = default;
};

// The type-erased definition of an op: one constant per op, made by op_def<Op>.
struct OpDef {
  OpInfo info;
  NodeType node;
  uint32_t params_bytes;
  // Fills the metas of all outputs; throws ShapeError and friends. nullptr: the kernel makes its outputs itself.
  void (*infer)(const Meta* const* inputs, int count, void* params, Meta* outputs);
  KernelFn cpu = nullptr;
  const KernelFn* cuda = nullptr;               // nullptr: it has no CUDA kernel; null there: not loaded so far
  const ElementwiseDef* elementwise = nullptr;  // elementwise ops only; see ops/elementwise.h
  // Ops whose Params have a `draw`: takes the next one of the current generator, if there was one.
  void (*redraw)(void* params) = nullptr;

  // nullptr where there is none.
  KernelFn kernel(DeviceType type) const { return type == DeviceType::cpu ? cpu : cuda ? *cuda : nullptr; }
};

namespace detail {

template <class Op>
struct ParamsOf {
  using type = NoParams;
};
template <class Op>
requires requires { typename Op::Params; }
struct ParamsOf<Op> {
  using type = typename Op::Params;
};

inline void store_metas(Meta* out, const Meta& m) { out[0] = m; }
template <size_t N>
void store_metas(Meta* out, const std::array<Meta, N>& m) {
  for (size_t i = 0; i < N; ++i) out[i] = m[i];
}

template <class Op>
void infer_adapter(const Meta* const* in, int count, void* params, Meta* out) {
  auto& p = *static_cast<typename ParamsOf<Op>::type*>(params);
  if constexpr (Op::info.inputs == kListInput) {
    store_metas(out, Op::infer(std::span<const Meta* const>(in, static_cast<size_t>(count)), p));
  } else {
    [&]<size_t... I>(std::index_sequence<I...>) { store_metas(out, Op::infer(*in[I]..., p)); }
    (std::make_index_sequence<static_cast<size_t>(Op::info.inputs)>());
  }
}

[[noreturn]] void throw_not_differentiable(const char* op, const char* reason);

template <class Op>
void vjp_adapter(VjpContext& c) {
  if constexpr (requires { Op::vjp(c); }) {
    Op::vjp(c);
  } else {
    throw_not_differentiable(Op::info.name, Op::not_differentiable);
  }
}

template <class Op>
constexpr OpDef make_op_def() {
  using Params = typename ParamsOf<Op>::type;
  static_assert(std::is_trivially_copyable_v<Params> && std::is_trivially_destructible_v<Params>,
                "Params are copied as bytes into graph nodes and plans");
  constexpr bool has_vjp = requires(VjpContext & c) { Op::vjp(c); };
  constexpr bool has_no_grad = requires { Op::not_differentiable; };
  static_assert(has_vjp != has_no_grad, "an op has exactly one of vjp() and not_differentiable");
  OpDef def{.info = Op::info,
            .node = {Op::info.name, &vjp_adapter<Op>, nullptr},
            .params_bytes = std::is_empty_v<Params> ? 0 : static_cast<uint32_t>(sizeof(Params)),
            .infer = nullptr};
  if constexpr (requires(Params p) { p.draw = PhiloxState(); })
    def.redraw = [](void* params) {
      auto& p = *static_cast<Params*>(params);
      if (!(p.draw == PhiloxState())) p.draw = generator().next_draw();
    };
  if constexpr (requires { &Op::infer; }) def.infer = &infer_adapter<Op>;
  if constexpr (requires { &Op::cpu; }) def.cpu = &Op::cpu;
  if constexpr (requires { &Op::cuda; }) def.cuda = &CudaKernel<Op>::fn;
  return def;
}

}  // namespace detail

template <class Op>
inline constexpr OpDef op_def = detail::make_op_def<Op>();

// Runs an op: infer, allocate, kernel, record. `params` may be completed by infer().
void dispatch(const OpDef& def, const Tensor* const* inputs, int count, Tensor* outputs, void* params,
              const Site& site);
// The same with output 0 written into inputs[0].
void dispatch_inplace(const OpDef& def, const Tensor* const* inputs, int count, void* params, const Site& site);
// A view of x: same storage, new sizes and strides, first element moved by `offset` elements.
struct ViewSpec {
  Meta meta;
  int64_t offset = 0;
};
Tensor dispatch_view(const OpDef& def, const Tensor& x, const ViewSpec& spec, const void* params, const Site& site,
                     ViewOrigin origin = ViewOrigin::tracked);

// Adds the graph node for outputs just computed, if gradients are on and an input needs one.
// `outputs` of an in-place op is {inputs[0]} and `inplace` is true.
void record(const OpDef& def, const Tensor* const* inputs, int count, const Tensor* outputs, const void* params,
            const Site& site, bool inplace);

// Before work is given to a device: inputs written on another stream are waited for there, memory is marked as used,
// and errors that earlier kernels reported are thrown.
void prepare_device_inputs(const Tensor* const* inputs, int count);

// True if the op has a kernel for this device and element type.
bool supports(const OpDef& def, Device device, DType dtype);

// call<Softmax>(site, {dim}, x). Ops with several outputs give a std::array.
template <class Op, class... T>
auto call(const Site& site, typename detail::ParamsOf<Op>::type params, const T&... inputs) {
  static_assert(sizeof...(T) == Op::info.inputs && (std::is_same_v<T, Tensor> && ...));
  const Tensor* in[] = {&inputs...};
  if constexpr (Op::info.outputs == 1) {
    Tensor out;
    dispatch(op_def<Op>, in, sizeof...(T), &out, &params, site);
    return out;
  } else {
    std::array<Tensor, Op::info.outputs> out;
    dispatch(op_def<Op>, in, sizeof...(T), out.data(), &params, site);
    return out;
  }
}
// The same for ops that take a list.
template <class Op>
Tensor call_list(const Site& site, typename detail::ParamsOf<Op>::type params, std::span<const Tensor> inputs) {
  constexpr size_t kInline = 16;
  const Tensor* few[kInline];
  std::vector<const Tensor*> many;
  const Tensor** in = few;
  if (inputs.size() > kInline) {
    many.resize(inputs.size());
    in = many.data();
  }
  for (size_t i = 0; i < inputs.size(); ++i) in[i] = &inputs[i];
  Tensor out;
  dispatch(op_def<Op>, in, static_cast<int>(inputs.size()), &out, &params, site);
  return out;
}
// x = op(x, ...), written into x.
template <class Op, class... T>
Tensor& call_inplace(const Site& site, typename detail::ParamsOf<Op>::type params, Tensor& x, const T&... inputs) {
  const Tensor* in[] = {&x, &inputs...};
  dispatch_inplace(op_def<Op>, in, 1 + sizeof...(T), &params, site);
  return x;
}
// A view op: `Op::view(const Meta&, Params&)` gives the ViewSpec.
template <class Op>
Tensor call_view(const Site& site, typename detail::ParamsOf<Op>::type params, const Tensor& x,
                 ViewOrigin origin = ViewOrigin::tracked);

namespace detail {
void check_defined(const Tensor& x, const char* op);
}

template <class Op>
Tensor call_view(const Site& site, typename detail::ParamsOf<Op>::type params, const Tensor& x, ViewOrigin origin) {
  detail::check_defined(x, Op::info.name);
  ViewSpec spec = Op::view(x.meta(), params);
  return dispatch_view(op_def<Op>, x, spec, &params, site, origin);
}

}  // namespace deft
