// Max and average pooling over 1 to 3 spatial dims. Contiguous data outer x spatial x inner: NCHW with outer = N*C,
// inner = 1, or NHWC with outer = N, inner = C.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace deft::cpu {

struct PoolCall {
  DType dtype;
  int spatial;
  int64_t outer, inner;
  int64_t in[3], out[3];
  bool adaptive;  // window o covers [o * in / out, ceil((o + 1) * in / out)); the next four are not used
  int64_t kernel[3], stride[3], pad[3], dilation[3];  // average pooling has no dilation
  bool count_include_pad;                             // average only
  int64_t divisor_override;                           // average only; 0: none
};

// Output size of one dim; with ceil_mode the last window must still start inside the input or its left padding.
int64_t pool_output_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil_mode);

// Numbers. Padding never wins, NaN always does. indices (nullable): flat position in the spatial dims; -1 and the
// lowest value for a window without any input.
void max_pool_forward(const PoolCall& call, const void* x, void* y, int64_t* indices);
// Floats. Each input sums, in the accumulation type, the dy of the windows whose index it is.
void max_pool_backward(const PoolCall& call, const void* dy, const int64_t* indices, void* dx);
// Floats.
void avg_pool_forward(const PoolCall& call, const void* x, void* y);
void avg_pool_backward(const PoolCall& call, const void* dy, void* dx);

}  // namespace deft::cpu
