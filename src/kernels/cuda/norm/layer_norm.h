// Layer norm and RMS norm over contiguous rows of one floating dtype; bf16 and f16 are computed in f32.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

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
void layer_norm(Encoder& e, const NormCall& c);
void rms_norm(Encoder& e, const NormCall& c);

struct NormBackwardCall {
  DType dtype;
  int64_t rows, n;
  const void *g, *x;
  const void* gamma;          // or null for ones
  const void *mean, *rstd;    // as saved by the forward; mean is not read by rms_norm
  void *dx, *dgamma, *dbeta;  // each may be null; dx may be g
};
void layer_norm_backward(Encoder& e, const NormBackwardCall& c);
void rms_norm_backward(Encoder& e, const NormBackwardCall& c);

}  // namespace deft::cuda
