// Several elementwise formulas in one pass over memory: the part that every chain shares. The formulas of a chain and
// the layout of its inputs are generated (ops/elementwise_chain_source.h); NVRTC compiles them together with this file.
#pragma once

#include <utility>

#include "kernels/cuda/elementwise/chain_args.h"
#include "kernels/cuda/elementwise/convert.cuh"

namespace deft::cuda {

// The type of an element in memory: any byte but 0 is true.
template <class T>
using in_memory_t = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
template <class T>
__device__ __forceinline__ T as_value(in_memory_t<T> v) {
  if constexpr (std::is_same_v<T, bool>)
    return v != 0;
  else
    return v;
}

// ---- Inputs. A thread holds kWidth neighbours of each: Held<kWidth>, of which get(held, k) is one.

// One element per element of the result.
template <class T>
struct Full {
  template <int kWidth>
  using Held = Pack<in_memory_t<T>, kWidth>;
  template <int kWidth>
  __device__ __forceinline__ static Held<kWidth> load(const ChainArgs& a, int input, int64_t at) {
    return *reinterpret_cast<const Held<kWidth>*>(static_cast<const in_memory_t<T>*>(a.in[input]) + at);
  }
  template <int kWidth>
  __device__ __forceinline__ static T get(const Held<kWidth>& held, int k) {
    return as_value<T>(held.v[k]);
  }
};

// Repeats after `a.period[kPeriod]` elements.
template <class T, int kPeriod>
struct Repeated {
  template <int kWidth>
  using Held = Pack<in_memory_t<T>, kWidth>;
  template <int kWidth>
  __device__ __forceinline__ static Held<kWidth> load(const ChainArgs& a, int input, int64_t at) {
    const auto* data = static_cast<const in_memory_t<T>*>(a.in[input]);
    int64_t place = rest(a, at);
    if (a.packs_repeat) return *reinterpret_cast<const Held<kWidth>*>(data + place);
    Held<kWidth> held;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      held.v[k] = data[place];
      place = place + 1 == a.period[kPeriod] ? 0 : place + 1;
    }
    return held;
  }
  template <int kWidth>
  __device__ __forceinline__ static T get(const Held<kWidth>& held, int k) {
    return as_value<T>(held.v[k]);
  }

 private:
  __device__ __forceinline__ static int64_t rest(const ChainArgs& a, int64_t at) {
    if (!a.narrow) return at % a.period[kPeriod];
    const FastDivide& divide = a.divide[kPeriod];
    auto n = static_cast<uint32_t>(at);
    return n - divide.quotient(n) * divide.divisor;
  }
};

// A single element in device memory.
template <class T>
struct Single {
  template <int>
  using Held = in_memory_t<T>;
  template <int>
  __device__ __forceinline__ static in_memory_t<T> load(const ChainArgs& a, int input, int64_t) {
    return *static_cast<const in_memory_t<T>*>(a.in[input]);
  }
  template <int>
  __device__ __forceinline__ static T get(in_memory_t<T> held, int) {
    return as_value<T>(held);
  }
};

// A number of the host, passed by value. Steps convert it to the type they run in.
template <int kNumber>
struct Passed {
  template <int>
  using Held = ChainNumber;
  template <int>
  __device__ __forceinline__ static ChainNumber load(const ChainArgs& a, int, int64_t) {
    return a.number[kNumber];
  }
  template <int>
  __device__ __forceinline__ static ChainNumber get(ChainNumber held, int) {
    return held;
  }
};

// ---- Steps

// An operand in the type a step runs in.
template <class C, class T>
__device__ __forceinline__ C operand(T v) {
  if constexpr (!std::is_same_v<T, ChainNumber>)
    return convert<C>(v);
  else if constexpr (std::is_floating_point_v<C>)
    return static_cast<C>(v.d);
  else
    return static_cast<C>(v.i);
}

// The result of a step as it would be in memory. The compiler may contract a product and a sum into an fma within
// a formula, as it does in that formula's own kernel, but not across formulas: it cannot know that `zero` is 0.
template <class Stored, class R>
__device__ __forceinline__ Stored stored(R result, const ChainArgs& a) {
  auto v = convert<Stored>(result);
  if constexpr (std::is_same_v<Stored, float>)
    return __uint_as_float(__float_as_uint(v) ^ a.zero);
  else if constexpr (std::is_same_v<Stored, double>)
    return __longlong_as_double(__double_as_longlong(v) ^ static_cast<long long>(a.zero));
  else
    return v;
}
template <class P>
__device__ __forceinline__ const P& params(const ChainArgs& a, int step) {
  return *reinterpret_cast<const P*>(a.params[step]);
}

// ---- The kernel: F::call(args, element of each input...) is one element of the result.
template <size_t kInput, class In, int kWidth>
struct Slot {
  typename In::template Held<kWidth> held;
};
template <int kWidth, class Inputs, class Numbers>
struct Slots;
template <int kWidth, template <class...> class List, class... In, size_t... I>
struct Slots<kWidth, List<In...>, std::index_sequence<I...>> : Slot<I, In, kWidth>... {
  __device__ __forceinline__ void load(const ChainArgs& a, int64_t at) {
    ((Slot<I, In, kWidth>::held = In::template load<kWidth>(a, I, at)), ...);
  }
  template <class F>
  __device__ __forceinline__ auto call(const ChainArgs& a, int k) const {
    return F::call(a, In::template get<kWidth>(Slot<I, In, kWidth>::held, k)...);
  }
};
template <class... In>
struct Inputs {
  template <int kWidth>
  using Held = Slots<kWidth, Inputs<In...>, std::make_index_sequence<sizeof...(In)>>;
};

template <class F, class Out, class Inputs, int kWidth, int kPacks>
struct Chain {
  static constexpr int kTile = kChainThreads * kWidth * kPacks;

  // All loads come before any computation. Neighbouring threads access neighbouring memory (coalesced).
  __device__ __forceinline__ static void tile(const ChainArgs& a, int64_t begin) {
    typename Inputs::template Held<kWidth> held[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) held[p].load(a, begin + at(p));
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      Pack<Out, kWidth> r;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) r.v[k] = held[p].template call<F>(a, k);
      *reinterpret_cast<Pack<Out, kWidth>*>(static_cast<Out*>(a.out) + begin + at(p)) = r;
    }
  }
  __device__ __forceinline__ static int at(int pack) {
    return (pack * kChainThreads + static_cast<int>(threadIdx.x)) * kWidth;
  }
  // Ends, and memory that is not aligned.
  __device__ __forceinline__ static void one_by_one(const ChainArgs& a, int64_t begin) {
    int64_t end = begin + kTile < a.n ? begin + kTile : a.n;
#pragma unroll 1
    for (int64_t i = begin + threadIdx.x; i < end; i += kChainThreads) {
      typename Inputs::template Held<1> held;
      held.load(a, i);
      static_cast<Out*>(a.out)[i] = held.template call<F>(a, 0);
    }
  }
  __device__ __forceinline__ static void run(const ChainArgs& a) {
    int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile;
    if (a.packs && begin + kTile <= a.n)
      tile(a, begin);
    else
      one_by_one(a, begin);
  }
};

}  // namespace deft::cuda
