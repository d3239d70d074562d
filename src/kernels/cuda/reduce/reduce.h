// Reductions over any set of dims of a strided input. Results are the same from run to run.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

enum class ReduceOp : uint8_t {
  sum,
  mean,
  prod,
  max,  // NaN propagates in max and min
  min,
  any,
  all,
  count_nonzero,
  var,  // param: correction (0 population, 1 sample)
  std,  // the root of var
  logsumexp,
  norm,    // param: p, any real number or an infinity
  argmax,  // row-major index over the reduced dims; the first one wins; NaN counts as the extreme
  argmin,
};

struct ReduceCall {
  int ndim = 0;
  int64_t sizes[kMaxDims];
  bool reduced[kMaxDims];
  Operand in;
  Operand out;                 // strides as with keepdim; those of reduced dims are not read
  int64_t* indices = nullptr;  // max and min: where the extreme lies, laid out as `out`; may be null
  ReduceOp op = ReduceOp::sum;
  double param = 0;
};

// The type an input of type `t` has to be converted to first; most of the time it is `t`.
DType reduce_input(ReduceOp op, DType t);

// Floats are accumulated in f32 over a few elements and in f64 beyond, integers in int64 (wrapping). Results have the
// type of the input, i64 for sums and products of integers, counts and indices, bool for any and all; norm takes floats
// only, max and min may give narrower integers, logsumexp of f64 may give f32.
// Over nothing: sum 0, prod 1, any false, all true, counts and norms 0, mean, var and std NaN, logsumexp -inf; max,
// min, argmax and argmin must be refused by the caller.
void reduce(Encoder& e, const ReduceCall& call);

}  // namespace deft::cuda
