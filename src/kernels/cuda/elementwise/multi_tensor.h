// Norms, scaling and checks of many tensors in few launches. Contiguous, f32, bf16 or f16; computed in f32.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

struct TensorData {
  int64_t size;
  void* data;
  DType dtype;
  int32_t index;  // that a check reports
};

// *norm, in device memory, becomes the l2 norm over all of them: sums of a chunk's threads in f32, the rest in f64.
// With `factor` also what clips it: max_norm / (norm + 1e-6), or 1 if that is more. NaN stays.
void l2_norm(Encoder& e, const TensorData* tensors, int64_t count, double* norm, double* factor = nullptr,
             double max_norm = 0);

// x *= factor, rounded once.
void scale_tensors(Encoder& e, const TensorData* tensors, int64_t count, double factor);
// The factor is read on the device; 1 writes nothing.
void scale_tensors(Encoder& e, const TensorData* tensors, int64_t count, const double* factor);

// *found, in device memory, becomes 0 if all elements are finite, otherwise kFoundBase - the lowest index of a tensor
// with inf or NaN. With `factor` not 1 they are scaled by it, after the check.
inline constexpr int64_t kFoundBase = int64_t{1} << 32;
void check_finite(Encoder& e, const TensorData* tensors, int64_t count, int64_t* found, double factor = 1);

}  // namespace deft::cuda
