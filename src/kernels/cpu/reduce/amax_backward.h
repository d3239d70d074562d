// The gradient of amax and amin: shared equally by the elements that are the extreme.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

// x and out are [outer, n, inner], g and the extremes y [outer, inner], all dense and of one floating type.
struct ExtremeBackwardCall {
  DType dtype;
  int64_t outer, n, inner;
  const void *g, *x, *y;
  void* out;
};
void extreme_backward(const ExtremeBackwardCall& call);

}  // namespace deft::cpu
