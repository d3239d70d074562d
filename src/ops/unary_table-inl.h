// Rows of the kernel tables of unary ops, from their formulas. Compiled once per target.
#if defined(DEFT_OPS_UNARY_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_OPS_UNARY_TABLE_INL_H_
#undef DEFT_OPS_UNARY_TABLE_INL_H_
#else
#define DEFT_OPS_UNARY_TABLE_INL_H_
#endif

#include "kernels/cpu/elementwise/chunk-inl.h"
#include "ops/elementwise.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

template <class Op, class T>
constexpr ChunkFn unary_entry() {
  // Integers run through the formula only if the result stays an integer.
  constexpr bool runs = std::is_floating_point_v<T> || Op::result != ResultType::floating;
  if constexpr (runs && Op::info.dtypes.contains(dtype_of<T>)) {
    return &unary_chunk<Formula<Op>, T>;
  } else {
    return nullptr;
  }
}
template <class Op, class T>
constexpr ChunkFn unary_grad_entry() {
  if constexpr (requires(VjpContext & c) { Op::vjp(c); }) {
    return &ternary_chunk<GradFormula<Op>, T>;
  } else {
    return nullptr;
  }
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#ifndef DEFT_UNARY_ROW
#define DEFT_UNARY_ROW(Op)     \
  {unary_entry<Op, float>(),   \
   unary_entry<Op, double>(),  \
   nullptr,                    \
   nullptr,                    \
   unary_entry<Op, int8_t>(),  \
   unary_entry<Op, uint8_t>(), \
   unary_entry<Op, int32_t>(), \
   unary_entry<Op, int64_t>(), \
   unary_entry<Op, bool>()},
#define DEFT_UNARY_GRAD_ROW(Op) {unary_grad_entry<Op, float>(), unary_grad_entry<Op, double>()},
#endif

#endif  // DEFT_OPS_UNARY_TABLE_INL_H_
