#include "kernels/cpu/reduce/row_sum.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce/row_sum.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/norm/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

// kVectors columns of vectors; the sums stay in registers.
template <int kVectors, class S>
inline void sum_columns(const S* table, int64_t stride, const int64_t* first, const int64_t* last, S* out,
                        bool accumulate, int64_t count) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  V sum[kVectors];
  for (int k = 0; k < kVectors; ++k) sum[k] = accumulate ? load_some(out + k * kLanes, count) : V(0);
  for (const int64_t* p = first; p < last; ++p) {
    const S* row = table + *p * stride;
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) sum[k] += load_some(row + k * kLanes, count);
  }
  for (int k = 0; k < kVectors; ++k) store_some(sum[k], out + k * kLanes, count);
}

template <class S>
void sum_row_of(const void* table, int64_t stride, int64_t n, const int64_t* first, const int64_t* last, void* out,
                bool accumulate) {
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  const S* t = static_cast<const S*>(table);
  S* to = static_cast<S*>(out);
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) sum_columns<4>(t + i, stride, first, last, to + i, accumulate, kLanes);
  for (; i + kLanes <= n; i += kLanes) sum_columns<1>(t + i, stride, first, last, to + i, accumulate, kLanes);
  if (i < n) sum_columns<1>(t + i, stride, first, last, to + i, accumulate, n - i);
}

RowSumFn row_sum_for(DType dtype) {
  return dispatch_floating(dtype, []<class S>() -> RowSumFn { return &sum_row_of<S>; });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(row_sum_for);
RowSumFn row_sum(DType dtype) { return HWY_DYNAMIC_DISPATCH(row_sum_for)(dtype); }
}  // namespace deft::cpu
#endif  // HWY_ONCE
