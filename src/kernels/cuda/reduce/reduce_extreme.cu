// Largest and smallest values, and where they are. The smallest is found as the largest of the flipped values:
// floats with the other sign, integers with all bits flipped.
#include <cmath>

#include "kernels/cuda/reduce/reduce.cuh"

namespace deft::cuda {

namespace {

__device__ __forceinline__ float larger(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ double larger(double a, double b) { return a > b || a != a ? a : b; }
template <class I>
__device__ __forceinline__ I larger(I a, I b) {
  return a > b ? a : b;
}

template <class C>
__device__ __forceinline__ C lowest() {
  if constexpr (std::is_floating_point_v<C>)
    return -std::numeric_limits<C>::infinity();
  else
    return std::numeric_limits<C>::min();
}

// (bits & keep) ^ flip.
template <class C>
struct Flip {
  using Bits = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;
  Bits keep, flip;
  __device__ __forceinline__ static C apply(C v, Bits keep, Bits flip) {
    if constexpr (std::is_same_v<C, float>)
      return __uint_as_float((__float_as_uint(v) & keep) ^ flip);
    else if constexpr (std::is_same_v<C, double>)
      return __longlong_as_double(static_cast<long long>((static_cast<Bits>(__double_as_longlong(v)) & keep) ^ flip));
    else
      return static_cast<C>((static_cast<Bits>(v) & keep) ^ flip);
  }
  __device__ __forceinline__ C there(C v) const { return apply(v, keep, flip); }
  __device__ __forceinline__ C back(C v) const { return apply(v, ~Bits(0), flip); }
};

template <class C>
Flip<C> flip_for(bool smallest, bool absolute) {
  using Bits = typename Flip<C>::Bits;
  constexpr bool real = std::is_floating_point_v<C>;
  const Bits all = ~Bits(0), sign = Bits(1) << (8 * sizeof(C) - 1);
  return {absolute && real ? static_cast<Bits>(~sign) : all, !smallest ? Bits(0) : real ? sign : all};
}

template <class T, class C>
__device__ __forceinline__ void store_extreme(const ReduceArgs& a, C v, int64_t at) {
  if constexpr (is_float_v<T>)
    static_cast<T*>(a.out)[at] = convert<T>(v);
  else
    store_as<C>(a.out, a.out_dtype, at, v);
}

template <class T>
struct ExtremeOp {
  using In = T;
  using Value = compute_t<T>;
  using State = Value;
  static constexpr int kPack = 16 / sizeof(T), kColumnPack = is_float_v<T> ? kPack : 1, kRows = 8;
  static constexpr bool kOrdered = false;
  Flip<Value> flip;

  __device__ __forceinline__ State identity() const { return lowest<Value>(); }
  __device__ __forceinline__ Value load(T v) const { return flip.there(convert<Value>(v)); }
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t, int64_t) const {
#pragma unroll
    for (int i = 0; i < N; ++i) s = larger(s, x[i]);
  }
  __device__ __forceinline__ void combine(State& s, const State& o) const { s = larger(s, o); }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    store_extreme<T>(a, flip.back(s), at);
  }
};

// NaN beats everything.
template <class C>
__device__ __forceinline__ bool beats(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) return a > b || (a != a && b == b);
  return a > b;
}

template <class C>
struct Place {
  int64_t index;
  C value;
};

template <class T>
struct ArgOp {
  using In = T;
  using Value = compute_t<T>;
  using State = Place<Value>;
  static constexpr int kPack = 16 / sizeof(T), kColumnPack = 1, kRows = 4;
  static constexpr bool kOrdered = true;
  Flip<Value> flip;
  bool index_only;

  __device__ __forceinline__ State identity() const { return {INT64_MAX, lowest<Value>()}; }
  __device__ __forceinline__ Value load(T v) const { return flip.there(convert<Value>(v)); }
  template <int Run, int N>
  __device__ __forceinline__ void add(State& s, const Value (&x)[N], int64_t first, int64_t jump) const {
    Value best = x[0];
    int at = 0;
#pragma unroll
    for (int i = 1; i < N; ++i) {
      if (beats(x[i], best)) {
        best = x[i];
        at = i;
      }
    }
    combine(s, {first + at / Run * jump + at % Run, best});
  }
  // The lower index wins between equals, whatever the order states are combined in.
  __device__ __forceinline__ void combine(State& s, const State& o) const {
    bool equal = !beats(o.value, s.value) && !beats(s.value, o.value);
    if (equal ? o.index < s.index : beats(o.value, s.value)) s = o;
  }
  __device__ __forceinline__ void store(const ReduceArgs& a, const State& s, int64_t at) const {
    int64_t* indices = index_only ? static_cast<int64_t*>(a.out) : a.indices;
    indices[at] = s.index;
    if (!index_only) store_extreme<T>(a, flip.back(s.value), at);
  }
};

template <class F>
void dispatch_extreme(DType t, F&& f) {
  if (t == DType::i32) return f.template operator()<int32_t>();
  if (t == DType::i64) return f.template operator()<int64_t>();
  dispatch_floating(t, f);
}

}  // namespace

void reduce_extreme(Encoder& e, const ReduceCall& c) {
  bool absolute = c.op == ReduceOp::norm;
  bool smallest = absolute ? c.param < 0 : c.op == ReduceOp::min;
  dispatch_extreme(c.in.dtype,
                   [&]<class T>() { run_reduce(e, c, ExtremeOp<T>{flip_for<compute_t<T>>(smallest, absolute)}); });
}

void reduce_arg(Encoder& e, const ReduceCall& c) {
  bool smallest = c.op == ReduceOp::min || c.op == ReduceOp::argmin;
  bool index_only = c.op == ReduceOp::argmax || c.op == ReduceOp::argmin;
  dispatch_extreme(c.in.dtype, [&]<class T>() {
    run_reduce(e, c, ArgOp<T>{flip_for<compute_t<T>>(smallest, false), index_only});
  });
}

}  // namespace deft::cuda
