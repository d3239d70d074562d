// The passes of attention over panels of scores: rows of `width` values, one column per line (Note [Panels]).
#pragma once

#include "kernels/cpu/gemm/gemm_tile.h"

namespace deft::cpu {

// Everything is in powers of 2: a score is q k^T times scale * log2(e).
template <class T>
struct ScoreRows {
  T* scores;
  int64_t rows;
  T scale;  // 1 for rows that are scaled already
};

// Rows are queries: p = 2^(score - log_sum[row]) and ds = p * (dp - dot[row]). Both go to panels of side b, ds also to
// rows `ds_row` apart, of the panel's type. p and dp are multiplied by `keep`, if given, factors in rows with the same
// distance.
template <class T>
struct GradRows {
  const T *dp, *log_sum, *dot;
  void *p_out, *ds_out;
  void* ds;
  int64_t ds_row;
  const T* keep;
};

// The passes for one tile; T is float or double. An incomplete group of rows must be the last in a panel.
template <class T>
struct RowPasses {
  // top[j] = max(top[j], column j); drops NaN.
  void (*max_columns)(int width, const ScoreRows<T>& r, T* top);
  // Scales the scores and adds the mask; a mask of -inf hides any score.
  void (*add_mask)(int width, const ScoreRows<T>& r, const T* mask);
  // Scales the scores and hides those of columns before the row's, the first row's being `first`; or, with `after`,
  // those of columns after it. `first` may lie outside the panel.
  void (*hide)(int width, const ScoreRows<T>& r, int64_t first, bool after);
  // sum[j] += the terms 2^(score - top[j]) of column j. The terms, times `keep` if given, go to `out`, a panel of side
  // b; it may be the scores themselves where both hold T.
  void (*exp_columns)(int width, const ScoreRows<T>& r, const T* top, const T* keep, T* sum, void* out);
  void (*grad_rows)(int width, const ScoreRows<T>& r, const GradRows<T>& g);
  // Multiplies column j by factor[j].
  void (*scale_columns)(int width, T* x, int64_t rows, const T* factor);
  // Transposes: column j times factor[j], converted, to row j of `out`; `lines` rows of `rows` values.
  void (*store_lines)(int width, const T* x, int64_t rows, const T* factor, int64_t lines, DType dtype, void* out,
                      int64_t out_row);
  // Rows of n values times factor, converted, to rows of `out`.
  void (*store_rows)(const T* x, int64_t x_row, int64_t rows, int64_t n, T factor, DType dtype, void* out,
                     int64_t out_row);
  // At the end of columns: factor[j] = 1 / sum[j], 0 if the sum is empty; log_sum[j] = top[j] + log2(sum[j]).
  void (*end_columns)(int width, const T* top, const T* sum, T* factor, T* log_sum);
  // Sum of x * y over n values of this type.
  T (*dot)(DType dtype, const void* x, const void* y, int64_t n);
  // out[j] = sum of x * row j of y; out += the sum of w[j] * row j of y. Rows of n values of this type.
  void (*row_dots)(DType dtype, const T* x, const void* y, int64_t y_row, int64_t rows, int64_t n, T* out);
  void (*add_rows)(DType dtype, const T* w, const void* y, int64_t y_row, int64_t rows, int64_t n, T* out);
};
// Null functions where there are none for this tile.
template <class T>
RowPasses<T> row_passes(const GemmTile& tile);

}  // namespace deft::cpu
