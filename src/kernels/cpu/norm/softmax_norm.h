// Kernels over rows: softmax and the norms. All tensors are contiguous and of one floating dtype; bf16 and f16 are
// computed in f32.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

// A row is the middle dim of a contiguous (outer, n, inner) view.
struct RowsView {
  DType dtype;
  int64_t outer, n, inner;
};

// The output may be the input.
void softmax(const RowsView& v, const void* x, void* y);
void log_softmax(const RowsView& v, const void* x, void* y);
// From the gradient g of the result y: dx may be g.
void softmax_backward(const RowsView& v, const void* g, const void* y, void* dx);
void log_softmax_backward(const RowsView& v, const void* g, const void* y, void* dx);

struct NormCall {
  DType dtype;
  int64_t rows, n;
  const void* x;
  const void* gamma;  // n elements, or null for ones
  const void* beta;   // n elements, or null for zeros; layer_norm only
  double eps;
  void* y;
  void* mean;  // one per row, f32 (f64 for f64); may be null; layer_norm only
  void* rstd;  // the same
};
void layer_norm(const NormCall& c);
void rms_norm(const NormCall& c);

struct NormBackwardCall {
  DType dtype;
  int64_t rows, n;
  const void *g, *x;
  const void* gamma;          // or null for ones
  const void *mean, *rstd;    // as saved by the forward; mean is not read by rms_norm
  void *dx, *dgamma, *dbeta;  // each may be null; dx may be g; dbeta is layer_norm's only
};
void layer_norm_backward(const NormBackwardCall& c);
void rms_norm_backward(const NormBackwardCall& c);

}  // namespace deft::cpu
