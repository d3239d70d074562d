// Shared by the parts of gemm: typed calls, and GEMMs that do not pack.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/gemm/dot_rows.h"
#include "kernels/cpu/gemm/gemm.h"
#include "runtime/half.h"

namespace deft::cpu::detail {

// GemmCall with types. The bias may run along rows, so that a call can be transposed.
template <class T>
struct TypedGemm {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t b_row, b_col;
  T* c;
  int64_t c_row, c_col;
  bool accumulate;
  const T* bias;
  bool bias_on_rows;

  TypedGemm transposed() const {
    return {n, m, k, b, b_col, b_row, a, a_col, a_row, c, c_col, c_row, accumulate, bias, !bias_on_rows};
  }
};

inline uint32_t widen(int8_t x) { return static_cast<uint32_t>(x); }  // sums wrap
inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(BFloat16 x) { return x; }
inline float widen(Half x) {
#if defined(__aarch64__)
  return static_cast<float>(std::bit_cast<__fp16>(x.bits));
#else
  return x;
#endif
}

// c(i, j) = value + the terms of the epilogue. `add`: adds the old c.
template <class T, class Acc>
inline void finish(const TypedGemm<T>& g, int64_t i, int64_t j, Acc value, bool add) {
  T& out = g.c[i * g.c_row + j * g.c_col];
  if (g.bias) value += widen(g.bias[g.bias_on_rows ? i : j]);
  if (add) value += widen(out);
  out = static_cast<T>(value);
}

// GEMMs too small or too narrow to pack. Computes columns [j0, j1); j0 is a multiple of kDirectBlock, so that which
// element takes which code path does not depend on the split.
inline constexpr int64_t kDirectBlock = 64;
inline constexpr int64_t kDirectMaxK = 4096;  // dot form with a strided a: its row is copied to the stack
enum class DirectForm { none, rows /* b_col == 1 */, dots /* b_row == 1 */, strided };
void gemm_direct(const TypedGemm<float>& g, DirectForm form, int64_t j0, int64_t j1);
void gemm_direct(const TypedGemm<double>& g, DirectForm form, int64_t j0, int64_t j1);
void gemm_direct(const TypedGemm<BFloat16>& g, DirectForm form, int64_t j0, int64_t j1);
void gemm_direct(const TypedGemm<Half>& g, DirectForm form, int64_t j0, int64_t j1);

// Small f32 GEMMs, one or a batch whose operands lie a fixed number of elements apart.
struct GemmBatch {
  int64_t count = 1, a = 0, b = 0, c = 0;
};
inline constexpr int64_t kSmallLanes = 16, kSmallRight = 8192;
// Whether a copy of b, its rows in whole vectors, fits into the buffer of gemm_small().
inline bool small_fits(const TypedGemm<float>& g) {
  return g.k <= kSmallRight / kSmallLanes && (g.n + kSmallLanes - 1) / kSmallLanes * kSmallLanes * g.k <= kSmallRight;
}
void gemm_small(const TypedGemm<float>& g, const GemmBatch& batch);
// Rows [i0, i1) of an outer product: k == 1, b_col == 1, c_col == 1, and nothing is added.
void gemm_outer(const TypedGemm<float>& g, int64_t i0, int64_t i1);

// Dot products for few rows, in assembly: up to kDotsMaxRows, both operands contiguous over k; floats and i8.
inline constexpr int64_t kDotsMaxRows = Dots::kMostRows;
template <class T>
bool dots_apply(const TypedGemm<T>& g);
template <class T>
void gemm_dots(const TypedGemm<T>& g);

void gemm_integer(const GemmCall& call);

}  // namespace deft::cpu::detail
