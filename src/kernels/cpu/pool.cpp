#include "kernels/cpu/pool.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/gemm_internal.h"
#include "runtime/parallel.h"

namespace deft::cpu {
namespace {

constexpr int64_t kInner = 256;  // channels worked on at a time, on the stack
constexpr int64_t kGrain = 16 * 1024;
constexpr int64_t kRun = 128;  // elements added up before their sum goes to one in f64

struct Span {
  int64_t begin, end, step;
};

struct Axis {
  int64_t in, out, kernel, stride, pad, dilation;
  bool adaptive;

  // Input positions of window o.
  Span window(int64_t o) const {
    if (adaptive) return {o * in / out, ((o + 1) * in + out - 1) / out, 1};
    const int64_t start = o * stride - pad;
    const int64_t skip = start < 0 ? (-start + dilation - 1) / dilation * dilation : 0;
    return {start + skip, std::min(in, start + (kernel - 1) * dilation + 1), dilation};
  }
  // Windows that may hold input i.
  Span covering(int64_t i) const {
    if (adaptive) return {i * out / in, ((i + 1) * out + in - 1) / in, 1};
    const int64_t first = i + pad - (kernel - 1) * dilation;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, std::min(out, (i + pad) / stride + 1), 1};
  }
  // Length of window o with the padding it covers.
  int64_t padded_length(int64_t o) const {
    if (adaptive) return window(o).end - window(o).begin;
    const int64_t start = o * stride - pad;
    return std::min(start + kernel, in + pad) - start;
  }
};

struct Plan {
  Axis axis[3];
  int64_t outer, inner, in, out;
  bool include_pad;
  int64_t divisor;

  // Divisor of window o; 0 when it holds no input.
  double weight(const int64_t o[3]) const {
    int64_t length = 1, live = 1;
    for (int d = 0; d < 3; ++d) {
      const Span s = axis[d].window(o[d]);
      live *= std::max<int64_t>(0, s.end - s.begin);
      length *= axis[d].padded_length(o[d]);
    }
    if (live == 0) return 0;
    return static_cast<double>(divisor ? divisor : include_pad ? length : live);
  }
};

Plan make_plan(const PoolCall& c, const char* op, bool dilated) {
  DEFT_CHECK(c.spatial >= 1 && c.spatial <= 3, ShapeError, "{}: found {} spatial dims, expected 1, 2 or 3", op,
             c.spatial);
  Plan p{};
  p.outer = c.outer, p.inner = c.inner, p.in = p.out = 1;
  p.include_pad = c.count_include_pad, p.divisor = c.divisor_override;
  const int shift = 3 - c.spatial;
  for (int d = 0; d < 3; ++d) {
    const int s = d - shift;
    Axis& a = p.axis[d];
    a = s < 0        ? Axis{1, 1, 1, 1, 0, 1, false}
        : c.adaptive ? Axis{c.in[s], c.out[s], 1, 1, 0, 1, true}
                     : Axis{c.in[s], c.out[s], c.kernel[s], c.stride[s], c.pad[s], dilated ? c.dilation[s] : 1, false};
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

template <class F>
void for_each_in(const Span s[3], const int64_t size1, const int64_t size2, F f) {
  for (int64_t z = s[0].begin; z < s[0].end; z += s[0].step) {
    for (int64_t y = s[1].begin; y < s[1].end; y += s[1].step) {
      for (int64_t x = s[2].begin; x < s[2].end; x += s[2].step) f((z * size1 + y) * size2 + x, z, y, x);
    }
  }
}

// Calls f(plane, position, coordinates, first channel, channels) for all positions of a grid, in parallel over lines.
template <class F>
void for_each_position(const Plan& p, bool outputs, int64_t cost, F f) {
  int64_t size[3];
  for (int d = 0; d < 3; ++d) size[d] = outputs ? p.axis[d].out : p.axis[d].in;
  const int64_t lines = p.outer * size[0] * size[1];
  if (lines * size[2] * p.inner == 0) return;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, size[2] * p.inner * cost));
  parallel_for(0, lines, grain, [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      int64_t at[3] = {l / size[1] % size[0], l % size[1], 0};
      for (; at[2] < size[2]; ++at[2]) {
        const int64_t position = (at[0] * size[1] + at[1]) * size[2] + at[2];
        for (int64_t c = 0; c < p.inner; c += kInner) {
          f(l / (size[0] * size[1]), position, static_cast<const int64_t*>(at), c, std::min(kInner, p.inner - c));
        }
      }
    }
  });
}
int64_t window_cost(const Plan& p) {
  int64_t cost = 1;
  for (const Axis& a : p.axis) cost *= a.adaptive ? a.in / std::max<int64_t>(1, a.out) + 1 : a.kernel;
  return cost;
}
int64_t covering_cost(const Plan& p) {
  int64_t cost = 1;
  for (const Axis& a : p.axis) cost *= a.adaptive ? a.out / std::max<int64_t>(1, a.in) + 1 : a.kernel / a.stride + 1;
  return cost;
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
void max_forward(const Plan& p, const T* x, T* y, int64_t* indices) {
  for_each_position(p, true, window_cost(p), [&](int64_t plane, int64_t o, const int64_t* at, int64_t c, int64_t n) {
    T best[kInner];
    int64_t where[kInner];
    std::fill_n(best, n, lowest<T>());
    std::fill_n(where, n, int64_t{-1});
    const Span s[3] = {p.axis[0].window(at[0]), p.axis[1].window(at[1]), p.axis[2].window(at[2])};
    for_each_in(s, p.axis[1].in, p.axis[2].in, [&](int64_t i, int64_t, int64_t, int64_t) {
      const T* from = x + (plane * p.in + i) * p.inner + c;
      for (int64_t k = 0; k < n; ++k) {
        const T v = from[k];
        if (v > best[k] || v != v || where[k] < 0) best[k] = v, where[k] = i;
      }
    });
    const int64_t to = (plane * p.out + o) * p.inner + c;
    std::copy_n(best, n, y + to);
    if (indices) std::copy_n(where, n, indices + to);
  });
}

template <class T>
void max_backward(const Plan& p, const T* dy, const int64_t* indices, T* dx) {
  using Acc = accumulate_t<T>;
  for_each_position(p, false, covering_cost(p), [&](int64_t plane, int64_t i, const int64_t* at, int64_t c, int64_t n) {
    Acc sum[kInner];
    std::fill_n(sum, n, Acc(0));
    const Span s[3] = {p.axis[0].covering(at[0]), p.axis[1].covering(at[1]), p.axis[2].covering(at[2])};
    for_each_in(s, p.axis[1].out, p.axis[2].out, [&](int64_t o, int64_t, int64_t, int64_t) {
      const int64_t from = (plane * p.out + o) * p.inner + c;
      for (int64_t k = 0; k < n; ++k) {
        if (indices[from + k] == i) sum[k] += detail::widen(dy[from + k]);
      }
    });
    T* to = dx + (plane * p.in + i) * p.inner + c;
    for (int64_t k = 0; k < n; ++k) to[k] = static_cast<T>(sum[k]);
  });
}

template <class T>
void avg_forward(const Plan& p, const T* x, T* y) {
  using Acc = accumulate_t<T>;
  for_each_position(p, true, window_cost(p), [&](int64_t plane, int64_t o, const int64_t* at, int64_t c, int64_t n) {
    Acc sum[kInner];
    double total[kInner];  // set by the first run, which most windows do not reach
    std::fill_n(sum, n, Acc(0));
    const Span s[3] = {p.axis[0].window(at[0]), p.axis[1].window(at[1]), p.axis[2].window(at[2])};
    int64_t added = 0;
    for_each_in(s, p.axis[1].in, p.axis[2].in, [&](int64_t i, int64_t, int64_t, int64_t) {
      const T* from = x + (plane * p.in + i) * p.inner + c;
      for (int64_t k = 0; k < n; ++k) sum[k] += detail::widen(from[k]);
      if (++added % kRun != 0) return;
      for (int64_t k = 0; k < n; ++k) {
        total[k] = added == kRun ? sum[k] : total[k] + sum[k];
        sum[k] = 0;
      }
    });
    if (added >= kRun) {
      for (int64_t k = 0; k < n; ++k) sum[k] = static_cast<Acc>(total[k] + sum[k]);
    }
    const Acc divisor = static_cast<Acc>(p.weight(at));
    T* to = y + (plane * p.out + o) * p.inner + c;
    for (int64_t k = 0; k < n; ++k) to[k] = static_cast<T>(divisor == 0 ? Acc(0) : sum[k] / divisor);
  });
}

template <class T>
void avg_backward(const Plan& p, const T* dy, T* dx) {
  using Acc = accumulate_t<T>;
  for_each_position(p, false, covering_cost(p), [&](int64_t plane, int64_t i, const int64_t* at, int64_t c, int64_t n) {
    Acc sum[kInner];
    std::fill_n(sum, n, Acc(0));
    const Span s[3] = {p.axis[0].covering(at[0]), p.axis[1].covering(at[1]), p.axis[2].covering(at[2])};
    for_each_in(s, p.axis[1].out, p.axis[2].out, [&](int64_t o, int64_t z, int64_t r, int64_t q) {
      const int64_t window[3] = {z, r, q};
      const Acc divisor = static_cast<Acc>(p.weight(window));
      if (divisor == 0) return;
      const T* from = dy + (plane * p.out + o) * p.inner + c;
      for (int64_t k = 0; k < n; ++k) sum[k] += detail::widen(from[k]) / divisor;
    });
    T* to = dx + (plane * p.in + i) * p.inner + c;
    for (int64_t k = 0; k < n; ++k) to[k] = static_cast<T>(sum[k]);
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
  const Plan p = make_plan(call, "max_pool", true);
  dispatch_all(call.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) max_forward(p, static_cast<const T*>(x), static_cast<T*>(y), indices);
  });
}

void max_pool_backward(const PoolCall& call, const void* dy, const int64_t* indices, void* dx) {
  check_float(call, "max_pool_backward");
  const Plan p = make_plan(call, "max_pool_backward", true);
  dispatch_floating(call.dtype,
                    [&]<class T>() { max_backward(p, static_cast<const T*>(dy), indices, static_cast<T*>(dx)); });
}

void avg_pool_forward(const PoolCall& call, const void* x, void* y) {
  check_float(call, "avg_pool");
  const Plan p = make_plan(call, "avg_pool", false);
  dispatch_floating(call.dtype, [&]<class T>() { avg_forward(p, static_cast<const T*>(x), static_cast<T*>(y)); });
}

void avg_pool_backward(const PoolCall& call, const void* dy, void* dx) {
  check_float(call, "avg_pool_backward");
  const Plan p = make_plan(call, "avg_pool_backward", false);
  dispatch_floating(call.dtype, [&]<class T>() { avg_backward(p, static_cast<const T*>(dy), static_cast<T*>(dx)); });
}

}  // namespace deft::cpu
