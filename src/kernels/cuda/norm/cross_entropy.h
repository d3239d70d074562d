// Cross entropy of logits with class numbers, without the log probabilities in memory: as
// kernels/cpu/norm/cross_entropy.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/encoder.h"
#include "runtime/dtype.h"

namespace deft::cuda {

// A row of logits x with target t costs (1 - smoothing) w[t] l[t] + smoothing / n sum(w l), where l = log(sum(exp(x)))
// - x; ignored rows cost nothing.
struct CrossEntropyCall {
  DType dtype;
  int64_t rows, n;
  const void* x;          // [rows, n], dense
  const int64_t* target;  // numbers in [0, n), or ignore_index
  const void* weight;     // n elements of the dtype of x, or null for ones
  int64_t ignore_index;
  double smoothing;
};
// The loss of every row and the weight of its class, and its largest element and log(sum(exp(x - largest))), one after
// the other, in f32 (f64 for f64). Bad targets are reported at `site` with (target, row, n, ignore) and are ignored.
void cross_entropy(Encoder& e, const CrossEntropyCall& c, double* losses, double* weights, void* largest_and_log_sum,
                   const FaultSite& site);
// Sums, in a fixed order: of the weights, and of the losses, over that of the weights for `mean`.
void cross_entropy_sum(Encoder& e, const double* losses, const double* weights, int64_t rows, bool mean,
                       double* weight_sum, void* loss, DType loss_dtype);
// dx = scale * gradient of the loss; scale: g, one for each row or only one, over *weight_sum where that is not null.
struct CrossEntropyGradient {
  const void* g;
  DType g_dtype;
  bool one_g;
  const double* weight_sum;
};
void cross_entropy_backward(Encoder& e, const CrossEntropyCall& c, const void* largest_and_log_sum,
                            const CrossEntropyGradient& gradient, void* dx);

}  // namespace deft::cuda
