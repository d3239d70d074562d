// Between pool.cpp and the kernels of the two layouts (pool_nhwc.cpp, pool_nchw.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/workspace.h"
#include "runtime/dtype.h"

namespace deft::cpu {

struct PoolSpan {
  int64_t begin, end, step;
  int64_t count() const { return end > begin ? (end - begin + step - 1) / step : 0; }
};

struct PoolAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  bool adaptive = false;

  // Input positions of window o.
  PoolSpan window(int64_t o) const {
    if (adaptive) return {o * in / out, ((o + 1) * in + out - 1) / out, 1};
    const int64_t start = o * stride - pad;
    int64_t first = start;
    while (first < 0) first += dilation;
    return {first, std::min(in, start + (kernel - 1) * dilation + 1), dilation};
  }
  // Windows that may hold input i.
  PoolSpan covering(int64_t i) const {
    if (adaptive) return {i * out / in, ((i + 1) * out + in - 1) / in, 1};
    const int64_t first = i + pad - (kernel - 1) * dilation;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, std::min(out, (i + pad) / stride + 1), 1};
  }
  // The number of elements of window o in a mean, with the padding it covers or without.
  int64_t length(int64_t o, bool with_pad) const {
    const PoolSpan s = window(o);
    if (adaptive || !with_pad) return std::max<int64_t>(1, s.end - s.begin);
    const int64_t start = o * stride - pad;
    return std::max<int64_t>(1, std::min(start + kernel, in + pad) - start);
  }
  int64_t largest_window() const { return adaptive ? in / std::max<int64_t>(1, out) + 2 : kernel; }
  int64_t most_covering() const {
    return adaptive ? out / std::max<int64_t>(1, in) + 2 : (kernel - 1) * dilation / stride + 1;
  }
};

struct PoolPlan {
  PoolAxis axis[3];
  int64_t outer, inner, in, out;  // in, out: elements of a plane
  bool include_pad;
  int64_t divisor;

  int64_t window_cost() const { return axis[0].largest_window() * axis[1].largest_window() * axis[2].largest_window(); }
  int64_t covering_cost() const { return axis[0].most_covering() * axis[1].most_covering() * axis[2].most_covering(); }
  // The divisor of a window is the product over its axes: this factor, and along the last axis of_column().
  int64_t of_line(int64_t z, int64_t y) const {
    return divisor ? divisor : axis[0].length(z, include_pad) * axis[1].length(y, include_pad);
  }
  int64_t of_column(int64_t x) const { return divisor ? 1 : axis[2].length(x, include_pad); }
};

// window() or covering() of a whole axis, so that nothing is divided in the loops.
class PoolSpans {
 public:
  PoolSpans(const PoolAxis& a, bool windows) : of_(windows ? a.out : a.in) {
    for (int64_t i = 0; i < (windows ? a.out : a.in); ++i) of_[i] = windows ? a.window(i) : a.covering(i);
  }
  const PoolSpan& operator[](int64_t i) const { return of_[i]; }

 private:
  Workspace<PoolSpan> of_;
};

inline constexpr int64_t kPoolGrain = 16 * 1024;
inline constexpr int64_t kPoolRun = 128;  // elements added up before their sum goes to one in f64

// Floats, planes of less than 2^31 elements. NHWC: vectors over the channels.
void max_forward_nhwc(const PoolPlan& p, DType t, const void* x, void* y, int64_t* indices);
void max_backward_nhwc(const PoolPlan& p, DType t, const void* dy, const int64_t* indices, void* dx);
void avg_forward_nhwc(const PoolPlan& p, DType t, const void* x, void* y);
void avg_backward_nhwc(const PoolPlan& p, DType t, const void* dy, void* dx);
// NCHW (inner = 1): vectors along the last axis.
void max_forward_nchw(const PoolPlan& p, DType t, const void* x, void* y, int64_t* indices);
void max_backward_nchw(const PoolPlan& p, DType t, const void* dy, const int64_t* indices, void* dx);
void avg_forward_nchw(const PoolPlan& p, DType t, const void* x, void* y);
void avg_backward_nchw(const PoolPlan& p, DType t, const void* dy, void* dx);

}  // namespace deft::cpu
