// Helpers of the row kernels: whole and partial vectors of stored elements, maps and sums over a row. Compiled per
// target.
#if defined(DEFT_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_ROWS_INL_H_
#undef DEFT_KERNELS_CPU_ROWS_INL_H_
#else
#define DEFT_KERNELS_CPU_ROWS_INL_H_
#endif

#include <algorithm>
#include <array>
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
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  if (kLanes == 1 || count >= kLanes) return store_vec(v, p);
  S lanes[RowVec<S>::kLanes];
  store_vec(v, lanes);
  std::memcpy(p, lanes, static_cast<size_t>(count) * sizeof(S));
}

// out[i] = f(i, count) for elements i .. i + count - 1 of a row. Four results are made before they are written, because
// a compiler cannot move the loads of f past a store.
template <class S, class F>
struct RowMap {
  S* out;
  const F& f;
  void four(int64_t i) const {
    constexpr int64_t kLanes = RowVec<S>::kLanes;
    const RowVec<S> v[] = {f(i, kLanes), f(i + kLanes, kLanes), f(i + 2 * kLanes, kLanes), f(i + 3 * kLanes, kLanes)};
    for (int64_t k = 0; k < 4; ++k) store_vec(v[k], out + i + k * kLanes);
  }
  void one(int64_t i, int64_t count) const { store_some(f(i, count), out + i, count); }
};
struct NoMap {
  void four(int64_t) const {}
  void one(int64_t, int64_t) const {}
};

// Only the last count is not a whole vector: it is a constant elsewhere, so that load_some() becomes a plain load.
template <class S, class F>
inline void map_row(int64_t n, S* out, const F& f) {
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  const RowMap<S, F> map{out, f};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) map.four(i);
  for (; i + kLanes <= n; i += kLanes) map.one(i, kLanes);
  if (i < n) map.one(i, n - i);
}

template <class T>
inline double sum_lanes(Vec<T> v, int64_t count) {
  T lanes[Vec<T>::kLanes];
  v.store(lanes);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}
inline double sum_lanes(Vec<double> v) { return hn::GetLane(hn::SumOfLanes(Vec<double>::D(), v.raw)); }
inline double sum_lanes(Vec<float> v) {
#if HWY_TARGET == HWY_SCALAR
  return static_cast<double>(hn::GetLane(v.raw));
#else
  const hn::ScalableTag<double> d;
  const hn::Half<hn::ScalableTag<float>> half;
  const auto low = hn::PromoteTo(d, hn::LowerHalf(half, v.raw));
  const auto high = hn::PromoteTo(d, hn::UpperHalf(half, v.raw));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
#endif
}

// kSums sums over a row, lane by lane.
template <class T, int kSums>
struct LaneSums {
  Vec<T> of[kSums];
  LaneSums() {
    for (Vec<T>& v : of) v = Vec<T>(0);
  }
};

// Sums over a row of n: add(i, count, sums) adds the terms of elements i .. i + count - 1 to the LaneSums. Blocks of
// 2048 are combined in f64, so that the error does not grow with n. `also` is a map of another row that is done in the
// same loop: one row is read from memory while the other is written.
template <class T, int kSums, class F, class Map = NoMap>
inline std::array<double, kSums> sum_row(int64_t n, const F& add, const Map& also = {}) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  std::array<double, kSums> total{};
  for (int64_t block = 0; block < n; block += 2048) {
    const int64_t end = std::min<int64_t>(n, block + 2048);
    LaneSums<T, kSums> a, b, c, d;
    int64_t i = block;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      add(i, kLanes, a);
      add(i + kLanes, kLanes, b);
      add(i + 2 * kLanes, kLanes, c);
      add(i + 3 * kLanes, kLanes, d);
      also.four(i);
    }
    for (; i + kLanes <= end; i += kLanes) {
      add(i, kLanes, a);
      also.one(i, kLanes);
    }
    for (int k = 0; k < kSums; ++k) total[k] += sum_lanes((a.of[k] + b.of[k]) + (c.of[k] + d.of[k]));
    if (i == end) continue;
    LaneSums<T, kSums> rest;
    add(i, end - i, rest);
    also.one(i, end - i);
    for (int k = 0; k < kSums; ++k) total[k] += sum_lanes(rest.of[k], end - i);
  }
  return total;
}

struct RowMoments {
  double mean, squares;  // of the deviations from the mean
};
// One pass over deviations from a guess; a guess so far off that the difference of squares would suffer is mended by a
// second one. `also` as in sum_row().
template <class S, class Map = NoMap>
inline RowMoments moments_of_row(const S* x, int64_t n, const Map& also = {}) {
  using T = accumulate_t<S>;
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const double count = static_cast<double>(n);
  T center = hn::GetLane(hn::SumOfLanes(typename V::D(), load_some(x, n).raw)) / static_cast<T>(kLanes);
  V guess(center);
  auto add = [&](int64_t i, int64_t m, LaneSums<T, 2>& s) HWY_ATTR {
    const V d = load_some(x + i, m) - guess;
    s.of[0] += d;
    s.of[1] = fma(d, d, s.of[1]);
  };
  auto [sum, all] = sum_row<T, 2>(n, add, also);
  if (sum / count * sum > 0.8 * all) {  // four times what is left
    center = static_cast<T>(static_cast<double>(center) + sum / count);
    guess = V(center);
    const auto again = sum_row<T, 2>(n, add);
    sum = again[0];
    all = again[1];
  }
  const double shift = sum / count, squares = all - shift * sum;
  return {static_cast<double>(center) + shift, squares > 0 || squares != squares ? squares : 0};
}

// The largest element. Where there is a NaN it may be any number: what is computed from the row finds the NaN again.
template <class S>
inline accumulate_t<S> max_of_row(const S* x, int64_t n) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  auto larger = [](V a, V b) HWY_ATTR { return V(hn::Max(a.raw, b.raw)); };
  V a = load_some(x, n), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a = larger(a, load_vec(x + i));
    b = larger(b, load_vec(x + i + kLanes));
    c = larger(c, load_vec(x + i + 2 * kLanes));
    d = larger(d, load_vec(x + i + 3 * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) a = larger(a, load_vec(x + i));
  if (i < n) a = larger(a, load_some(x + i, n - i));
  return hn::GetLane(hn::MaxOfLanes(typename V::D(), larger(larger(a, b), larger(c, d)).raw));
}

// exp of k vectors with elements <= 88: within 1.05 ulp (1.5 where fma() rounds twice), 0 below -87.68 instead of the
// last subnormal numbers. The vectors go through it side by side: one alone would wait for its own results.
// Row kernels that take exponentials are bound by these 15 operations a vector, not by memory. In assembly, with the
// constants that fma() adds to loaded instead of copied, they gain a tenth.
template <size_t k>
inline void exp_negative(Vec<float> (&x)[k]) {
  using V = Vec<float>;
  const V::D d;
  const hn::Rebind<uint32_t, V::D> du;
  const V low(-88), round(0x1.8p23 + 127);
  V scale[k], s[k], a[k], b[k];
  for (size_t j = 0; j < k; ++j) {
#if HWY_TARGET == HWY_NEON
    x[j] = max(x[j], low);
#else
    x[j] = select(x[j] < low, low, x[j]);  // keeps NaN
#endif
  }
  // x = n ln 2 + r. The sum leaves the biased exponent of 2^n in its low bits, a zero for the lowest x.
  for (size_t j = 0; j < k; ++j) scale[j] = fma(x[j], V(1.44269504088896341), round);
  for (size_t j = 0; j < k; ++j) a[j] = scale[j] - round;
  for (size_t j = 0; j < k; ++j) x[j] = fma(a[j], V(-0x1.62e4p-1), x[j]);  // 15 bits: the product is exact
  for (size_t j = 0; j < k; ++j) x[j] = fma(a[j], V(-1.42860682030941723e-06), x[j]);
  for (size_t j = 0; j < k; ++j) scale[j] = V(hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, scale[j].raw))));
  // exp(r) - 1, fitted to 5.2e-9; of several such fits the one with the smallest error after rounding.
  for (size_t j = 0; j < k; ++j) s[j] = x[j] * x[j];
  for (size_t j = 0; j < k; ++j) a[j] = fma(x[j], V(0x1.1245acp-7), V(0x1.5558bep-5));
  for (size_t j = 0; j < k; ++j) b[j] = fma(x[j], V(0x1.555474p-3), V(0x1.fffffcp-2));
  for (size_t j = 0; j < k; ++j) a[j] = fma(s[j], V(0x1.6a17fcp-10), a[j]);
  for (size_t j = 0; j < k; ++j) b[j] = fma(a[j], s[j], b[j]);
  for (size_t j = 0; j < k; ++j) x[j] = fma(b[j], s[j], x[j]);
  for (size_t j = 0; j < k; ++j) x[j] = fma(x[j], scale[j], scale[j]);
}
template <size_t k>
inline void exp_negative(Vec<double> (&x)[k]) {
  for (Vec<double>& v : x) v = exp(v);
}
template <class T>
inline Vec<T> exp_negative(Vec<T> x) {
  Vec<T> one[] = {x};
  exp_negative(one);
  return one[0];
}

// The exponentials of x(i, count), given to put(i, count, exponentials) over a row of n; their sum.
template <class T, class X, class Put>
inline double exp_row(int64_t n, const X& x, const Put& put) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  double total = 0;
  for (int64_t block = 0; block < n; block += 2048) {
    const int64_t end = std::min<int64_t>(n, block + 2048);
    Vec<T> sum(0);
    int64_t i = block;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      Vec<T> v[] = {x(i, kLanes), x(i + kLanes, kLanes), x(i + 2 * kLanes, kLanes), x(i + 3 * kLanes, kLanes)};
      exp_negative(v);
      put(i, kLanes, v[0]);
      put(i + kLanes, kLanes, v[1]);
      put(i + 2 * kLanes, kLanes, v[2]);
      put(i + 3 * kLanes, kLanes, v[3]);
      sum += (v[0] + v[1]) + (v[2] + v[3]);
    }
    for (; i + kLanes <= end; i += kLanes) {
      const Vec<T> v = exp_negative(x(i, kLanes));
      put(i, kLanes, v);
      sum += v;
    }
    total += sum_lanes(sum);
    if (i == end) continue;
    const Vec<T> v = exp_negative(x(i, end - i));
    put(i, end - i, v);
    total += sum_lanes(v, end - i);
  }
  return total;
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_ROWS_INL_H_
