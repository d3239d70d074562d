// Builds ChunkFns (kernels/cpu/elementwise.h) from formulas. Compiled once per target; see tests/kernels/chunk_test.cpp
// for how a table of them is exported.
//
// F has `template <class V> DEFT_HD static auto call(V a, V b)`, with a trailing `const Params&` if it declares a type
// `Params`, which `params` then points to. V is Vec<T> for float and double, T itself for integers and bool. The result
// is a V, or a mask (bool for scalars) that is written as bytes 0 and 1.
#if defined(DEFT_KERNELS_CPU_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEFT_KERNELS_CPU_CHUNK_INL_H_
#undef DEFT_KERNELS_CPU_CHUNK_INL_H_
#else
#define DEFT_KERNELS_CPU_CHUNK_INL_H_
#endif

#include <algorithm>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/simd-inl.h"

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

template <class F, class... V>
DEFT_HD auto apply_formula(const void* params, V... v) {
  if constexpr (requires { typename F::Params; }) {
    return F::call(v..., *static_cast<const typename F::Params*>(params));
  } else {
    static_cast<void>(params);
    return F::call(v...);
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
template <class F, class T, size_t... I>
inline void vector_chunk(const void* const* in, void* out, size_t n, const void* params, std::index_sequence<I...>) {
  using V = Vec<T>;
  constexpr size_t kLanes = V::kLanes;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store_result(apply_formula<F>(params, V::load(static_cast<const T*>(in[I]) + i)...), out, i);
  }
  if (i == n) return;
  // The rest goes through padded copies. Ones are safe padding for every formula.
  T rest[sizeof...(I)][kLanes];
  std::fill_n(&rest[0][0], sizeof...(I) * kLanes, T(1));
  (std::memcpy(rest[I], static_cast<const T*>(in[I]) + i, (n - i) * sizeof(T)), ...);
  auto r = apply_formula<F>(params, V::load(rest[I])...);
  T result[kLanes];
  store_result(r, result, 0);
  constexpr size_t bytes = std::is_same_v<decltype(r), Mask<T>> ? 1 : sizeof(T);
  std::memcpy(static_cast<char*>(out) + i * bytes, result, (n - i) * bytes);
}

template <class F, class T, size_t... I>
inline void scalar_chunk(const void* const* in, void* out, size_t n, const void* params, std::index_sequence<I...>) {
  using R = decltype(apply_formula<F>(params, (static_cast<void>(I), T())...));
  using Out = std::conditional_t<std::is_same_v<R, bool>, bool, T>;
  const T* const p[] = {static_cast<const T*>(in[I])...};
  Out* o = static_cast<Out*>(out);
  for (size_t i = 0; i < n; ++i) o[i] = static_cast<Out>(apply_formula<F>(params, p[I][i]...));
}

template <class F, class T, size_t kInputs>
inline void chunk(const void* const* in, void* out, size_t n, const void* params) {
  if constexpr (std::is_floating_point_v<T>) {
    vector_chunk<F, T>(in, out, n, params, std::make_index_sequence<kInputs>());
  } else {
    scalar_chunk<F, T>(in, out, n, params, std::make_index_sequence<kInputs>());
  }
}

// T is float, double, an integer type or bool: the compute type of the call.
template <class F, class T>
void unary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 1>(in, out, n, params);
}
template <class F, class T>
void binary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 2>(in, out, n, params);
}
template <class F, class T>
void ternary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 3>(in, out, n, params);
}
template <class F, class T>
void quaternary_chunk(const void* const* in, void* out, size_t n, const void* params) {
  chunk<F, T, 4>(in, out, n, params);
}

}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEFT_KERNELS_CPU_CHUNK_INL_H_
