// Cross entropy of logits with class numbers, without the log probabilities in memory.
#pragma once

#include "kernels/cpu/norm/softmax_norm.h"

namespace deft::cpu {

// A row of logits x with target t costs (1 - smoothing) w[t] l[t] + smoothing / n sum(w l), where l = log(sum(exp(x)))
// - x; ignored rows cost nothing.
struct CrossEntropyCall {
  RowsView rows;
  const void* x;
  const int64_t* target;  // outer * inner numbers in [0, n), or ignore_index
  const void* weight;     // n elements of the dtype of x, or null for ones
  int64_t ignore_index;
  double smoothing;
};
// The loss of every row, and its largest element and log(sum(exp(x - largest))), one after the other, in f32 (f64 for
// f64).
void cross_entropy(const CrossEntropyCall& c, double* loss, void* largest_and_log_sum);
// dx = scale * gradient of the loss. There is one scale for each row, or only one.
void cross_entropy_backward(const CrossEntropyCall& c, const void* largest_and_log_sum, const double* scale,
                            bool one_scale, void* dx);

}  // namespace deft::cpu
