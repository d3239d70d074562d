#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/reduce_internal.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

// ---- The two views of a type: V is Vec<T> for floats and T itself for int64.
template <class T>
struct Pack {
  using V = Vec<T>;
  static constexpr size_t kLanes = V::kLanes;
  static V load(const T* p) { return V::load(p); }
  static void store(V v, T* p) { v.store(p); }
};
template <>
struct Pack<int64_t> {
  using V = int64_t;
  static constexpr size_t kLanes = 1;
  static V load(const int64_t* p) { return *p; }
  static void store(V v, int64_t* p) { *p = v; }
};

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

// Four accumulators hide the latency; n >= 1.
template <class F, class T>
inline T fold_block(const T* x, int64_t n, double param) {
  using P = Pack<T>;
  using V = typename P::V;
  constexpr int64_t kLanes = P::kLanes;
  const V p(static_cast<T>(param));
  T result;
  int64_t i;
  if (n >= 4 * kLanes) {
    V acc[4];
    for (int k = 0; k < 4; ++k) acc[k] = F::map(P::load(x + k * kLanes), p);
    for (i = 4 * kLanes; i + 4 * kLanes <= n; i += 4 * kLanes) {
      acc[0] = F::fold(acc[0], F::map(P::load(x + i), p));
      acc[1] = F::fold(acc[1], F::map(P::load(x + i + kLanes), p));
      acc[2] = F::fold(acc[2], F::map(P::load(x + i + 2 * kLanes), p));
      acc[3] = F::fold(acc[3], F::map(P::load(x + i + 3 * kLanes), p));
    }
    T lanes[P::kLanes];
    P::store(F::fold(F::fold(acc[0], acc[1]), F::fold(acc[2], acc[3])), lanes);
    result = lanes[0];
    for (int64_t k = 1; k < kLanes; ++k) result = F::fold(result, lanes[k]);
  } else {
    result = F::map(x[0], static_cast<T>(param));
    i = 1;
  }
  for (; i < n; ++i) result = F::fold(result, F::map(x[i], static_cast<T>(param)));
  return result;
}

template <class F, class T>
void fold_kernel(const void* x, int64_t n, int64_t, double param, Partial* out) {
  T r = fold_block<F>(static_cast<const T*>(x), n, param);
  if constexpr (std::is_same_v<T, int64_t>) {
    out->i = r;
  } else {
    out->a = static_cast<double>(r);
  }
}

template <class F, class T>
void columns_kernel(const void* const* rows, int row_count, int64_t width, void* acc, double param) {
  using P = Pack<T>;
  using V = typename P::V;
  constexpr int64_t kLanes = P::kLanes;
  const V p(static_cast<T>(param));
  T* a = static_cast<T*>(acc);
  const T* r[kRowsAtOnce];
  for (int k = 0; k < kRowsAtOnce; ++k) r[k] = static_cast<const T*>(rows[k < row_count ? k : 0]);
  int64_t c = 0;
  if (row_count == kRowsAtOnce) {
    for (; c + kLanes <= width; c += kLanes) {
      V v = F::fold(P::load(a + c), F::map(P::load(r[0] + c), p));
      v = F::fold(v, F::map(P::load(r[1] + c), p));
      v = F::fold(v, F::map(P::load(r[2] + c), p));
      P::store(F::fold(v, F::map(P::load(r[3] + c), p)), a + c);
    }
  }
  for (; c < width; ++c) {
    for (int k = 0; k < row_count; ++k) a[c] = F::fold(a[c], F::map(r[k][c], static_cast<T>(param)));
  }
}

// ---- Mean and squared deviations of a block, in two passes over it; the second also mends the rounding of the mean.
template <class T>
void var_kernel(const void* x, int64_t n, int64_t, double, Partial* out) {
  using V = Vec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const T* p = static_cast<const T*>(x);
  const T mean = static_cast<T>(static_cast<double>(fold_block<Sum>(p, n, 0)) / static_cast<double>(n));
  V sum(0), squares(0), m(mean);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V d = V::load(p + i) - m;
    sum += d;
    squares = fma(d, d, squares);
  }
  T s[V::kLanes], q[V::kLanes];
  sum.store(s);
  squares.store(q);
  double total = 0, total_squares = 0;
  for (int64_t k = 0; k < kLanes; ++k) total += static_cast<double>(s[k]), total_squares += static_cast<double>(q[k]);
  for (; i < n; ++i) {
    double d = static_cast<double>(p[i] - mean);
    total += d;
    total_squares += d * d;
  }
  out->a = static_cast<double>(mean) + total / static_cast<double>(n);
  out->b = total_squares - total * total / static_cast<double>(n);
  if (out->b < 0) out->b = 0;
}

template <class T>
void logsumexp_kernel(const void* x, int64_t n, int64_t, double, Partial* out) {
  using V = Vec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const T* p = static_cast<const T*>(x);
  const T top = fold_block<Max>(p, n, 0);
  out->a = static_cast<double>(top);
  if (!std::isfinite(top)) {  // -inf: nothing yet; +inf and NaN: decided
    out->b = top < 0 ? 0 : 1;
    return;
  }
  V sum(0), m(top);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum += exp(V::load(p + i) - m);
  T s[V::kLanes];
  sum.store(s);
  double total = 0;
  for (int64_t k = 0; k < kLanes; ++k) total += static_cast<double>(s[k]);
  for (; i < n; ++i) total += static_cast<double>(std::exp(p[i] - top));
  out->b = total;
}

template <class F, class T>
void arg_kernel(const void* x, int64_t n, int64_t first, double, Partial* out) {
  const T* p = static_cast<const T*>(x);
  const T best = fold_block<F>(p, n, 0);
  int64_t at = 0;
  if (best == best) {
    while (p[at] != best) ++at;
  } else {
    while (p[at] == p[at]) ++at;
  }
  out->i = first + at;
  if constexpr (std::is_same_v<T, int64_t>) {
    out->j = best;
  } else {
    out->a = static_cast<double>(best);
  }
}

template <class F, class T>
ReduceKernels fold_kernels(double identity, int64_t int_identity) {
  return {fold_kernel<F, T>, columns_kernel<F, T>, identity, int_identity};
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
      return {arg_kernel<Max, T>, nullptr, 0, 0};
    case ReduceOp::argmin:
      return {arg_kernel<Min, T>, nullptr, 0, 0};
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (op == ReduceOp::var) return {var_kernel<T>, nullptr, 0, 0};
    if (op == ReduceOp::logsumexp) return {logsumexp_kernel<T>, nullptr, 0, 0};
    if (op == ReduceOp::norm) return norm_kernels<T>(param);
  }
  return fold_kernels<Sum, T>(0, 0);  // sum and mean
}

ReduceKernels kernels_for(ReduceOp op, DType acc, double param) {
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

ReduceKernels reduce_kernels(ReduceOp op, DType acc, double param) {
  return HWY_DYNAMIC_DISPATCH(kernels_for)(op, acc, param);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
