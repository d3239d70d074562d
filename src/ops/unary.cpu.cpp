// SIMD kernels of the unary formulas, forward and gradient, one table per instruction set.
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/unary.cpu.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "ops/unary.h"
#include "ops/unary_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

const ChunkFn* unary_rows() {
  static constexpr ChunkFn table[][kDTypeCount] = {
#define DEFT_UNARY(Type, function) DEFT_UNARY_ROW(Type)
#include "ops/unary.def"
#undef DEFT_UNARY
  };
  return table[0];
}
const ChunkFn* unary_grad_rows() {
  static constexpr ChunkFn table[][kDTypeCount] = {
#define DEFT_UNARY(Type, function) DEFT_UNARY_GRAD_ROW(Type)
#include "ops/unary.def"
#undef DEFT_UNARY
  };
  return table[0];
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft {

namespace cpu {
HWY_EXPORT(unary_rows);
HWY_EXPORT(unary_grad_rows);
}  // namespace cpu

const cpu::ChunkFn* unary_table() {
  using namespace cpu;
  static const cpu::ChunkFn* rows = HWY_DYNAMIC_DISPATCH(unary_rows)();
  return rows;
}
const cpu::ChunkFn* unary_grad_table() {
  using namespace cpu;
  static const cpu::ChunkFn* rows = HWY_DYNAMIC_DISPATCH(unary_grad_rows)();
  return rows;
}

}  // namespace deft
#endif
