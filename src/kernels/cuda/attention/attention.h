// Attention without the matrix of scores: softmax(q k^T * scale + mask) v for every head, on tensor cores.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"
#include "runtime/limits.h"
#include "runtime/random.h"

namespace deft::cuda {

// One operand, [heads..., rows, features]. Features lie next to each other; strides are in elements and may be zero.
struct HeadsView {
  void* data = nullptr;
  int64_t lead[kMaxDims] = {};
  int64_t row = 0;
  bool aligned = false;  // set at the launch: 8 features can be read at once
};

// Dropout of the weights, numbered row-major as [heads, queries, keys]: the draw of Dropout on them.
struct Dropping {
  double p = 0;
  PhiloxState draw = {};
  uint32_t threshold = 0;  // set at the launch: words below it are dropped
  float factor = 1;        // set at the launch: of the others
};

struct AttentionCall {
  DType dtype;  // bf16 or f16
  int lead_dims = 0;
  int64_t lead[kMaxDims] = {};                      // sizes of the leading dims; together they are the heads
  int64_t queries, keys, features, value_features;  // features: 128 at most
  double scale;
  bool causal = false;  // query i sees keys 0 to i
  HeadsView q, k, v, o;
  // Bool (true: the key takes part) or of the inputs' type (added to the scores, -inf hides); null for none.
  HeadsView mask;
  int64_t mask_key = 0;  // stride between keys of the mask
  DType mask_dtype = DType::boolean;
  Dropping drop = {};
  void* log_sum = nullptr;  // [heads, queries], f32: log2 of the sum of a row's exponentials
};
// A query that sees no key gets zeros and a log_sum of -inf. Keys and values that a bool mask with equal rows hides are
// not read.
void attention_forward(Encoder& e, AttentionCall call);

struct AttentionGrads {
  HeadsView g;           // of o
  HeadsView dq, dk, dv;  // data is null where not wanted
};
// Reads what the forward call wrote. Sums run in a fixed order: no atomics.
void attention_backward(Encoder& e, AttentionCall call, AttentionGrads grads);

}  // namespace deft::cuda
