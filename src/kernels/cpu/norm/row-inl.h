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
#include <cmath>
#include <cstring>

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/simd/simd-inl.h"
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

// Streaming of rows past the caches (kernels/cpu/copy/streaming_store.h); `ahead` is prefetched. Nowhere: no streaming.
inline constexpr int64_t kAhead = 2048;  // bytes
template <class S>
struct Ahead {
  const S *first = nullptr, *second = nullptr;
  explicit operator bool() const { return kHasStreams && first; }
  // Of the place to be read at the same i.
  static Ahead of(const S* a, const S* b = nullptr) { return {at(a), b ? at(b) : nullptr}; }
  void fetch(int64_t i, int64_t count) const {
    for (int64_t k = 0; k < count * static_cast<int64_t>(sizeof(S)); k += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(first + i) + k);
      if (second) __builtin_prefetch(reinterpret_cast<const char*>(second + i) + k);
    }
  }

 private:
  static const S* at(const S* p) { return p + kAhead / static_cast<int64_t>(sizeof(S)); }  // only prefetched
};
// Whether `rows` rows of n are streamed: only whole cache lines are.
template <class S>
inline bool streams_rows(const S* out, int64_t rows, int64_t n) {
  const int64_t bytes = n * static_cast<int64_t>(sizeof(S));
  return (bytes | static_cast<int64_t>(reinterpret_cast<uintptr_t>(out))) % 64 == 0 && streams(rows * bytes);
}

// out[i] = f(i, count) for elements i .. i + count - 1 of a row. Four results are made before they are written, because
// a compiler cannot move the loads of f past a store.
template <class S, class F>
struct RowMap {
  S* out;
  const F& f;
  Ahead<S> ahead = {};
  void four(int64_t i) const {
    constexpr int64_t kLanes = RowVec<S>::kLanes;
    const RowVec<S> v[] = {f(i, kLanes), f(i + kLanes, kLanes), f(i + 2 * kLanes, kLanes), f(i + 3 * kLanes, kLanes)};
    if (ahead) {
      ahead.fetch(i, 4 * kLanes);
      for (int64_t k = 0; k < 4; ++k) stream_vec(v[k], out + i + k * kLanes);
    } else {
      for (int64_t k = 0; k < 4; ++k) store_vec(v[k], out + i + k * kLanes);
    }
  }
  void one(int64_t i, int64_t count) const { store_some(f(i, count), out + i, count); }
};
struct NoMap {
  void four(int64_t) const {}
  void one(int64_t, int64_t) const {}
};

// Only the last count is not a whole vector: it is a constant elsewhere, so that load_some() becomes a plain load.
template <class S, class F>
inline void map_row(int64_t n, S* out, const F& f, Ahead<S> ahead = {}) {
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  const RowMap<S, F> map{out, f, ahead};
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
// second one. The guess is the mean of the first elements, or zero where a second pass is cheap (kInCache). `also` as
// in sum_row().
template <bool kInCache, class S, class Map = NoMap>
inline RowMoments moments_of_row(const S* x, int64_t n, const Map& also = {}) {
  using T = accumulate_t<S>;
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const double count = static_cast<double>(n);
  T center = 0;
  if (!kInCache) center = hn::GetLane(hn::SumOfLanes(typename V::D(), load_some(x, n).raw)) / static_cast<T>(kLanes);
  if (!std::isfinite(center)) center = 0;  // an infinity there must count like one anywhere else
  V guess(center);
  auto add_to = [](V d, LaneSums<T, 2>& s) HWY_ATTR {
    s.of[0] += d;
    s.of[1] = fma(d, d, s.of[1]);
  };
  auto add = [&](int64_t i, int64_t m, LaneSums<T, 2>& s) HWY_ATTR { add_to(load_some(x + i, m) - guess, s); };
  auto add_first = [&](int64_t i, int64_t m, LaneSums<T, 2>& s)
                       HWY_ATTR { kInCache ? add_to(load_some(x + i, m), s) : add(i, m, s); };
  auto [sum, all] = sum_row<T, 2>(n, add_first, also);
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

// The largest element. Where there is a NaN it may be any number: later passes over the row see the NaN again.
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

// What e^x is taken relative to in a row: exp_row() gives e^x 2^-whole, which is e^(x - largest) 2^-rest. A power of
// two that all elements share cancels where they are divided by their sum, so nothing needs to be subtracted from them.
// Where they are so large that fma() could not split x log2(e) into a whole number and a fraction any more, where there
// is no FMA, and in f64, x - shift is taken instead.
template <class T>
struct ExpBase {
  static constexpr float kScale = 1.44269504f, kScaleLow = 1.92596303e-08f;  // log2(e)
  T shift = 0;
  double rest = 0;
  float low = -127 / kScale;
  Coefficient round = 0x1.8p23f + 127;  // minus the whole number
  explicit ExpBase(double largest) {
    if (HWY_NATIVE_FMA && sizeof(T) == 4 && std::abs(largest) < 0x1p20) {
      const double exponent = largest * 1.44269504088896340736, whole = std::nearbyint(exponent);
      rest = whole - exponent;
      low = static_cast<float>((whole - 127) / kScale);
      round = static_cast<float>(0x1.8p23 + 127 - whole);
    } else {
      shift = static_cast<T>(largest);
    }
  }
  // log(sum of e^(x - largest)) from the sum that exp_row() found. One of the terms is 1: never below zero.
  double log_of(double sum) const {
    const double log = std::log(sum) + rest * 0.693147180559945309417;
    return log < 0 ? 0 : log;
  }
};

// e^x 2^-whole of k vectors, within 2.6 ulp; 0 from half a step below the normal numbers. The vectors go through it
// side by side: one alone would wait for its own results. Row kernels that take exponentials are bound by these 13
// operations a vector, of which a Neoverse V1 starts two to three per cycle; memory leaves time for six.
// Tried on a row in L1, against 6.1 cycles a vector with the sum: 11 operations (log2(e) in one
// part, Horner, the last product in an fma) 5.8, and 3 % of a softmax; whole vectors of constants instead of lanes: no
// gain; eight vectors side by side in assembly 5.1; four and the next four half a step apart, without the sum, 4.6.
inline constexpr Coefficient kPower[] = {1.0f,           0x1.62e42ap-1f, 0x1.ebf9c2p-3f,
                                         0x1.c6b6d8p-5f, 0x1.3ce8b2p-7f, 0x1.5bda94p-10f};
template <size_t k>
inline void exp_vectors(const ExpBase<float>& base, Vec<float> (&x)[k]) {
  using V = Vec<float>;
  const V scale(base.kScale), scale_low(base.kScaleLow), low(base.low), round = base.round.vec();
  V power[k], f[k], a[k], b[k];
  for (size_t j = 0; j < k; ++j) x[j] = at_least(x[j], low);
  // The sum leaves the biased exponent of the power of two in its low bits, a zero for the lowest x.
  for (size_t j = 0; j < k; ++j) power[j] = fma(x[j], scale, base.round);
  for (size_t j = 0; j < k; ++j) f[j] = round - power[j];
  for (size_t j = 0; j < k; ++j) f[j] = fma(x[j], scale, f[j]);
  for (size_t j = 0; j < k; ++j) f[j] = fma(x[j], scale_low, f[j]);
  for (size_t j = 0; j < k; ++j) power[j] = from_bits(hn::ShiftLeft<23>(bits_of(power[j])));
  // 2^f, fitted to 9.4e-8 of it.
  for (size_t j = 0; j < k; ++j) x[j] = f[j] * f[j];
  for (size_t j = 0; j < k; ++j) a[j] = fma(f[j], kPower[5].vec(), kPower[4]);
  for (size_t j = 0; j < k; ++j) b[j] = fma(f[j], kPower[3].vec(), kPower[2]);
  for (size_t j = 0; j < k; ++j) f[j] = fma(f[j], kPower[1].vec(), kPower[0]);
  for (size_t j = 0; j < k; ++j) b[j] = fma(a[j], x[j], b[j]);
  for (size_t j = 0; j < k; ++j) x[j] = fma(b[j], x[j], f[j]) * power[j];
}
#if HWY_TARGET == HWY_NEON
// The same operations in the order they are written in above: GCC puts those of one vector in a row where there is
// other work in the loop, which made the softmax take 8 % longer.
inline void exp_vectors(const ExpBase<float>& base, Vec<float> (&x)[4]) {
  alignas(16) static constexpr float kFactors[] = {kPower[5].lanes[0], kPower[3].lanes[0], kPower[1].lanes[0],
                                                   ExpBase<float>::kScale};
  asm("fmax %0.4s, %0.4s, %4.4s\n fmax %1.4s, %1.4s, %4.4s\n fmax %2.4s, %2.4s, %4.4s\n fmax %3.4s, %3.4s, %4.4s\n"
      "ldr q16, %7\n ldr q17, %7\n ldr q18, %7\n ldr q19, %7\n"
      "fmla v16.4s, %0.4s, %6.s[3]\n fmla v17.4s, %1.4s, %6.s[3]\n"
      "fmla v18.4s, %2.4s, %6.s[3]\n fmla v19.4s, %3.4s, %6.s[3]\n"
      "fsub v20.4s, %5.4s, v16.4s\n fsub v21.4s, %5.4s, v17.4s\n"
      "fsub v22.4s, %5.4s, v18.4s\n fsub v23.4s, %5.4s, v19.4s\n"
      "fmla v20.4s, %0.4s, %6.s[3]\n fmla v21.4s, %1.4s, %6.s[3]\n"
      "fmla v22.4s, %2.4s, %6.s[3]\n fmla v23.4s, %3.4s, %6.s[3]\n"
      "fmla v20.4s, %0.4s, %11.4s\n fmla v21.4s, %1.4s, %11.4s\n fmla v22.4s, %2.4s, %11.4s\n fmla v23.4s, %3.4s, "
      "%11.4s\n"
      "shl v16.4s, v16.4s, #23\n shl v17.4s, v17.4s, #23\n shl v18.4s, v18.4s, #23\n shl v19.4s, v19.4s, #23\n"
      "ldr q24, %8\n ldr q25, %8\n ldr q26, %8\n ldr q27, %8\n ldr q28, %9\n ldr q29, %9\n ldr q30, %9\n ldr q31, %9\n"
      "fmla v24.4s, v20.4s, %6.s[0]\n fmla v25.4s, v21.4s, %6.s[0]\n"
      "fmla v26.4s, v22.4s, %6.s[0]\n fmla v27.4s, v23.4s, %6.s[0]\n"
      "fmul %0.4s, v20.4s, v20.4s\n fmul %1.4s, v21.4s, v21.4s\n"
      "fmul %2.4s, v22.4s, v22.4s\n fmul %3.4s, v23.4s, v23.4s\n"
      "fmla v28.4s, v20.4s, %6.s[1]\n fmla v29.4s, v21.4s, %6.s[1]\n"
      "fmla v30.4s, v22.4s, %6.s[1]\n fmla v31.4s, v23.4s, %6.s[1]\n"
      "fmla v28.4s, v24.4s, %0.4s\n fmla v29.4s, v25.4s, %1.4s\n"
      "fmla v30.4s, v26.4s, %2.4s\n fmla v31.4s, v27.4s, %3.4s\n"
      "ldr q24, %10\n ldr q25, %10\n ldr q26, %10\n ldr q27, %10\n"
      "fmla v24.4s, v20.4s, %6.s[2]\n fmla v25.4s, v21.4s, %6.s[2]\n"
      "fmla v26.4s, v22.4s, %6.s[2]\n fmla v27.4s, v23.4s, %6.s[2]\n"
      "fmla v24.4s, v28.4s, %0.4s\n fmla v25.4s, v29.4s, %1.4s\n"
      "fmla v26.4s, v30.4s, %2.4s\n fmla v27.4s, v31.4s, %3.4s\n"
      "fmul %0.4s, v24.4s, v16.4s\n fmul %1.4s, v25.4s, v17.4s\n"
      "fmul %2.4s, v26.4s, v18.4s\n fmul %3.4s, v27.4s, v19.4s"
      : "+w"(x[0].raw.raw), "+w"(x[1].raw.raw), "+w"(x[2].raw.raw), "+w"(x[3].raw.raw)
      : "w"(Vec<float>(base.low).raw.raw), "w"(base.round.vec().raw.raw), "w"(vld1q_f32(kFactors)), "m"(base.round),
        "m"(kPower[4]), "m"(kPower[2]), "m"(kPower[0]), "w"(Vec<float>(base.kScaleLow).raw.raw)
      : "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
#endif
template <size_t k>
inline void exp_vectors(const ExpBase<double>&, Vec<double> (&x)[k]) {
  for (Vec<double>& v : x) v = exp(v);
}
// e^x for x that is not much above zero.
template <class T>
inline Vec<T> exp_negative(Vec<T> x) {
  Vec<T> one[] = {x};
  exp_vectors(ExpBase<T>(0), one);
  return one[0];
}

// The sum of the exponentials of x(i, count) over a row of n; put(i, count, exponentials) gets them.
template <class T, class X, class Put>
inline double exp_blocks(int64_t n, const ExpBase<T>& base, const X& x, const Put& put) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  double total = 0;
  for (int64_t block = 0; block < n; block += 2048) {
    const int64_t end = std::min<int64_t>(n, block + 2048);
    Vec<T> sum(0);
    int64_t i = block;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      Vec<T> v[] = {x(i, kLanes), x(i + kLanes, kLanes), x(i + 2 * kLanes, kLanes), x(i + 3 * kLanes, kLanes)};
      exp_vectors(base, v);
      put(i, kLanes, v[0]);
      put(i + kLanes, kLanes, v[1]);
      put(i + 2 * kLanes, kLanes, v[2]);
      put(i + 3 * kLanes, kLanes, v[3]);
      sum += (v[0] + v[1]) + (v[2] + v[3]);
    }
    for (; i + kLanes <= end; i += kLanes) {
      Vec<T> v[] = {x(i, kLanes)};
      exp_vectors(base, v);
      put(i, kLanes, v[0]);
      sum += v[0];
    }
    total += sum_lanes(sum);
    if (i == end) continue;
    Vec<T> v[] = {x(i, end - i)};
    exp_vectors(base, v);
    put(i, end - i, v[0]);
    total += sum_lanes(v[0], end - i);
  }
  return total;
}
// The same of a row of elements x(i, count), relative to what `base` says.
template <class T, class X, class Put>
inline double exp_row(int64_t n, const ExpBase<T>& base, const X& x, const Put& put) {
  if (base.shift == 0) return exp_blocks(n, base, x, put);
  const Vec<T> shift(base.shift);
  return exp_blocks(
      n, base, [&](int64_t i, int64_t m) HWY_ATTR { return x(i, m) - shift; }, put);
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_ROWS_INL_H_
