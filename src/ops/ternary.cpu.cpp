// SIMD kernels of the ternary formulas, one table per instruction set.
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/ternary.cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "kernels/cpu/elementwise/chunk-inl.h"
#include "ops/ternary.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

template <class Op, class T>
constexpr ChunkFn ternary_entry() {
  // Integers run through the formula only if the result stays an integer.
  constexpr bool runs = std::is_floating_point_v<T> || Op::result != ResultType::floating;
  // Where input 0 is a condition, info.dtypes is about that; the other inputs may be anything.
  if constexpr (elementwise::has_condition<Op> || (runs && Op::info.dtypes.contains(dtype_of<T>))) {
    return &ternary_chunk<Formula<Op>, T>;
  } else {
    return nullptr;
  }
}

const ChunkFn* ternary_rows() {
  static constexpr ChunkFn table[][kDTypeCount] = {
#define DEFT_TERNARY(Type, function) \
  {ternary_entry<Type, float>(),     \
   ternary_entry<Type, double>(),    \
   nullptr,                          \
   nullptr,                          \
   ternary_entry<Type, int8_t>(),    \
   ternary_entry<Type, uint8_t>(),   \
   ternary_entry<Type, int32_t>(),   \
   ternary_entry<Type, int64_t>(),   \
   ternary_entry<Type, bool>()},
#include "ops/ternary.def"
#undef DEFT_TERNARY
  };
  return table[0];
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft {

namespace cpu {
HWY_EXPORT(ternary_rows);
}

const cpu::ChunkFn* ternary_table() {
  using namespace cpu;
  static const cpu::ChunkFn* rows = HWY_DYNAMIC_DISPATCH(ternary_rows)();
  return rows;
}

}  // namespace deft
#endif
