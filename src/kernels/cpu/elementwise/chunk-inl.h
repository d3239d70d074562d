// Builds ChunkFns (kernels/cpu/elementwise/elementwise.h) from formulas. Compiled once per target; see
// tests/kernels/chunk_test.cpp for how a table of them is exported.
//
// F has `template <class V> DEFT_HD static auto call(V a, V b)`, with a trailing `const Params&` if it declares a type
// `Params`, which `params` then points to (and `kCases`, all values they can have, if each should get a loop of its
// own). V is Vec<T> for float and double, T itself for integers and bool. The result is a V, or a mask (bool for
// scalars) that is written as bytes 0 and 1.
#if defined(DEFT_KERNELS_CPU_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_CHUNK_INL_H_
#undef DEFT_KERNELS_CPU_CHUNK_INL_H_
#else
#define DEFT_KERNELS_CPU_CHUNK_INL_H_
#endif

#include <algorithm>
#include <concepts>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {

// The forward formula of an op as a functor, and its gradient as a function of (g, x, y) or (g, a, b, y).
template <class Op>
struct Formula : Op {
  template <class... A>
  DEFT_HD static auto call(A... a) {
    return Op::fwd(a...);
  }
};
template <class Op>
struct GradFormula : Op {
  template <class... A>
  DEFT_HD static auto call(A... a) {
    return Op::grad(a...);
  }
};

// Where a formula's parameters come from: nowhere, a copy (which, as the compiler knows, stores do not change), or one
// of F::kCases, each of which gets a loop of its own without a branch inside.
struct NoParams {};
template <class P>
struct ParamsCopy {
  P value;
};
template <class F, size_t c>
struct ParamsCase {
  static constexpr typename F::Params value = F::kCases[c];
};

template <class F, class P, class... V>
DEFT_HD auto apply_formula([[maybe_unused]] const P& params, V... v) {
  if constexpr (std::is_same_v<P, NoParams>) {
    return F::call(v...);
  } else {
    return F::call(v..., params.value);
  }
}

template <class F, class Run, size_t... C>
inline void run_case(const typename F::Params& p, const Run& run, std::index_sequence<C...>) {
  static_cast<void>(((p == F::kCases[C] && (run(ParamsCase<F, C>()), true)) || ...));
}
template <class F, class Run>
inline void with_params([[maybe_unused]] const void* params, const Run& run) {
  if constexpr (requires { F::kCases; }) {
    run_case<F>(*static_cast<const typename F::Params*>(params), run, std::make_index_sequence<std::size(F::kCases)>());
  } else if constexpr (requires { typename F::Params; }) {
    run(ParamsCopy<typename F::Params>{*static_cast<const typename F::Params*>(params)});
  } else {
    run(NoParams());
  }
}

template <class T>
inline void store_result(Vec<T> r, void* out, size_t i) {
  r.store(static_cast<T*>(out) + i);
}
template <class T>
inline void store_result(Mask<T> r, void* out, size_t i) {
  r.store(static_cast<uint8_t*>(out) + i);
}
// kUnroll vectors per step: long formulas are chains of dependent operations, and the next vector is too far away in
// the instruction stream to run beside them. In place is fine, all loads come first.
inline constexpr size_t kUnroll = 3;
template <class F, class T, class P, size_t... I, size_t... U>
inline void vector_step(const void* const* in, void* out, size_t i, const P& params, std::index_sequence<I...>,
                        std::index_sequence<U...>) {
  using V = Vec<T>;
  using R = decltype(apply_formula<F>(params, (static_cast<void>(I), V())...));
  auto at = [&](size_t u) HWY_ATTR {
    return apply_formula<F>(params, V::load(static_cast<const T*>(in[I]) + i + u * V::kLanes)...);
  };
  const R r[] = {at(U)...};
  (store_result(r[U], out, i + U * V::kLanes), ...);
}
// How many elements whole steps take. Not inlined: a call on a few elements should not save the registers it needs.
template <class F, class T, class P, size_t... I>
[[gnu::noinline]] DEFT_FLATTEN size_t vector_steps(const void* const* in, void* out, size_t n, const P& params,
                                                   std::index_sequence<I...> inputs) {
  constexpr size_t kStep = kUnroll * Vec<T>::kLanes;
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    vector_step<F, T>(in, out, i, params, inputs, std::make_index_sequence<kUnroll>());
  }
  return i;
}
// The rest, less than a vector, goes through padded copies. Ones are safe padding for every formula.
template <class F, class T, class P, size_t... I>
[[gnu::noinline]] DEFT_FLATTEN void vector_rest(const void* const* in, void* out, size_t i, size_t n, const P& params,
                                                std::index_sequence<I...>) {
  using V = Vec<T>;
  constexpr size_t kLanes = V::kLanes;
  T rest[sizeof...(I)][kLanes];
  std::fill_n(&rest[0][0], sizeof...(I) * kLanes, T(1));
  (std::memcpy(rest[I], static_cast<const T*>(in[I]) + i, (n - i) * sizeof(T)), ...);
  auto r = apply_formula<F>(params, V::load(rest[I])...);
  T result[kLanes];
  store_result(r, result, 0);
  constexpr size_t bytes = std::is_same_v<decltype(r), Mask<T>> ? 1 : sizeof(T);
  std::memcpy(static_cast<char*>(out) + i * bytes, result, (n - i) * bytes);
}
template <class F, class T, class P, size_t... I>
inline void vector_chunk(const void* const* in, void* out, size_t n, const P& params,
                         std::index_sequence<I...> inputs) {
  using V = Vec<T>;
  constexpr size_t kLanes = V::kLanes;
  size_t i = n >= kUnroll * kLanes ? vector_steps<F, T>(in, out, n, params, inputs) : 0;
  const T* const p[] = {static_cast<const T*>(in[I])...};
  for (; i + kLanes <= n; i += kLanes) store_result(apply_formula<F>(params, V::load(p[I] + i)...), out, i);
  if (i < n) vector_rest<F, T>(in, out, i, n, params, inputs);
}

template <class F, class T, class P, size_t... I>
inline void scalar_chunk(const void* const* in, void* out, size_t n, const P& params, std::index_sequence<I...>) {
  using R = decltype(apply_formula<F>(params, (static_cast<void>(I), T())...));
  using Out = std::conditional_t<std::is_same_v<R, bool>, bool, T>;
  const T* const p[] = {static_cast<const T*>(in[I])...};
  Out* o = static_cast<Out*>(out);
  for (size_t i = 0; i < n; ++i) o[i] = static_cast<Out>(apply_formula<F>(params, p[I][i]...));
}

template <class F, class T, size_t kInputs>
inline void chunk(const void* const* in, void* out, size_t n, const void* params) {
  constexpr auto inputs = std::make_index_sequence<kInputs>();
  with_params<F>(params, [&](const auto& p) HWY_ATTR {
    if constexpr (std::is_floating_point_v<T>) {
      vector_chunk<F, T>(in, out, n, p, inputs);
    } else {
      scalar_chunk<F, T>(in, out, n, p, inputs);
    }
  });
}

// T is float, double, an integer type or bool: the compute type of the call.
// Flattened: the functions on Vec cannot be always_inline (see simd_vec-inl.h), and one call in the loop doubles its
// time.
template <class F, class T>
DEFT_FLATTEN void unary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 1>(in, out, n, params);
}
template <class F, class T>
DEFT_FLATTEN void binary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 2>(in, out, n, params);
}
template <class F, class T>
DEFT_FLATTEN void ternary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 3>(in, out, n, params);
}
template <class F, class T>
DEFT_FLATTEN void quaternary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 4>(in, out, n, params);
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_CHUNK_INL_H_
