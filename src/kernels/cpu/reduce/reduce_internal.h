// Between the driver (reduce.cpp) and the per-target kernels (reduce_kernels.cpp).
#pragma once

#include <cstdint>

#include "kernels/cpu/reduce/reduce.h"

namespace deft::cpu {

// What is known about a range of elements.
//   folds (sum, max, ...)  a, or i for int64          var        a = mean, b = sum of squared deviations
//   argmax, argmin         a or j = value, i = index  logsumexp  a = max, b = sum of exp(x - a)
struct Partial {
  double a = 0, b = 0;
  int64_t i = 0, j = 0;
};

inline constexpr int64_t kReduceBlock = 1024;  // elements of one block kernel call at most
inline constexpr int64_t kReduceColumns = 4096;
inline constexpr int64_t kReduceRows = 128;
inline constexpr int64_t kReduceTile = 256;  // columns of ops that are no folds, and where elements are gathered
inline constexpr int kRowsAtOnce = 8;

// x: n contiguous elements as stored; `first` is the index of x[0] in the reduced range.
using BlockFn = void (*)(const void* x, int64_t n, int64_t first, double param, Partial* out);
// acc[c] = fold(acc[c], rows[0 .. row_count][c]) for c < width; acc is of the accumulation type. Folds only.
using ColumnsFn = void (*)(const void* const* rows, int row_count, int64_t width, void* acc, double param);
// out[k], of the accumulation type, is the fold of the n <= kReduceBlock elements at x + k * stride. Folds only.
using LinesFn = void (*)(const void* x, int64_t stride, int64_t lines, int64_t n, double param, void* out);
// out[c] is about column c < width <= kReduceTile of n rows, `step` elements apart.
using TileFn = void (*)(const void* x, int64_t step, int64_t n, int64_t width, Partial* out);

struct ReduceKernels {
  BlockFn block;
  ColumnsFn columns;  // null if the op is not a fold
  LinesFn lines;
  double identity;  // folds: the start value; for int64 max and min see int_identity
  int64_t int_identity;
  TileFn tile = nullptr;  // of an op that is no fold: what its block kernel does, without transposing
};

// acc is f32, f64 or i64; storage is acc, or bf16 or f16 with f32.
ReduceKernels reduce_kernels(ReduceOp op, DType acc, DType storage, double param);

}  // namespace deft::cpu
