// The base of all elementwise ops. An op gives its formula once; SIMD kernels, gradients, in-place forms, dtype and
// layout handling come from here.
#pragma once

#include "base/math.h"
#include "core/op.h"

namespace deft {

namespace cpu {
// The same alias as in kernels/cpu/elementwise/elementwise.h: public headers do not include kernels.
using ChunkFn = void (*)(const void* const* in, void* out, size_t n, const void* params);
}  // namespace cpu
namespace cuda {
struct ElementwiseKernel;  // kernels/cuda/elementwise/elementwise.h
}
using CudaTableFn = const cuda::ElementwiseKernel* (*)();
struct ElementwiseCuda {  // filled in when the CUDA plug-in is loaded
  CudaTableFn table = nullptr, grad_table = nullptr;
};

// Type of the result, given the promoted type of the inputs.
enum class ResultType : uint8_t { same, floating /* integers become f32 */, boolean };

struct ElementwiseDef {
  uint16_t row;  // in the family's kernel tables
  ResultType result;
  const cpu::ChunkFn* (*table)();                 // [row][dtype]: forward formulas
  const cpu::ChunkFn* (*grad_table)() = nullptr;  // the same for gradients of unary ops: formulas of (g, x, y)
  bool condition = false;                         // input 0 is a condition: it takes no part in promotion
  const ElementwiseCuda* cuda = nullptr;          // both tables of the CUDA plug-in
};

// Kernel tables, one row per op in the order of unary.def, activation.def, binary.def, ternary.def; columns are DType.
const cpu::ChunkFn* unary_table();
const cpu::ChunkFn* unary_grad_table();
const cpu::ChunkFn* activation_table();
const cpu::ChunkFn* activation_grad_table();
const cpu::ChunkFn* binary_table();
const cpu::ChunkFn* ternary_table();
// Defined in the CUDA plug-in.
const cuda::ElementwiseKernel* unary_cuda_table();
const cuda::ElementwiseKernel* unary_cuda_grad_table();
const cuda::ElementwiseKernel* activation_cuda_table();
const cuda::ElementwiseKernel* activation_cuda_grad_table();
const cuda::ElementwiseKernel* binary_cuda_table();
const cuda::ElementwiseKernel* ternary_cuda_table();
extern ElementwiseCuda unary_cuda, activation_cuda, binary_cuda, ternary_cuda;

// The part of the real line where an op is defined and smooth; its samples stay inside.
struct Domain {
  double low = -2, high = 2;
  double away_from = NAN;  // keep |x - away_from| >= 0.05, for kinks and steps
  double period = 0;       // the same around away_from + k * period
};
namespace domains {
inline constexpr Domain kReal{};
inline constexpr Domain kAwayFromZero{.away_from = 0};
}  // namespace domains

namespace elementwise {

// Promoted type of the inputs after the rule for integers, and the type the formula runs in (f32 for 16-bit floats).
DType common_type(const Meta* const* inputs, int count, ResultType result);
inline DType compute_type(DType t) { return t == DType::bf16 || t == DType::f16 ? DType::f32 : t; }

// What inputs are converted to must be a type of the op's; a condition must be bool.
void check_types(const OpInfo& info, ResultType result, const Meta* const* inputs, int count, bool condition);
Meta infer(const char* name, ResultType result, const Meta* const* inputs, int count, bool condition = false);
void cpu_kernel(KernelCall& c);
// Runs `fn` over broadcast inputs into `out`.
void run(cpu::ChunkFn fn, const Tensor* const* inputs, int count, const Tensor& out, DType compute, DType result,
         const void* params);
// The same on CUDA, in ops/elementwise.cuda.cpp: part of the plug-in, to be called through cuda_ops (ops/cuda_ops.h)
// and OpDef. Numbers among the inputs stay on the host.
void cuda_kernel(KernelCall& c);
extern KernelFn cuda_kernel_slot;
// The gradient kernel of a unary op on (g, x, y).
void cuda_gradient(const ElementwiseDef& def, const Tensor* const* inputs, const Tensor& out, DType compute,
                   const void* params, const char* op);
// One or two contiguous tensors of the same shape and type, or one and a number: the result, computed with little work
// on the host. Undefined in other cases.
Tensor cuda_fast(const OpDef& def, const Tensor* const* inputs, int count, const void* params);

// Eager entry points: a fast path for small, contiguous, same-type inputs, otherwise dispatch().
Tensor unary(const OpDef& def, const Tensor& x, void* params, const Site& site);
Tensor binary(const OpDef& def, const Tensor& a, const Tensor& b, const Site& site);
Tensor& unary_inplace(const OpDef& def, Tensor& x, void* params, const Site& site);
Tensor& binary_inplace(const OpDef& def, Tensor& a, const Tensor& b, const Site& site);
Tensor ternary(const OpDef& def, const Tensor& a, const Tensor& b, const Tensor& c, void* params, const Site& site);
Tensor& ternary_inplace(const OpDef& def, Tensor& a, const Tensor& b, const Tensor& c, void* params, const Site& site);

// Gradient of a unary op through its fused kernel: reads g, and x and y as far as they were saved.
void unary_vjp_fused(VjpContext& c, const ElementwiseDef& def, const void* params);

template <class Op>
inline constexpr bool has_condition = requires {
  requires Op::condition;
};

template <class Op>
void infer_adapter(const Meta* const* in, int count, void*, Meta* out) {
  if constexpr (Op::info.inputs > 1) check_types(Op::info, Op::result, in, count, has_condition<Op>);
  if constexpr (requires { Op::check_types(*in[0], *in[1]); }) Op::check_types(*in[0], *in[1]);
  out[0] = infer(Op::info.name, Op::result, in, count, has_condition<Op>);
}

// Comparisons and logic written in place into floats: steps, whose slope is 0.
void step_vjp(VjpContext& c);
template <class Op>
constexpr auto vjp_of() {
  if constexpr (Op::result == ResultType::boolean)
    return &step_vjp;
  else
    return &detail::vjp_adapter<Op>;
}

// Ops that some values of integers are errors for check them first.
template <class Op>
void checked_cpu_kernel(KernelCall& c) {
  Op::check_values(c);
  cpu_kernel(c);
}

template <class Op>
constexpr OpDef make_def(const ElementwiseDef* e) {
  using Params = typename detail::ParamsOf<Op>::type;
  static_assert(std::is_trivially_copyable_v<Params>);
  constexpr bool has_vjp = requires(VjpContext & c) { Op::vjp(c); };
  constexpr bool has_no_grad = requires { Op::not_differentiable; };
  static_assert(has_vjp != has_no_grad, "an op has exactly one of vjp() and not_differentiable");
  OpDef def{.info = Op::info,
            .node = {Op::info.name, vjp_of<Op>(), nullptr},
            .params_bytes = std::is_empty_v<Params> ? 0 : static_cast<uint32_t>(sizeof(Params)),
            .infer = &infer_adapter<Op>,
            .cpu = &cpu_kernel,
            .cuda = &cuda_kernel_slot,
            .elementwise = e};
  if constexpr (requires(KernelCall & c) { Op::check_values(c); }) def.cpu = &checked_cpu_kernel<Op>;
  return def;
}

}  // namespace elementwise

// A 0-d tensor around a number; takes part in promotion as a number, not as a tensor. It lies in host memory, also next
// to tensors on other devices.
Tensor wrap_number(Scalar value, Device device = kCPU);

constexpr OpInfo unary_info(const char* name, DTypeSet dtypes, uint16_t uses, OnnxName onnx = {},
                            Autocast autocast = Autocast::promote) {
  return {.name = name,
          .inputs = 1,
          .dtypes = dtypes,
          .fusion = Fusion::elementwise,
          .autocast = autocast,
          .uses = {uses},
          .onnx = onnx};
}
constexpr OpInfo binary_info(const char* name, DTypeSet dtypes, uint16_t uses_a, uint16_t uses_b, OnnxName onnx = {},
                             Autocast autocast = Autocast::promote) {
  return {.name = name,
          .inputs = 2,
          .dtypes = dtypes,
          .fusion = Fusion::elementwise,
          .autocast = autocast,
          .uses = {uses_a, uses_b},
          .onnx = onnx};
}

constexpr OpInfo ternary_info(const char* name, DTypeSet dtypes, std::array<uint16_t, kMaxUses> uses,
                              OnnxName onnx = {}) {
  return {.name = name,
          .inputs = 3,
          .dtypes = dtypes,
          .fusion = Fusion::elementwise,
          .autocast = Autocast::promote,
          .uses = uses,
          .onnx = onnx};
}

}  // namespace deft
