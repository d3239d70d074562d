// Helpers of the row kernels: whole and partial vectors of stored elements, and sums over a row. Compiled per target.
#if defined(DEFT_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_ROWS_INL_H_
#undef DEFT_KERNELS_CPU_ROWS_INL_H_
#else
#define DEFT_KERNELS_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/simd-inl.h"
#include "runtime/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

// The vector type stored elements of type S are computed in.
template <class S>
using RowVec = Vec<accumulate_t<S>>;

// The first `count` lanes from p; the others repeat p[0], a value that does no harm to a maximum.
template <class S>
inline RowVec<S> load_some(const S* p, int64_t count) {
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  if (count >= kLanes) return load_vec(p);
  S lanes[RowVec<S>::kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = p[i < count ? i : 0];
  return load_vec(lanes);
}
template <class S>
inline void store_some(RowVec<S> v, S* p, int64_t count) {
  if (count >= static_cast<int64_t>(RowVec<S>::kLanes)) return store_vec(v, p);
  S lanes[RowVec<S>::kLanes];
  store_vec(v, lanes);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(S));
}

template <class T>
inline double sum_lanes(Vec<T> v, int64_t count) {
  T lanes[Vec<T>::kLanes];
  v.store(lanes);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

// Sum of f(i, count), the terms of elements i .. i + count - 1, over a row of n. Blocks of 1024 are combined in f64, so
// that the error does not grow with n.
template <class T, class F>
inline double sum_row(int64_t n, const F& f) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  double total = 0;
  for (int64_t block = 0; block < n; block += 1024) {
    const int64_t end = std::min<int64_t>(n, block + 1024);
    Vec<T> sum(0), other(0);
    int64_t i = block;
    for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
      sum += f(i, kLanes);
      other += f(i + kLanes, kLanes);
    }
    if (i + kLanes <= end) {
      sum += f(i, kLanes);
      i += kLanes;
    }
    total += sum_lanes(sum + other, kLanes);
    if (i < end) total += sum_lanes(f(i, end - i), end - i);
  }
  return total;
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_ROWS_INL_H_
