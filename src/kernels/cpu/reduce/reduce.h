// Reductions over any set of dims of a strided input. Results do not depend on the number of threads.
#pragma once

#include "kernels/cpu/elementwise/elementwise.h"

namespace deft::cpu {

enum class ReduceOp : uint8_t {
  sum,
  prod,
  max,  // NaN propagates in max and min
  min,
  any,
  all,
  count_nonzero,
  sum_squares,
  sum_abs,
  mean,
  var,  // param: correction (0 population, 1 sample)
  logsumexp,
  norm,    // param: p, any real number or an infinity
  argmax,  // row-major index over the reduced dims; the first one wins; NaN counts as the extreme
  argmin,
};

struct ReduceCall {
  int ndim;
  int64_t sizes[kMaxDims];
  bool reduced[kMaxDims];
  Operand in;
  Operand out;  // strides as with keepdim; those of reduced dims are not read
  ReduceOp op;
  double param;
};

// f32, bf16 and f16 are accumulated in f32 blocks combined in f64, f64 in f64, integers in int64 (wrapping), integers
// under mean, var, logsumexp and norm in f64. The result is converted to out.dtype as in convert().
// Over nothing: sum 0, prod 1, any false, all true, counts and norms 0, mean and var NaN, logsumexp -inf; max, min,
// argmax and argmin must be refused by the caller.
void reduce(const ReduceCall& call);

}  // namespace deft::cpu
