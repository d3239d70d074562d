#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce/reduce_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/norm/row-inl.h"
#include "kernels/cpu/reduce/reduce_internal.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

// ---- How a storage type S is computed with: V is Vec<T> for floats and T itself for int64.
template <class S>
struct Pack {
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  using V = Vec<T>;
  static constexpr size_t kLanes = V::kLanes;
  static V load(const S* p) { return load_vec(p); }
  static void load_two(const S* p, V& a, V& b) {
    a = load_vec(p);
    b = load_vec(p + kLanes);
  }
  static V load_acc(const T* p) { return V::load(p); }
  static void store(V v, T* p) { v.store(p); }
  static T value(S x) { return static_cast<T>(x); }
};
#if HWY_TARGET == HWY_NEON
template <>
inline void Pack<BFloat16>::load_two(const BFloat16* p, V& a, V& b) {  // half the instructions
  const hn::ScalableTag<uint16_t> d;
  const hn::ScalableTag<float> df;
  const auto v = hn::LoadU(d, reinterpret_cast<const uint16_t*>(p));
  a = V(hn::BitCast(df, hn::InterleaveLower(d, hn::Zero(d), v)));
  b = V(hn::BitCast(df, hn::InterleaveUpper(d, hn::Zero(d), v)));
}
#endif
template <>
struct Pack<int64_t> {
  using T = int64_t;
  using V = int64_t;
  static constexpr size_t kLanes = 1;
  static V load(const int64_t* p) { return *p; }
  static void load_two(const int64_t* p, V& a, V& b) {
    a = p[0];
    b = p[1];
  }
  static V load_acc(const int64_t* p) { return *p; }
  static void store(V v, int64_t* p) { *p = v; }
  static T value(int64_t x) { return x; }
};
template <class S>
using acc_t = typename Pack<S>::T;

template <class V>
inline V add(V a, V b) {
  if constexpr (std::is_same_v<V, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <class V>
inline V mul(V a, V b) {
  if constexpr (std::is_same_v<V, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}
template <class V>
inline V larger(V a, V b) {
  using math::max;
  return max(a, b);
}
template <class V>
inline V smaller(V a, V b) {
  using math::min;
  return min(a, b);
}
template <class V>
inline V nonzero(V x) {
  using math::select;
  return select(x != V(0), V(1), V(0));
}
template <class V>
inline V magnitude(V x) {
  using math::abs;
  return abs(x);
}

// ---- Folds: fold(acc, map(x)).
#define DEFT_FOLD(Name, map_expression, fold_expression) \
  struct Name {                                          \
    template <class V>                                   \
    static inline V map(V x, [[maybe_unused]] V p) {     \
      return map_expression;                             \
    }                                                    \
    template <class V>                                   \
    static inline V fold(V a, V b) {                     \
      return fold_expression;                            \
    }                                                    \
  };
DEFT_FOLD(Sum, x, add(a, b))
DEFT_FOLD(Prod, x, mul(a, b))
DEFT_FOLD(Max, x, larger(a, b))
DEFT_FOLD(Min, x, smaller(a, b))
DEFT_FOLD(Any, nonzero(x), larger(a, b))
DEFT_FOLD(All, nonzero(x), smaller(a, b))
DEFT_FOLD(Count, nonzero(x), add(a, b))
DEFT_FOLD(SumSquares, mul(x, x), add(a, b))
DEFT_FOLD(SumAbs, magnitude(x), add(a, b))
DEFT_FOLD(MaxAbs, magnitude(x), larger(a, b))
DEFT_FOLD(MinAbs, magnitude(x), smaller(a, b))
#undef DEFT_FOLD
struct SumPowers {
  template <class V>
  static inline V map(V x, V p) {
    using math::pow;
    return pow(magnitude(x), p);
  }
  template <class V>
  static inline V fold(V a, V b) {
    return add(a, b);
  }
};

// Integers, in any order: the compiler makes vectors of it. (It gets four accumulators wrong: GCC 12 with AVX-512.)
template <class F>
inline int64_t fold_block(const int64_t* x, int64_t n, double param) {
  const auto p = static_cast<int64_t>(param);
  int64_t result = F::map(x[0], p);
  for (int64_t i = 1; i < n; ++i) result = F::fold(result, F::map(x[i], p));
  return result;
}
// Four accumulators hide the latency; n >= 1.
template <class F, class S>
inline acc_t<S> fold_block(const S* x, int64_t n, double param) {
  using P = Pack<S>;
  using T = acc_t<S>;
  using V = typename P::V;
  constexpr int64_t kLanes = P::kLanes;
  const V p(static_cast<T>(param));
  T result;
  int64_t i;
  if (n >= 4 * kLanes) {
    V acc[4], v[4];
    P::load_two(x, acc[0], acc[1]);
    P::load_two(x + 2 * kLanes, acc[2], acc[3]);
    for (V& a : acc) a = F::map(a, p);
    for (i = 4 * kLanes; i + 4 * kLanes <= n; i += 4 * kLanes) {
      P::load_two(x + i, v[0], v[1]);
      P::load_two(x + i + 2 * kLanes, v[2], v[3]);
      acc[0] = F::fold(acc[0], F::map(v[0], p));
      acc[1] = F::fold(acc[1], F::map(v[1], p));
      acc[2] = F::fold(acc[2], F::map(v[2], p));
      acc[3] = F::fold(acc[3], F::map(v[3], p));
    }
    T lanes[P::kLanes];
    P::store(F::fold(F::fold(acc[0], acc[1]), F::fold(acc[2], acc[3])), lanes);
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t k = 0; k < half; ++k) lanes[k] = F::fold(lanes[k], lanes[k + half]);
    }
    result = lanes[0];
  } else {
    result = F::map(P::value(x[0]), static_cast<T>(param));
    i = 1;
  }
  for (; i < n; ++i) result = F::fold(result, F::map(P::value(x[i]), static_cast<T>(param)));
  return result;
}

template <class F, class S>
void fold_kernel(const void* x, int64_t n, int64_t, double param, Partial* out) {
  const acc_t<S> r = fold_block<F>(static_cast<const S*>(x), n, param);
  if constexpr (std::is_same_v<S, int64_t>) {
    out->i = r;
  } else {
    out->a = static_cast<double>(r);
  }
}

#if HWY_TARGET != HWY_SCALAR
// One vector per lane of a block of 16 bytes: lane k of each block is the fold of that block of a[k].
template <class F>
inline Vec<float> fold_blocks(const Vec<float>* a) {
  using V = Vec<float>;
  const V::D d;
  const auto t0 = hn::InterleaveLower(d, a[0].raw, a[2].raw), t1 = hn::InterleaveUpper(d, a[0].raw, a[2].raw);
  const auto t2 = hn::InterleaveLower(d, a[1].raw, a[3].raw), t3 = hn::InterleaveUpper(d, a[1].raw, a[3].raw);
  return F::fold(F::fold(V(hn::InterleaveLower(d, t0, t2)), V(hn::InterleaveUpper(d, t0, t2))),
                 F::fold(V(hn::InterleaveLower(d, t1, t3)), V(hn::InterleaveUpper(d, t1, t3))));
}
template <class F>
inline Vec<double> fold_blocks(const Vec<double>* a) {
  using V = Vec<double>;
  const V::D d;
  return F::fold(V(hn::InterleaveLower(d, a[0].raw, a[1].raw)), V(hn::InterleaveUpper(d, a[0].raw, a[1].raw)));
}
// Both halves of a, then both of b, folded.
template <class F, class V>
inline V fold_halves([[maybe_unused]] V a, [[maybe_unused]] V b) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const typename V::D d;
  return F::fold(V(hn::ConcatLowerLower(d, b.raw, a.raw)), V(hn::ConcatUpperUpper(d, b.raw, a.raw)));
#else
  return a;
#endif
}
#endif
// The fold of the lanes of each of kLanes vectors, as one vector.
template <class F, class P>
inline typename P::V fold_lanes(const typename P::V* a) {
  if constexpr (P::kLanes == 1) {
    return a[0];
  } else {
#if HWY_TARGET != HWY_SCALAR
    using V = typename P::V;
    constexpr size_t kBlock = 16 / sizeof(typename P::T), kBlocks = P::kLanes / kBlock;
    V v[kBlocks];
    for (size_t k = 0; k < kBlocks; ++k) v[k] = fold_blocks<F>(a + k * kBlock);
    if constexpr (kBlocks == 1) return v[0];
    if constexpr (kBlocks == 2) return fold_halves<F>(v[0], v[1]);
#if HWY_TARGET == HWY_AVX3
    const auto even = fold_halves<F>(v[0], v[2]).raw, odd = fold_halves<F>(v[1], v[3]).raw;
    return F::fold(V(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even)),
                   V(hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even))));
#endif
#endif
  }
}

// `live` short lines, at most as many as a vector has lanes; missing ones repeat the last. Every short line goes
// through here, whatever its neighbours: which lines are computed together depends on the number of threads.
template <class F, class S>
inline void fold_short_lines(const S* x, int64_t stride, int64_t live, int64_t n, double param, acc_t<S>* out) {
  using P = Pack<S>;
  using T = acc_t<S>;
  using V = typename P::V;
  constexpr int64_t kLanes = P::kLanes;
  const V p(static_cast<T>(param));
  const auto column = [&](int64_t i) {
    T values[P::kLanes];
    for (int64_t k = 0; k < kLanes; ++k) values[k] = P::value(x[std::min(k, live - 1) * stride + i]);
    return F::map(P::load_acc(values), p);
  };
  V result;
  int64_t i = 0;
  if (n >= kLanes) {
    V acc[P::kLanes];
#pragma GCC unroll 4
    for (int64_t k = 0; k < kLanes; ++k) {
      const S* line = x + std::min(k, live - 1) * stride;
      acc[k] = F::map(P::load(line), p);
      for (i = kLanes; i + kLanes <= n; i += kLanes) acc[k] = F::fold(acc[k], F::map(P::load(line + i), p));
    }
    result = fold_lanes<F, P>(acc);
  } else {
    result = column(0);
    i = 1;
  }
  for (; i < n; ++i) result = F::fold(result, column(i));
  T results[P::kLanes];
  P::store(result, results);
  for (int64_t k = 0; k < live; ++k) out[k] = results[k];
}

template <class F, class S>
void lines_kernel(const void* x, int64_t stride, int64_t lines, int64_t n, double param, void* out) {
  constexpr int64_t kLanes = Pack<S>::kLanes, kShort = 8 * kLanes;
  const S* s = static_cast<const S*>(x);
  auto* to = static_cast<acc_t<S>*>(out);
  if (n >= kShort) {
    for (int64_t k = 0; k < lines; ++k) to[k] = fold_block<F>(s + k * stride, n, param);
    return;
  }
  for (int64_t k = 0; k < lines; k += kLanes) {
    fold_short_lines<F>(s + k * stride, stride, std::min(kLanes, lines - k), n, param, to + k);
  }
}

// In pairs: one dependency chain of eight would fill the CPU's out-of-order window.
template <class F, class V>
inline void fold_tree(V* v) {
  for (int k = 0; k < 4; ++k) v[k] = F::fold(v[k], v[k + 4]);
  v[0] = F::fold(F::fold(v[0], v[1]), F::fold(v[2], v[3]));
}

template <class F, class S>
void columns_kernel(const void* const* rows, int row_count, int64_t width, void* acc, double param) {
  using P = Pack<S>;
  using T = acc_t<S>;
  using V = typename P::V;
  constexpr int64_t kLanes = P::kLanes;
  const V p(static_cast<T>(param));
  T* a = static_cast<T*>(acc);
  const S* r[kRowsAtOnce];
  for (int k = 0; k < kRowsAtOnce; ++k) r[k] = static_cast<const S*>(rows[k < row_count ? k : 0]);
  int64_t c = 0;
  if (row_count == kRowsAtOnce) {
    for (; c + 2 * kLanes <= width; c += 2 * kLanes) {
      V u[kRowsAtOnce], v[kRowsAtOnce];
#pragma GCC unroll 8
      for (int k = 0; k < kRowsAtOnce; ++k) {
        P::load_two(r[k] + c, u[k], v[k]);
        u[k] = F::map(u[k], p);
        v[k] = F::map(v[k], p);
      }
      fold_tree<F>(u);
      fold_tree<F>(v);
      P::store(F::fold(P::load_acc(a + c), u[0]), a + c);
      P::store(F::fold(P::load_acc(a + c + kLanes), v[0]), a + c + kLanes);
    }
  } else {
    for (; c + kLanes <= width; c += kLanes) {
      V u = P::load_acc(a + c);
      for (int k = 0; k < row_count; ++k) u = F::fold(u, F::map(P::load(r[k] + c), p));
      P::store(u, a + c);
    }
  }
  for (; c < width; ++c) {
    for (int k = 0; k < row_count; ++k) a[c] = F::fold(a[c], F::map(P::value(r[k][c]), static_cast<T>(param)));
  }
}

// ---- Mean and squared deviations of a block, in two passes over it; the second also mends the rounding of the mean.
template <class S>
void var_kernel(const void* x, int64_t n, int64_t, double, Partial* out) {
  using P = Pack<S>;
  using T = acc_t<S>;
  using V = Vec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const S* p = static_cast<const S*>(x);
  const T mean = static_cast<T>(static_cast<double>(fold_block<Sum>(p, n, 0)) / static_cast<double>(n));
  V sum[4], squares[4], v[4], m(mean);
  for (int k = 0; k < 4; ++k) sum[k] = squares[k] = V(0);
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    P::load_two(p + i, v[0], v[1]);
    P::load_two(p + i + 2 * kLanes, v[2], v[3]);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const V d = v[k] - m;
      sum[k] += d;
      squares[k] = fma(d, d, squares[k]);
    }
  }
  T s[V::kLanes], q[V::kLanes];
  ((sum[0] + sum[1]) + (sum[2] + sum[3])).store(s);
  ((squares[0] + squares[1]) + (squares[2] + squares[3])).store(q);
  double total = 0, total_squares = 0;
  for (int64_t k = 0; k < kLanes; ++k) total += static_cast<double>(s[k]), total_squares += static_cast<double>(q[k]);
  for (; i < n; ++i) {
    double d = static_cast<double>(P::value(p[i]) - mean);
    total += d;
    total_squares += d * d;
  }
  out->a = static_cast<double>(mean) + total / static_cast<double>(n);
  out->b = total_squares - total * total / static_cast<double>(n);
  if (out->b < 0) out->b = 0;
}

// -inf as the largest: nothing yet; +inf and NaN: decided.
template <class T>
double sum_or_mark(T top, double sum) {
  return std::isfinite(top) ? sum : top < 0 ? 0 : 1;
}
template <class S>
void logsumexp_kernel(const void* x, int64_t n, int64_t, double, Partial* out) {
  using P = Pack<S>;
  using T = acc_t<S>;
  using V = Vec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const S* p = static_cast<const S*>(x);
  const T top = fold_block<Max>(p, n, 0);
  out->a = static_cast<double>(top);
  V sum(0), m(top);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum += exp(P::load(p + i) - m);
  T s[V::kLanes];
  sum.store(s);
  double total = 0;
  for (int64_t k = 0; k < kLanes; ++k) total += static_cast<double>(s[k]);
  for (; i < n; ++i) total += static_cast<double>(std::exp(P::value(p[i]) - top));
  out->b = sum_or_mark(top, total);
}

// Adds the exponentials of kRows rows, relative to the largest of their columns.
template <int kRows, class S>
void add_exponentials(const S* x, int64_t step, int64_t width, const acc_t<S>* top, acc_t<S>* sum) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const ExpBase<acc_t<S>> base(0);
  const auto add_columns = [&](int64_t c, int64_t count) HWY_ATTR {
    const V m = V::load(top + c);
    V e[kRows];
#pragma GCC unroll 4
    for (int k = 0; k < kRows; ++k) e[k] = load_some(x + k * step + c, count) - m;
    exp_vectors(base, e);
    if constexpr (kRows == 4) e[0] = (e[0] + e[1]) + (e[2] + e[3]);
    (V::load(sum + c) + e[0]).store(sum + c);
  };
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes) add_columns(c, kLanes);
  if (c < width) add_columns(c, width - c);
}
template <class S>
void logsumexp_tile(const void* x, int64_t step, int64_t n, int64_t width, Partial* out) {
  using T = acc_t<S>;
  const S* p = static_cast<const S*>(x);
  alignas(64) T top[kReduceTile], sum[kReduceTile] = {};
  std::fill_n(top, kReduceTile, -std::numeric_limits<T>::infinity());
  for (int64_t i = 0; i < n; i += kRowsAtOnce) {
    const void* rows[kRowsAtOnce];
    const int m = static_cast<int>(std::min<int64_t>(kRowsAtOnce, n - i));
    for (int k = 0; k < m; ++k) rows[k] = p + (i + k) * step;
    columns_kernel<Max, S>(rows, m, width, top, 0);
  }
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) add_exponentials<4>(p + i * step, step, width, top, sum);
  for (; i < n; ++i) add_exponentials<1>(p + i * step, step, width, top, sum);
  for (int64_t c = 0; c < width; ++c) {
    out[c].a = static_cast<double>(top[c]);
    out[c].b = sum_or_mark(top[c], static_cast<double>(sum[c]));
  }
}

// The first element equal to `best`, or the first NaN. Four vectors at a time until it is near.
template <class S>
inline int64_t find(const S* x, int64_t n, acc_t<S> best) {
  using P = Pack<S>;
  int64_t i = 0;
  if constexpr (!std::is_same_v<S, int64_t>) {
    using V = typename P::V;
    constexpr int64_t kLanes = P::kLanes;
    const V b(best);
    const bool nan = best != best;
    V v[4];
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      P::load_two(x + i, v[0], v[1]);
      P::load_two(x + i + 2 * kLanes, v[2], v[3]);
      const auto same = [&](V a) { return nan ? a != a : a == b; };
      if (any_true((same(v[0]) | same(v[1])) | (same(v[2]) | same(v[3])))) break;
    }
  }
  if (best == best) {
    while (P::value(x[i]) != best) ++i;
  } else {
    while (P::value(x[i]) == P::value(x[i])) ++i;
  }
  return i;
}

template <class F, class S>
void arg_kernel(const void* x, int64_t n, int64_t first, double, Partial* out) {
  const S* p = static_cast<const S*>(x);
  const acc_t<S> best = fold_block<F>(p, n, 0);
  out->i = first + find(p, n, best);
  if constexpr (std::is_same_v<S, int64_t>) {
    out->j = best;
  } else {
    out->a = static_cast<double>(best);
  }
}

template <class F, class S>
ReduceKernels fold_kernels(double identity, int64_t int_identity) {
  return {fold_kernel<F, S>, columns_kernel<F, S>, lines_kernel<F, S>, identity, int_identity};
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kIntMax = std::numeric_limits<int64_t>::max(), kIntMin = std::numeric_limits<int64_t>::min();

template <class T>
ReduceKernels norm_kernels(double p) {
  if (p == 0) return fold_kernels<Count, T>(0, 0);
  if (p == 1) return fold_kernels<SumAbs, T>(0, 0);
  if (p == 2) return fold_kernels<SumSquares, T>(0, 0);
  if (p == kInf) return fold_kernels<MaxAbs, T>(0, 0);
  if (p == -kInf) return fold_kernels<MinAbs, T>(kInf, kIntMax);
  return fold_kernels<SumPowers, T>(0, 0);
}

template <class T>
ReduceKernels kernels_of(ReduceOp op, double param) {
  switch (op) {
    case ReduceOp::prod:
      return fold_kernels<Prod, T>(1, 1);
    case ReduceOp::max:
      return fold_kernels<Max, T>(-kInf, kIntMin);
    case ReduceOp::min:
      return fold_kernels<Min, T>(kInf, kIntMax);
    case ReduceOp::any:
      return fold_kernels<Any, T>(0, 0);
    case ReduceOp::all:
      return fold_kernels<All, T>(1, 1);
    case ReduceOp::count_nonzero:
      return fold_kernels<Count, T>(0, 0);
    case ReduceOp::sum_squares:
      return fold_kernels<SumSquares, T>(0, 0);
    case ReduceOp::sum_abs:
      return fold_kernels<SumAbs, T>(0, 0);
    case ReduceOp::argmax:
      return {arg_kernel<Max, T>, nullptr, nullptr, 0, 0};
    case ReduceOp::argmin:
      return {arg_kernel<Min, T>, nullptr, nullptr, 0, 0};
    default:
      break;
  }
  if constexpr (!std::is_same_v<T, int64_t>) {
    if (op == ReduceOp::var) return {var_kernel<T>, nullptr, nullptr, 0, 0};
    if (op == ReduceOp::logsumexp) return {logsumexp_kernel<T>, nullptr, nullptr, 0, 0, logsumexp_tile<T>};
    if (op == ReduceOp::norm) return norm_kernels<T>(param);
  }
  return fold_kernels<Sum, T>(0, 0);  // sum and mean
}

ReduceKernels kernels_for(ReduceOp op, DType acc, DType storage, double param) {
  if (storage == DType::bf16) return kernels_of<BFloat16>(op, param);
  if (storage == DType::f16) return kernels_of<Half>(op, param);
  if (acc == DType::f32) return kernels_of<float>(op, param);
  if (acc == DType::f64) return kernels_of<double>(op, param);
  return kernels_of<int64_t>(op, param);
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(kernels_for);

ReduceKernels reduce_kernels(ReduceOp op, DType acc, DType storage, double param) {
  return HWY_DYNAMIC_DISPATCH(kernels_for)(op, acc, storage, param);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
