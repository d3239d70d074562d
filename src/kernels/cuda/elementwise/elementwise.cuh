// Builds elementwise kernels (elementwise.h) from formulas.
//
// F has a type Params, constants `condition` and `numbers` (inputs may be numbers), and
// `template <class... V> DEFT_HD static auto call(const Params&, V...)`.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/elementwise/elementwise.h"

namespace deft::cuda {

inline constexpr int kElementwiseThreads = 256;

// The type of an element in memory: any byte but 0 is true.
template <class T>
using stored_t = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class C>
__device__ __forceinline__ C number_as(const Number& n) {
  if constexpr (std::is_same_v<C, float>)
    return n.f;
  else if constexpr (std::is_same_v<C, double>)
    return n.d;
  else
    return static_cast<C>(n.i);
}

// Elements per thread: some 16-byte packs of each input, few enough that the formula is not unrolled too often.
template <class T, int kInputs>
inline constexpr int kPerThread = sizeof(T) == 8                  ? 4
                                  : sizeof(T) == 4 && kInputs > 1 ? 8
                                                                  : 16;

template <class F, class C, size_t... I>
auto try_formula(std::index_sequence<I...>)
    -> decltype(F::call(std::declval<const typename F::Params&>(), (static_cast<void>(I), C())...));
template <class F, class C, int kInputs>
inline constexpr bool gives_bool =
    std::is_same_v<decltype(try_formula<F, C>(std::make_index_sequence<kInputs>())), bool>;

template <class F, class T, int kInputs>
struct LinearKernel {
  using C = compute_t<T>;
  using Result = std::conditional_t<gives_bool<F, C, kInputs>, bool, C>;
  using Out = std::conditional_t<gives_bool<F, C, kInputs>, bool, T>;
  static constexpr int kWidth = 16 / sizeof(T);
  static constexpr int kElements = kPerThread<T, kInputs>;
  static constexpr int kPacks = kElements / kWidth;
  static constexpr int kTile = kElements * kElementwiseThreads;
  static constexpr bool kMapsPacks = maps_packs(sizeof(T));
  template <int I>
  using In = stored_t<std::conditional_t<F::condition && I == 0, bool, T>>;

  // The place of a thread's packs in a block's tile: neighbouring threads access neighbouring memory (coalesced).
  __device__ __forceinline__ static int pack_at(int pack) {
    return (pack * kElementwiseThreads + static_cast<int>(threadIdx.x)) * kWidth;
  }
  template <int I>
  __device__ __forceinline__ static C convert_in(In<I> v) {
    if constexpr (std::is_same_v<T, bool> || (F::condition && I == 0))
      return convert<C>(v != 0);
    else
      return convert<C>(v);
  }
  template <int I>
  __device__ __forceinline__ static bool is_number(const LinearArgs& a) {
    return F::numbers && a.in[I] == nullptr;
  }
  template <int I>
  __device__ __forceinline__ static C load_single(const LinearArgs& a, int64_t at) {
    if (is_number<I>(a)) return number_as<C>(a.number[I]);
    return convert_in<I>(static_cast<const In<I>*>(a.in[I])[at]);
  }
  template <int I>
  __device__ __forceinline__ static void load_pack(const LinearArgs& a, int64_t at, C (&v)[kWidth]) {
    Pack<In<I>, kWidth> p = *reinterpret_cast<const Pack<In<I>, kWidth>*>(static_cast<const In<I>*>(a.in[I]) + at);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v[k] = convert_in<I>(p.v[k]);
  }
  template <int I>
  __device__ __forceinline__ static void repeat(C value, C (&v)[kWidth]) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) v[k] = value;
  }
  template <size_t... I>
  __device__ __forceinline__ static void store_pack(const LinearArgs& a, const typename F::Params& p, int64_t at,
                                                    const C (&v)[kInputs][kWidth], std::index_sequence<I...>) {
    Pack<Out, kWidth> r;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) r.v[k] = convert<Out>(static_cast<Result>(F::call(p, v[I][k]...)));
    *reinterpret_cast<Pack<Out, kWidth>*>(static_cast<Out*>(a.out) + at) = r;
  }

  // ---- All at the same place: all loads come before any computation.
  template <int I>
  __device__ __forceinline__ static void load_same(const LinearArgs& a, int64_t begin,
                                                   C (&v)[kPacks][kInputs][kWidth]) {
    if (is_number<I>(a)) {
#pragma unroll
      for (int u = 0; u < kPacks; ++u) repeat<I>(number_as<C>(a.number[I]), v[u][I]);
    } else {
#pragma unroll
      for (int u = 0; u < kPacks; ++u) load_pack<I>(a, begin + pack_at(u), v[u][I]);
    }
  }
  template <size_t... I>
  __device__ __forceinline__ static void run_same(const LinearArgs& a, const typename F::Params& p, int64_t begin,
                                                  std::index_sequence<I...> all) {
    C v[kPacks][kInputs][kWidth];
    (load_same<I>(a, begin, v), ...);
#pragma unroll
    for (int u = 0; u < kPacks; ++u) store_pack(a, p, begin + pack_at(u), v[u], all);
  }

  // ---- At mapped places
  template <int I>
  __device__ __forceinline__ static void step(const LinearArgs& a, int d, uint32_t rest, int32_t (&at)[kInputs]) {
    at[I] += static_cast<int32_t>(rest) * a.strides[I][d];
  }
  // Offsets of element `index` in all inputs.
  template <size_t... I>
  __device__ __forceinline__ static void map(const LinearArgs& a, uint32_t index, int32_t (&at)[kInputs],
                                             std::index_sequence<I...>) {
    ((at[I] = 0), ...);
#pragma unroll 1
    for (int d = a.ndim - 1; d > 0; --d) {
      uint32_t next = a.divide[d].quotient(index);
      (step<I>(a, d, index - next * a.divide[d].divisor, at), ...);
      index = next;
    }
    (step<I>(a, 0, index, at), ...);
  }
  template <int I>
  __device__ __forceinline__ static void load_mapped(const LinearArgs& a, int32_t at, C (&v)[kWidth]) {
    if (is_number<I>(a) || a.strides[I][a.ndim - 1] == 0)
      repeat<I>(load_single<I>(a, at), v);
    else
      load_pack<I>(a, at, v);
  }
  template <size_t... I>
  __device__ __forceinline__ static void run_packs(const LinearArgs& a, const typename F::Params& p, int64_t begin,
                                                   std::index_sequence<I...> all) {
#pragma unroll 1
    for (int u = 0; u < kPacks; ++u) {
      int64_t at = begin + pack_at(u);
      if (at >= a.n) return;
      int32_t offset[kInputs];
      map(a, static_cast<uint32_t>(at), offset, all);
      C v[kInputs][kWidth];
      (load_mapped<I>(a, offset[I], v[I]), ...);
      store_pack(a, p, at, v, all);
    }
  }
  template <size_t... I>
  __device__ __forceinline__ static void run_single(const LinearArgs& a, const typename F::Params& p, int64_t begin,
                                                    std::index_sequence<I...> all) {
#pragma unroll 1
    for (int k = 0; k < kElements; ++k) {
      int64_t at = begin + k * kElementwiseThreads + static_cast<int>(threadIdx.x);
      if (at >= a.n) return;
      int32_t offset[kInputs] = {};
      if (a.ndim > 0) map(a, static_cast<uint32_t>(at), offset, all);
      int64_t from = a.ndim > 0 ? 0 : at;
      static_cast<Out*>(a.out)[at] =
          convert<Out>(static_cast<Result>(F::call(p, load_single<I>(a, from + offset[I])...)));
    }
  }

  template <size_t... I>
  __device__ __forceinline__ static void run(const LinearArgs& a, const typename F::Params& p,
                                             std::index_sequence<I...> all) {
    int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile;
    if (a.access == Access::same && begin + kTile <= a.n)
      run_same(a, p, begin, all);
    else if (kMapsPacks && a.access == Access::packs)
      run_packs(a, p, begin, all);
    else
      run_single(a, p, begin, all);
  }
};

template <class F, class T, int kInputs>
__global__ void __launch_bounds__(kElementwiseThreads)
    linear_kernel(const __grid_constant__ LinearArgs args, const __grid_constant__ typename F::Params params) {
  LinearKernel<F, T, kInputs>::run(args, params, std::make_index_sequence<kInputs>());
}

// Formulas of two values know StridedArgs::fours: the others are rarely given two types.
template <class F, class C, int kInputs>
inline constexpr bool takes_fours = std::is_same_v<C, float>&& kInputs == 2 && !gives_bool<F, C, kInputs>;

// Strided kernels run the formulas of all integers in int64_t, which gives the same bits in the end, since everything
// wraps; only the upper bits of inputs and results must go.
template <class T>
using strided_t = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int64_t, compute_t<T>>;
template <class C>
__device__ __forceinline__ C as_computed(C v, DType t) {
  if constexpr (std::is_same_v<C, int64_t>) {
    if (t == DType::i8) return static_cast<int8_t>(v);
    if (t == DType::u8) return static_cast<uint8_t>(v);
    if (t == DType::i32) return static_cast<int32_t>(v);
  }
  return v;
}

template <size_t... I>
__device__ __forceinline__ void strided_offsets(const StridedArgs& a, uint32_t index, int64_t (&at)[kMaxInputs + 1],
                                                std::index_sequence<I...>) {
  const auto& map = a.map;
  ((at[I] = 0), ..., (at[sizeof...(I)] = 0));
#pragma unroll 1
  for (int d = map.ndim - 1; d >= 0; --d) {
    uint32_t next = map.divide[d].quotient(index);
    int64_t rest = index - next * map.divide[d].divisor;
    ((at[I] += rest * map.strides[I][d]), ..., (at[sizeof...(I)] += rest * map.strides[sizeof...(I)][d]));
    index = next;
  }
}

template <class F, class C, size_t... I>
__device__ __forceinline__ void strided_element(const StridedArgs& a, const typename F::Params& p, uint32_t index,
                                                std::index_sequence<I...> all) {
  int64_t at[kMaxInputs + 1];
  strided_offsets(a, index, at, all);
  auto value = [&](int i) {
    if (F::numbers && a.in[i] == nullptr) return as_computed(number_as<C>(a.number[i]), a.compute);
    return as_computed(load_as<C>(a.in[i], a.in_dtype[i], at[i + 1]), a.compute);
  };
  using Result = std::conditional_t<gives_bool<F, C, sizeof...(I)>, bool, C>;
  Result result = as_computed(static_cast<Result>(F::call(p, value(I)...)), a.compute);
  store_as<Result>(a.out, a.out_dtype, at[0], result);
}

// ---- Four neighbours at a time (StridedArgs::fours): f32, bf16 and f16 mixed, as residuals under autocast are.
template <class T>
__device__ __forceinline__ void load_pack_of(const void* p, int64_t at, float (&v)[kFours]) {
  const auto pack = *reinterpret_cast<const Pack<T, kFours>*>(static_cast<const T*>(p) + at);
#pragma unroll
  for (int k = 0; k < kFours; ++k) v[k] = convert<float>(pack.v[k]);
}
template <class T>
__device__ __forceinline__ void store_pack_of(void* p, int64_t at, const float (&v)[kFours]) {
  Pack<T, kFours> pack;
#pragma unroll
  for (int k = 0; k < kFours; ++k) pack.v[k] = convert<T>(v[k]);
  *reinterpret_cast<Pack<T, kFours>*>(static_cast<T*>(p) + at) = pack;
}
__device__ __forceinline__ void load_four(const StridedArgs& a, int i, bool number, int64_t at, float (&v)[kFours]) {
  if (number || a.map.strides[i + 1][a.map.ndim - 1] == 0) {
    const float one = number ? a.number[i].f : load_as<float>(a.in[i], a.in_dtype[i], at);
#pragma unroll
    for (int k = 0; k < kFours; ++k) v[k] = one;
  } else if (a.in_dtype[i] == DType::f32) {
    load_pack_of<float>(a.in[i], at, v);
  } else if (a.in_dtype[i] == DType::bf16) {
    load_pack_of<BFloat16>(a.in[i], at, v);
  } else {
    load_pack_of<Half>(a.in[i], at, v);
  }
}
template <class F, size_t... I>
__device__ __forceinline__ void strided_four(const StridedArgs& a, const typename F::Params& p, uint32_t index,
                                             std::index_sequence<I...> all) {
  int64_t at[kMaxInputs + 1];
  strided_offsets(a, index, at, all);
  float v[sizeof...(I)][kFours], result[kFours];
  (load_four(a, I, F::numbers && a.in[I] == nullptr, at[I + 1], v[I]), ...);
#pragma unroll
  for (int k = 0; k < kFours; ++k) result[k] = F::call(p, v[I][k]...);
  if (a.out_dtype == DType::f32) return store_pack_of<float>(a.out, at[0], result);
  if (a.out_dtype == DType::bf16) return store_pack_of<BFloat16>(a.out, at[0], result);
  store_pack_of<Half>(a.out, at[0], result);
}

template <class F, class C, int kInputs>
__global__ void __launch_bounds__(kElementwiseThreads)
    strided_kernel(const __grid_constant__ StridedArgs args, const __grid_constant__ typename F::Params params) {
  constexpr auto all = std::make_index_sequence<kInputs>();
  uint32_t index = blockIdx.x * kElementwiseThreads + threadIdx.x;
  if constexpr (takes_fours<F, C, kInputs>) {
    if (args.fours) {
      if (index < args.n / kFours) strided_four<F>(args, params, index * kFours, all);
      return;
    }
  }
  if (index < args.n) strided_element<F, C>(args, params, index, all);
}

// The table entry of a formula for elements stored as T.
template <class F, class T, int kInputs>
ElementwiseKernel elementwise_entry() {
  return {reinterpret_cast<const void*>(&linear_kernel<F, T, kInputs>),
          reinterpret_cast<const void*>(&strided_kernel<F, strided_t<T>, kInputs>), LinearKernel<F, T, kInputs>::kTile,
          takes_fours<F, strided_t<T>, kInputs>};
}

}  // namespace deft::cuda
