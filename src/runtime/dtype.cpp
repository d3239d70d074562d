#include "runtime/dtype.h"

namespace deft {

namespace {

// bool < u8, i8 < i32 < i64 < bf16, f16 < f32 < f64. Types of one rank differ only in kind.
constexpr int rank_of(DType t) {
  constexpr uint8_t ranks[kDTypeCount] = {/*f32*/ 5, /*f64*/ 6, /*bf16*/ 4, /*f16*/ 4, /*i8*/ 1,
                                          /*u8*/ 1,  /*i32*/ 2, /*i64*/ 3,  /*bool*/ 0};
  return ranks[static_cast<int>(t)];
}

}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (rank_of(a) == rank_of(b)) return is_floating(a) ? DType::f32 : DType::i32;  // bf16 with f16, u8 with i8
  return rank_of(a) > rank_of(b) ? a : b;
}

}  // namespace deft
