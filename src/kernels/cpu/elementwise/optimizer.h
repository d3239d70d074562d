// Optimizer updates of many tensors in one call: one pass over their memory, split over all of them together. The
// result of an element does not depend on the split. Formulas are those of PyTorch (and for LAMB of the paper), in f32.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

// Contiguous, and not overlapping. States not named by the update are not touched and may be null.
struct OptimizerTensor {
  int64_t size;
  float* param;
  const void* grad;  // f32 or bf16
  DType grad_dtype;
  float* state[3];  // of the size of param
  BFloat16* copy;   // null, or where the new parameters are also written as bf16
};

struct OptimizerOptions {
  double lr;
  double weight_decay = 0;
  double grad_scale = 1;  // gradients are multiplied by it first: clipping, loss scaling
  bool maximize = false;
};

// state[0]: momentum buffer, read and written if momentum is not 0. On the first step it is set to the gradient.
struct SgdOptions : OptimizerOptions {
  double momentum = 0, dampening = 0;
  bool nesterov = false, first = false;
};
void sgd_update(const OptimizerTensor* tensors, int64_t count, const SgdOptions& options);

// state[0]: first moment, [1]: second moment, [2]: largest second moment (amsgrad). `step` counts from 1.
// `decoupled` makes it AdamW.
struct AdamOptions : OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  int64_t step = 1;
  bool decoupled = false, amsgrad = false;
};
void adam_update(const OptimizerTensor* tensors, int64_t count, const AdamOptions& options);

// state[0]: average of squares, [1]: momentum buffer if momentum is not 0, [2]: average of gradients if centered.
struct RmspropOptions : OptimizerOptions {
  double alpha = 0.99, eps = 1e-8, momentum = 0;
  bool centered = false;
};
void rmsprop_update(const OptimizerTensor* tensors, int64_t count, const RmspropOptions& options);

// state[0]: sum of squares. `step` counts from 1.
struct AdagradOptions : OptimizerOptions {
  double lr_decay = 0, eps = 1e-10;
  int64_t step = 1;
};
void adagrad_update(const OptimizerTensor* tensors, int64_t count, const AdagradOptions& options);

// state[0]: first moment, [1]: second moment. The step of every tensor is scaled by |param| / |update|, or 1 if either
// is 0. `step` counts from 1.
struct LambOptions : OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6;
  int64_t step = 1;
};
void lamb_update(const OptimizerTensor* tensors, int64_t count, const LambOptions& options);

// A plain list of f32 or bf16 tensors, contiguous.
struct TensorData {
  int64_t size;
  void* data;
  DType dtype;
};
// The l2 norm over all elements of all tensors: blocks in f32, their sum in f64.
double l2_norm(const TensorData* tensors, int64_t count);
// x *= factor, rounded once.
void scale_tensors(const TensorData* tensors, int64_t count, double factor);

}  // namespace deft::cpu
