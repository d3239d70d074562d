// sum and mean; any, all and count_nonzero.
#include "kernels/cuda/reduce/reduce.cuh"

namespace deft::cuda {

namespace {

double reduced_count(const ReduceCall& c) {
  double n = 1;
  for (int d = 0; d < c.ndim; ++d)
    if (c.reduced[d]) n *= static_cast<double>(c.sizes[d]);
  return n;
}

template <class T>
struct SumOp {
  using In = T;
  using Out = std::conditional_t<is_float_v<T>, T, int64_t>;
  using State = std::conditional_t<is_float_v<T>, double, uint64_t>;  // unsigned: overflow wraps
  // Bytes cannot overflow 32 bits within a run.
  using Value = std::conditional_t<is_float_v<T>, compute_t<T>, std::conditional_t<sizeof(T) == 1, int32_t, uint64_t>>;
  static constexpr int kPack = 16 / sizeof(T), kColumnPack = is_float_v<T> ? kPack : 1, kRows = 8;
  static constexpr bool kOrdered = false;
  double divisor;

  __device__ __forceinline__ State identity() const { return 0; }
  __device__ __forceinline__ Value load(T v) const { return convert<Value>(v); }
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t, int64_t) const {
    Value t[N];
#pragma unroll
    for (int i = 0; i < N; ++i) t[i] = x[i];
#pragma unroll
    for (int step = 1; step < N; step *= 2)
#pragma unroll
      for (int i = 0; i + step < N; i += 2 * step) t[i] += t[i + step];
    s += static_cast<State>(t[0]);
  }
  __device__ __forceinline__ void combine(State& s, const State& o) const { s += o; }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    Out* out = static_cast<Out*>(a.out);
    if constexpr (is_float_v<T>)
      out[at] = convert<Out>(divisor == 1 ? s : s / divisor);
    else
      out[at] = static_cast<Out>(s);
  }
};

// How many elements are not zero. U holds the bits of an element, `mask` those that matter: -0 is zero.
template <class U>
struct CountOp {
  using In = U;
  using State = int64_t;
  using Value = int32_t;
  static constexpr int kPack = 16 / sizeof(U), kColumnPack = 1, kRows = 8;
  static constexpr bool kOrdered = false;
  U mask;
  ReduceOp op;

  __device__ __forceinline__ State identity() const { return 0; }
  __device__ __forceinline__ Value load(U v) const { return (v & mask) != 0; }
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t, int64_t) const {
    Value t = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) t += x[i];
    s += t;
  }
  __device__ __forceinline__ void combine(State& s, const State& o) const { s += o; }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    int64_t result = op == ReduceOp::any ? s > 0 : op == ReduceOp::all ? s == a.n : s;
    store_as<int64_t>(a.out, a.out_dtype, at, result);
  }
};

}  // namespace

void reduce_sum(Encoder& e, const ReduceCall& c) {
  double divisor = c.op == ReduceOp::mean ? reduced_count(c) : 1;
  auto run = [&]<class T>() { run_reduce(e, c, SumOp<T>{divisor}); };
  switch (c.in.dtype) {
    case DType::i32:
      return run.template operator()<int32_t>();
    case DType::i64:
      return run.template operator()<int64_t>();
    case DType::u8:
    case DType::boolean:
      return run.template operator()<uint8_t>();
    default:
      return dispatch_floating(c.in.dtype, run);
  }
}

void reduce_count(Encoder& e, const ReduceCall& c) {
  dispatch_bits(c.in.dtype, [&]<class U>() {
    U mask = static_cast<U>(~U(0));
    if (is_floating(c.in.dtype)) mask = static_cast<U>(mask >> 1);
    run_reduce(e, c, CountOp<U>{mask, c.op});
  });
}

}  // namespace deft::cuda
