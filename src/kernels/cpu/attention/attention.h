// Attention without storing the score matrix (flash attention): softmax(q k^T * scale + mask) v for every head, in
// blocks of queries and keys.
#pragma once

#include <cstdint>

#include "kernels/cpu/elementwise/philox.h"
#include "runtime/dtype.h"
#include "runtime/limits.h"

namespace deft::cpu {

// One operand, [heads..., rows, features]. Features are contiguous; strides are in elements and may be zero.
struct HeadsView {
  void* data = nullptr;
  int64_t lead[kMaxDims] = {};
  int64_t row = 0;
};

struct AttentionCall {
  DType dtype;
  int lead_dims = 0;
  int64_t lead[kMaxDims] = {};  // sizes of the leading dims, whose product is the number of heads
  int64_t queries, keys, features, value_features;
  double scale;
  bool causal = false;  // query i sees keys 0 to i
  HeadsView q, k, v, o;
  // Bool (true: the key takes part) or the inputs' type (added to the scores, -inf hides); null for none.
  HeadsView mask;
  int64_t mask_key = 0;  // stride between keys of the mask
  DType mask_dtype = DType::boolean;
  Dropping drop = {};       // of the weights, numbered row-major as [heads, queries, keys]; none with p = 0
  void* log_sum = nullptr;  // [heads, queries], f32 (f64 for f64): log2 of the sum of a row's exponentials
};
// A query that sees no key gets zeros and a log_sum of -inf.
void attention_forward(const AttentionCall& call);

struct AttentionGrads {
  HeadsView g;           // of o
  HeadsView dq, dk, dv;  // data is null where no gradient is wanted
};
// Reads the outputs of the forward call.
void attention_backward(const AttentionCall& call, const AttentionGrads& grads);

}  // namespace deft::cpu
