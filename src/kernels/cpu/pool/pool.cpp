#include "kernels/cpu/pool/pool.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/copy/copy.h"
#include "kernels/cpu/pool/pool_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

PoolAxis axis_of(const PoolCall& c, int s, bool dilated) {
  if (!c.adaptive) return {c.in[s], c.out[s], c.kernel[s], c.stride[s], c.pad[s], dilated ? c.dilation[s] : 1, false};
  const int64_t in = c.in[s], out = c.out[s];
  if (in == 0 || out == 0 || in % out != 0) return {in, out, 1, 1, 0, 1, true};
  return {in, out, in / out, in / out, 0, 1, false};  // windows of one size
}

// A window over all of an axis and of the next one is a window over both as one.
bool is_global(const PoolAxis& a) { return a.out == 1 && a.pad == 0 && a.dilation == 1 && a.kernel == a.in; }
void merge_global(PoolPlan& p) {
  for (int pass = 0; pass < 2 && is_global(p.axis[1]) && is_global(p.axis[2]); ++pass) {
    const int64_t in = p.axis[1].in * p.axis[2].in;
    p.axis[2] = {in, 1, in, in, 0, 1, false};
    p.axis[1] = p.axis[0];
    p.axis[0] = {};
  }
}

// One window over everything: all elements of a plane, or of a channel, get the same.
template <class S>
void spread_mean(const PoolPlan& p, const S* dy, S* dx) {
  using T = accumulate_t<S>;
  const T scale = 1 / static_cast<T>(p.of_line(0, 0) * p.of_column(0));
  const int64_t grain = std::max<int64_t>(1, kPoolGrain / p.inner);
  parallel_for(0, p.outer * p.in, grain, [&](int64_t begin, int64_t end) {
    Workspace<S> row(p.inner);
    for (int64_t at = begin; at < end;) {
      const int64_t plane = at / p.in, stop = std::min(end, (plane + 1) * p.in);
      for (int64_t c = 0; c < p.inner; ++c) row[c] = static_cast<S>(static_cast<T>(dy[plane * p.inner + c]) * scale);
      if (p.inner == 1) {
        fill(dx + at, dtype_of<S>, stop - at, row.data());
        at = stop;
      }
      for (; at < stop; ++at) std::copy_n(row.data(), p.inner, dx + at * p.inner);
    }
  });
}

PoolPlan make_plan(const PoolCall& c, const char* op, bool dilated) {
  DEFT_CHECK(c.spatial >= 1 && c.spatial <= 3, ShapeError, "{}: found {} spatial dims, expected 1, 2 or 3", op,
             c.spatial);
  PoolPlan p{};
  p.outer = c.outer, p.inner = c.inner, p.in = p.out = 1;
  p.include_pad = c.count_include_pad, p.divisor = c.divisor_override;
  const int shift = 3 - c.spatial;
  for (int d = shift; d < 3; ++d) {
    const PoolAxis& a = p.axis[d] = axis_of(c, d - shift, dilated);
    DEFT_CHECK(a.kernel > 0 && a.stride > 0 && a.dilation > 0 && a.pad >= 0, ValueError,
               "{}: found kernel {}, stride {}, dilation {}, padding {}; expected positive values", op, a.kernel,
               a.stride, a.dilation, a.pad);
    p.in *= a.in;
    p.out *= a.out;
  }
  return p;
}
void check_float(const PoolCall& c, const char* op) {
  DEFT_CHECK(is_floating(c.dtype), DTypeError, "{}: found {}, expected a floating type; cast first", op,
             name_of(c.dtype));
}

// Integers, and planes too large for the vectors of positions.
bool is_plain(const PoolPlan& p, DType t) { return !is_floating(t) || p.in > std::numeric_limits<int32_t>::max(); }

// Calls f(plane, position, z, y, x) for all positions of a grid, in parallel over lines.
template <class F>
void for_each_position(const PoolPlan& p, bool outputs, int64_t cost, F f) {
  int64_t size[3];
  for (int d = 0; d < 3; ++d) size[d] = outputs ? p.axis[d].out : p.axis[d].in;
  const int64_t lines = p.outer * size[0] * size[1];
  parallel_for(0, lines, std::max<int64_t>(1, kPoolGrain / (size[2] * p.inner * cost)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t l = begin; l < end; ++l) {
                   const int64_t z = l / size[1] % size[0], y = l % size[1];
                   for (int64_t x = 0; x < size[2]; ++x) {
                     f(l / (size[0] * size[1]), (z * size[1] + y) * size[2] + x, z, y, x);
                   }
                 }
               });
}
template <class F>
void for_each_in(const PoolSpan& z, const PoolSpan& y, const PoolSpan& x, int64_t size1, int64_t size2, F f) {
  for (int64_t k = z.begin; k < z.end; k += z.step) {
    for (int64_t j = y.begin; j < y.end; j += y.step) {
      for (int64_t i = x.begin; i < x.end; i += x.step) f((k * size1 + j) * size2 + i);
    }
  }
}

template <class T>
constexpr T lowest() {
  if constexpr (std::is_integral_v<T>) {
    return std::numeric_limits<T>::lowest();
  } else {
    return static_cast<T>(-std::numeric_limits<float>::infinity());
  }
}

template <class T>
void max_forward(const PoolPlan& p, const T* x, T* y, int64_t* indices) {
  constexpr int64_t kInner = 256;  // channels worked on at a time, on the stack
  const PoolAxis* a = p.axis;
  for_each_position(p, true, p.window_cost(), [&](int64_t plane, int64_t o, int64_t oz, int64_t oy, int64_t ox) {
    for (int64_t c = 0; c < p.inner; c += kInner) {
      T best[kInner];
      int64_t where[kInner];
      const int64_t n = std::min(kInner, p.inner - c), to = (plane * p.out + o) * p.inner + c;
      std::fill_n(best, n, lowest<T>());
      std::fill_n(where, n, int64_t{-1});
      for_each_in(a[0].window(oz), a[1].window(oy), a[2].window(ox), a[1].in, a[2].in, [&](int64_t i) {
        const T* from = x + (plane * p.in + i) * p.inner + c;
        for (int64_t k = 0; k < n; ++k) {
          const T v = from[k];
          if (v > best[k] || v != v || where[k] < 0) best[k] = v, where[k] = i;
        }
      });
      std::copy_n(best, n, y + to);
      if (indices) std::copy_n(where, n, indices + to);
    }
  });
}

template <class T>
void max_backward(const PoolPlan& p, const T* dy, const int64_t* indices, T* dx) {
  using Acc = accumulate_t<T>;
  const PoolAxis* a = p.axis;
  for_each_position(p, false, p.covering_cost(), [&](int64_t plane, int64_t i, int64_t z, int64_t y, int64_t x) {
    for (int64_t c = 0; c < p.inner; ++c) {
      Acc sum = 0;
      for_each_in(a[0].covering(z), a[1].covering(y), a[2].covering(x), a[1].out, a[2].out, [&](int64_t o) {
        const int64_t from = (plane * p.out + o) * p.inner + c;
        if (indices[from] == i) sum += static_cast<Acc>(dy[from]);
      });
      dx[(plane * p.in + i) * p.inner + c] = static_cast<T>(sum);
    }
  });
}

}  // namespace

int64_t pool_output_size(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil_mode) {
  const int64_t span = in + 2 * pad - dilation * (kernel - 1) - 1;
  if (span < 0 && !ceil_mode) return 0;
  const int64_t up = span + (ceil_mode ? stride - 1 : 0);
  int64_t out = (up < 0 ? 0 : up / stride + 1);
  if (ceil_mode && out > 0 && (out - 1) * stride >= in + pad) --out;
  return out;
}

void max_pool_forward(const PoolCall& call, const void* x, void* y, int64_t* indices) {
  DEFT_CHECK(call.dtype != DType::boolean, DTypeError, "max_pool: found bool, expected a number type; cast first");
  const PoolPlan p = make_plan(call, "max_pool", true);
  if (p.outer * p.out * p.inner == 0) return;
  if (!is_plain(p, call.dtype)) {
    return (p.inner == 1 ? max_forward_nchw : max_forward_nhwc)(p, call.dtype, x, y, indices);
  }
  dispatch_all(call.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) max_forward(p, static_cast<const T*>(x), static_cast<T*>(y), indices);
  });
}

void max_pool_backward(const PoolCall& call, const void* dy, const int64_t* indices, void* dx) {
  check_float(call, "max_pool_backward");
  const PoolPlan p = make_plan(call, "max_pool_backward", true);
  if (p.outer * p.in * p.inner == 0) return;
  if (p.inner == 1) return max_backward_nchw(p, call.dtype, dy, indices, dx);
  if (!is_plain(p, call.dtype)) return max_backward_nhwc(p, call.dtype, dy, indices, dx);
  dispatch_floating(call.dtype,
                    [&]<class T>() { max_backward(p, static_cast<const T*>(dy), indices, static_cast<T*>(dx)); });
}

void avg_pool_forward(const PoolCall& call, const void* x, void* y) {
  check_float(call, "avg_pool");
  PoolPlan p = make_plan(call, "avg_pool", false);
  if (p.outer * p.out * p.inner == 0) return;
  if (p.inner > 1) return avg_forward_nhwc(p, call.dtype, x, y);
  merge_global(p);
  avg_forward_nchw(p, call.dtype, x, y);
}

void avg_pool_backward(const PoolCall& call, const void* dy, void* dx) {
  check_float(call, "avg_pool_backward");
  const PoolPlan p = make_plan(call, "avg_pool_backward", false);
  if (p.outer * p.in * p.inner == 0) return;
  if (std::all_of(p.axis, p.axis + 3, is_global)) {
    return dispatch_floating(call.dtype,
                             [&]<class S>() { spread_mean(p, static_cast<const S*>(dy), static_cast<S*>(dx)); });
  }
  (p.inner == 1 ? avg_backward_nchw : avg_backward_nhwc)(p, call.dtype, dy, dx);
}

}  // namespace deft::cpu
