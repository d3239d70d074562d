// Rows of the CUDA kernel tables of elementwise ops, from the same formulas as the CPU's.
#pragma once

#include "kernels/cuda/elementwise/elementwise.cuh"
#include "ops/elementwise.h"

namespace deft::elementwise {

template <class Op, bool kGradient>
struct CudaFormula {
  using Params = typename detail::ParamsOf<Op>::type;
  static constexpr bool condition = !kGradient && has_condition<Op>;
  static constexpr bool numbers = !kGradient && Op::info.inputs > 1;
  template <class... V>
  DEFT_HD static auto call([[maybe_unused]] const Params& p, V... v) {
    if constexpr (kGradient) {
      if constexpr (std::is_same_v<Params, NoParams>)
        return Op::grad(v...);
      else
        return Op::grad(v..., p);
    } else {
      if constexpr (std::is_same_v<Params, NoParams>)
        return Op::fwd(v...);
      else
        return Op::fwd(v..., p);
    }
  }
};

template <class Op, class T>
cuda::ElementwiseKernel cuda_entry() {
  // Integers run through the formula only if the result stays an integer; see ops/unary_table-inl.h.
  constexpr bool runs = cuda::is_float_v<T> || Op::result != ResultType::floating;
  if constexpr (has_condition<Op> || (runs && Op::info.dtypes.contains(dtype_of<T>)))
    return cuda::elementwise_entry<CudaFormula<Op, false>, T, Op::info.inputs>();
  else
    return {};
}
template <class Op, class T>
cuda::ElementwiseKernel cuda_grad_entry() {
  if constexpr (requires(VjpContext & c) { Op::vjp(c); })
    return cuda::elementwise_entry<CudaFormula<Op, true>, T, 3>();
  else
    return {};
}

// In the order of DType.
#define DEFT_CUDA_ROW(Op)                                                           \
  {elementwise::cuda_entry<Op, float>(),    elementwise::cuda_entry<Op, double>(),  \
   elementwise::cuda_entry<Op, BFloat16>(), elementwise::cuda_entry<Op, Half>(),    \
   elementwise::cuda_entry<Op, int8_t>(),   elementwise::cuda_entry<Op, uint8_t>(), \
   elementwise::cuda_entry<Op, int32_t>(),  elementwise::cuda_entry<Op, int64_t>(), \
   elementwise::cuda_entry<Op, bool>()},
#define DEFT_CUDA_GRAD_ROW(Op)                                                            \
  {elementwise::cuda_grad_entry<Op, float>(), elementwise::cuda_grad_entry<Op, double>(), \
   elementwise::cuda_grad_entry<Op, BFloat16>(), elementwise::cuda_grad_entry<Op, Half>()},

}  // namespace deft::elementwise
