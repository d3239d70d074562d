// prod, var, std, norm and logsumexp.
#include <cmath>

#include "kernels/cuda/reduce/reduce.cuh"

namespace deft::cuda {

namespace {

// Every factor in the wide type: products of a few floats may leave the range of f32 and come back.
template <class T>
struct ProdOp {
  using In = T;
  using Out = std::conditional_t<is_float_v<T>, T, int64_t>;
  using State = std::conditional_t<is_float_v<T>, double, uint64_t>;
  using Value = State;
  static constexpr int kPack = 1, kColumnPack = 1, kRows = 4;
  static constexpr bool kOrdered = false;

  __device__ __forceinline__ State identity() const { return 1; }
  __device__ __forceinline__ Value load(T v) const { return convert<Value>(v); }
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t, int64_t) const {
#pragma unroll
    for (int i = 0; i < N; ++i) s *= x[i];
  }
  __device__ __forceinline__ void combine(State& s, const State& o) const { s *= o; }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    static_cast<Out*>(a.out)[at] = convert<Out>(s);
  }
};

struct Moments {
  double n, mean, squares;  // squares: sum of squared deviations from the mean
};

template <class T>
struct VarOp {
  using In = T;
  using Value = compute_t<T>;
  using State = Moments;
  static constexpr int kPack = 16 / sizeof(T), kColumnPack = 1, kRows = 8;
  static constexpr bool kOrdered = false;
  double correction;
  bool root;

  __device__ __forceinline__ State identity() const { return {0, 0, 0}; }
  __device__ __forceinline__ Value load(T v) const { return convert<Value>(v); }
  // Two passes over a run; the second also mends the rounding of its mean.
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t, int64_t) const {
    constexpr Value kPart = Value(1) / N;
    if constexpr (N == 1) {
      combine(s, {1, static_cast<double>(x[0]), static_cast<double>(x[0] - x[0])});  // NaN for infinities
    } else {
      Value mean = 0, rest = 0, squares = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) mean += x[i];
      mean *= kPart;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        Value d = x[i] - mean;
        rest += d;
        squares += d * d;
      }
      squares -= rest * rest * kPart;
      if (squares < 0) squares = 0;
      combine(s, {N, static_cast<double>(mean) + static_cast<double>(rest) * kPart, static_cast<double>(squares)});
    }
  }
  __device__ __forceinline__ void combine(State& s, const State& o) const {
    if (o.n == 0) return;
    if (s.n == 0) {
      s = o;
      return;
    }
    const double n = s.n + o.n, part = o.n / n, delta = o.mean - s.mean;
    s.mean += delta * part;
    s.squares += o.squares + delta * delta * (s.n * part);
    s.n = n;
  }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    double v = s.squares / fmax(0.0, static_cast<double>(a.n) - correction);
    static_cast<T*>(a.out)[at] = convert<T>(root ? sqrt(v) : v);
  }
};

// Out of line: long, and only for unusual p.
__device__ __noinline__ float power(float x, float p) { return powf(x, p); }
__device__ __noinline__ double power(double x, double p) { return pow(x, p); }

template <class T>
struct NormOp {
  using In = T;
  using Value = compute_t<T>;
  using State = double;
  static constexpr int kPack = 16 / sizeof(T), kColumnPack = 1, kRows = 8;
  static constexpr bool kOrdered = false;
  double p;

  __device__ __forceinline__ State identity() const { return 0; }
  __device__ __forceinline__ Value load(T v) const { return convert<Value>(v); }
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t, int64_t) const {
    Value t = 0;
    if (p == 2) {
#pragma unroll
      for (int i = 0; i < N; ++i) t += x[i] * x[i];
    } else if (p == 1) {
#pragma unroll
      for (int i = 0; i < N; ++i) t += x[i] < 0 ? -x[i] : x[i];
    } else {
      for (int i = 0; i < N; ++i) t += power(x[i] < 0 ? -x[i] : x[i], static_cast<Value>(p));
    }
    s += static_cast<double>(t);
  }
  __device__ __forceinline__ void combine(State& s, const State& o) const { s += o; }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    double v = p == 2 ? sqrt(s) : p == 1 ? s : power(s, 1 / p);
    static_cast<T*>(a.out)[at] = convert<T>(v);
  }
};

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __noinline__ double exponential(double x) { return exp(x); }

template <class C>
struct Exponents {
  double sum;  // of exp(x - top)
  C top;
};

template <class T>
struct LogSumExpOp {
  using In = T;
  using Value = compute_t<T>;
  using State = Exponents<Value>;
  static constexpr int kPack = 16 / sizeof(T), kColumnPack = 1, kRows = 4;
  static constexpr bool kOrdered = false;

  __device__ __forceinline__ static Value bottom() { return -std::numeric_limits<Value>::infinity(); }
  __device__ __forceinline__ State identity() const { return {0, bottom()}; }
  __device__ __forceinline__ Value load(T v) const { return convert<Value>(v); }
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t, int64_t) const {
    Value top = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) top = top >= x[i] || top != top ? top : x[i];
    raise(s, top);
    if (!isfinite(s.top)) return;
    Value sum = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exponential(x[i] - s.top);
    s.sum += static_cast<double>(sum);
  }
  // -inf: nothing yet; +inf and NaN: decided, and the sum is not read again.
  __device__ __forceinline__ static void raise(State& s, Value top) {
    if (s.top >= top || s.top != s.top) return;
    if (s.sum != 0) s.sum *= exponential(s.top - top);
    s.top = top;
  }
  __device__ __forceinline__ void combine(State& s, const State& o) const {
    raise(s, o.top);
    if (isfinite(s.top) && o.sum != 0) s.sum += o.sum * exponential(o.top - s.top);
  }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    double v = static_cast<double>(s.top) + (isfinite(s.top) ? log(s.sum) : 0.0);
    if (std::is_same_v<T, double> && a.out_dtype == DType::f32)
      static_cast<float*>(a.out)[at] = static_cast<float>(v);
    else
      static_cast<T*>(a.out)[at] = convert<T>(v);
  }
};

}  // namespace

void reduce_prod(Encoder& e, const ReduceCall& c) {
  if (c.in.dtype == DType::i64) return run_reduce(e, c, ProdOp<int64_t>{});
  dispatch_floating(c.in.dtype, [&]<class T>() { run_reduce(e, c, ProdOp<T>{}); });
}

void reduce_moments(Encoder& e, const ReduceCall& c) {
  dispatch_floating(c.in.dtype, [&]<class T>() {
    if (c.op == ReduceOp::logsumexp)
      run_reduce(e, c, LogSumExpOp<T>{});
    else if (c.op == ReduceOp::norm)
      run_reduce(e, c, NormOp<T>{c.param});
    else
      run_reduce(e, c, VarOp<T>{c.param, c.op == ReduceOp::std});
  });
}

}  // namespace deft::cuda
