#include <cmath>

#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/image/resize.h"
#include "kernels/cuda/index/index_math.cuh"

namespace deft::cuda {
namespace {

// One axis. Output o reads around position step * (o + shift) - back of the input. R is float, or double for f64.
template <class R>
struct Axis {
  int64_t in = 1, out = 1;
  R step = 0, shift = 0, back = 0;
  bool identity = true;  // an axis that is not there: weight 1, also where the value is infinite
};

template <class R>
Axis<R> axis_of(const InterpolateCall& c, int k) {
  Axis<R> a;
  const int d = k - (3 - c.spatial);
  if (d < 0) return a;
  a.identity = false;
  a.in = c.in[d];
  a.out = c.out[d];
  if (c.align_corners) {
    a.step = a.out > 1 ? static_cast<R>(a.in - 1) / static_cast<R>(a.out - 1) : R(0);
    return a;
  }
  a.step = c.scale[d] > 0 ? static_cast<R>(1.0 / c.scale[d]) : static_cast<R>(a.in) / static_cast<R>(a.out);
  if (c.kind != InterpolateKind::nearest) a.shift = R(0.5);
  if (c.kind == InterpolateKind::linear || c.kind == InterpolateKind::cubic) a.back = R(0.5);
  return a;
}

template <class R>
__device__ __forceinline__ int64_t nearest_source(const Axis<R>& a, int64_t o) {
  const R at = (static_cast<R>(o) + a.shift) * a.step;
  return max(int64_t{0}, min(static_cast<int64_t>(floor(at)), a.in - 1));
}

enum Mode : int { kNearest = 1, kLinear = 2, kCubic = 4 };  // the number of taps

// The taps of output o.
template <int mode, class R>
__device__ __forceinline__ void taps_of(const Axis<R>& a, int64_t o, int64_t (&index)[mode], R (&weight)[mode]) {
  if constexpr (mode == kNearest) {
    index[0] = nearest_source(a, o);
    weight[0] = 1;
  } else if constexpr (mode == kLinear) {
    const R at = max(R(0), a.step * (static_cast<R>(o) + a.shift) - a.back);
    const int64_t low = min(static_cast<int64_t>(floor(at)), a.in - 1);
    const R w = max(R(0), min(at - static_cast<R>(low), R(1)));
    index[0] = low;
    index[1] = min(low + 1, a.in - 1);
    weight[0] = R(1) - w;
    weight[1] = w;
  } else {
    constexpr R kA = R(-0.75);
    const R at = a.step * (static_cast<R>(o) + a.shift) - a.back, low = floor(at), t = at - low;
    const auto near = [](R x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
    const auto far = [](R x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
    weight[0] = far(t + 1);
    weight[1] = near(t);
    weight[2] = near(1 - t);
    weight[3] = far(2 - t);
#pragma unroll
    for (int k = 0; k < 4; ++k) index[k] = max(int64_t{0}, min(static_cast<int64_t>(low) - 1 + k, a.in - 1));
  }
}

template <class R>
struct Grid {
  Axis<R> axis[3];
  Divider inner, size[3];  // of what is written
  int64_t total;
};

struct Cell {
  int64_t outer, at[3], inner;
};
template <class R>
__device__ __forceinline__ Cell cell_of(const Grid<R>& g, int64_t i) {
  Cell c;
  i = g.inner.split(i, c.inner);
#pragma unroll
  for (int k = 2; k >= 0; --k) i = g.size[k].split(i, c.at[k]);
  c.outer = i;
  return c;
}

// One bit copy per value.
template <class T>
__global__ void nearest_kernel(Grid<float> g, const T* x, T* y) {
  int64_t i = thread_number();
  if (i >= g.total) return;
  const Cell c = cell_of(g, i);
  int64_t from = c.outer;
#pragma unroll
  for (int k = 0; k < 3; ++k)
    from = from * g.axis[k].in + (g.axis[k].identity ? 0 : nearest_source(g.axis[k], c.at[k]));
  y[i] = x[from * g.inner.size + c.inner];
}

template <class T, int mode>
__global__ void forward_kernel(Grid<accumulate_t<T>> g, const T* x, T* y) {
  using R = accumulate_t<T>;
  int64_t i = thread_number();
  if (i >= g.total) return;
  const Cell c = cell_of(g, i);
  int64_t index[3][mode];
  R weight[3][mode];
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    taps_of<mode>(g.axis[k], c.at[k], index[k], weight[k]);
    if (g.axis[k].identity) index[k][0] = 0, weight[k][0] = 1;
  }
  constexpr int kDepth = mode == kCubic ? 1 : mode;  // cubic is for two axes
  R sum = 0;
#pragma unroll
  for (int a = 0; a < kDepth; ++a) {
    if (a > 0 && g.axis[0].identity) continue;
#pragma unroll
    for (int b = 0; b < mode; ++b) {
      if (b > 0 && g.axis[1].identity) continue;
      const int64_t row = ((c.outer * g.axis[0].in + index[0][a]) * g.axis[1].in + index[1][b]) * g.axis[2].in;
      R line = 0;
#pragma unroll
      for (int d = 0; d < mode; ++d) line += weight[2][d] * convert<R>(x[(row + index[2][d]) * g.inner.size + c.inner]);
      sum += weight[0][a] * weight[1][b] * line;
    }
  }
  y[i] = convert<T>(sum);
}

// The outputs that may read input i: those whose position lies within `radius` of it, and a few more for rounding.
// Positions beyond the ends read the ends.
template <class R>
__device__ __forceinline__ void readers(const Axis<R>& a, int64_t i, double radius, int64_t& begin, int64_t& end) {
  begin = 0;
  end = a.out;
  if (a.identity || a.step <= 0) return;
  const double slack = radius + 1e-6 * static_cast<double>(a.in), step = a.step;
  const auto output_at = [&](double at) {
    return (at + static_cast<double>(a.back)) / step - static_cast<double>(a.shift);
  };
  const double low = floor(output_at(static_cast<double>(i) - slack)) - 1;
  const double high = ceil(output_at(static_cast<double>(i) + slack)) + 2;
  if (i > 0 && low > 0) begin = static_cast<int64_t>(low);
  if (i < a.in - 1 && high < static_cast<double>(a.out)) end = static_cast<int64_t>(high);
}

// The weight with which output o reads input i; false if it does not.
template <int mode, class R>
__device__ __forceinline__ bool weight_of(const Axis<R>& a, int64_t o, int64_t i, R& weight) {
  weight = 1;
  if (a.identity) return true;
  int64_t index[mode];
  R w[mode];
  taps_of<mode>(a, o, index, w);
  bool any = false;
  weight = 0;
#pragma unroll
  for (int k = 0; k < mode; ++k) {
    if (index[k] != i) continue;
    any = true;
    weight += w[k];
  }
  return any;
}

// P: what positions are computed in. Nearest takes float whatever the dtype, as the forward pass does.
template <class T, int mode, class P>
__global__ void backward_kernel(Grid<P> g, const T* dy, T* dx) {
  using R = accumulate_t<T>;
  int64_t i = thread_number();
  if (i >= g.total) return;
  const Cell c = cell_of(g, i);
  constexpr double kRadius = mode == kCubic ? 2 : 1;
  int64_t begin[3], end[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) readers(g.axis[k], c.at[k], kRadius, begin[k], end[k]);
  R sum = 0;
  P wz, wy, wx;
  for (int64_t z = begin[0]; z < end[0]; ++z) {
    if (!weight_of<mode>(g.axis[0], z, c.at[0], wz)) continue;
    for (int64_t y = begin[1]; y < end[1]; ++y) {
      if (!weight_of<mode>(g.axis[1], y, c.at[1], wy)) continue;
      const int64_t row = ((c.outer * g.axis[0].out + z) * g.axis[1].out + y) * g.axis[2].out;
      R line = 0;
      for (int64_t o = begin[2]; o < end[2]; ++o)
        if (weight_of<mode>(g.axis[2], o, c.at[2], wx))
          line += static_cast<R>(wx) * convert<R>(dy[(row + o) * g.inner.size + c.inner]);
      sum += static_cast<R>(wz) * static_cast<R>(wy) * line;
    }
  }
  dx[i] = convert<T>(sum);
}

template <class R>
Grid<R> grid_of(const InterpolateCall& c, bool backward) {
  Grid<R> g;
  g.total = c.outer * c.inner;
  for (int k = 0; k < 3; ++k) {
    g.axis[k] = axis_of<R>(c, k);
    g.total *= backward ? g.axis[k].in : g.axis[k].out;
  }
  g.inner = Divider(c.inner, g.total);
  for (int k = 0; k < 3; ++k) g.size[k] = Divider(backward ? g.axis[k].in : g.axis[k].out, g.total);
  return g;
}

bool is_nearest(const InterpolateCall& c) {
  return c.kind == InterpolateKind::nearest || c.kind == InterpolateKind::nearest_exact;
}

}  // namespace

void interpolate_forward(Encoder& e, const InterpolateCall& c, const void* x, void* y) {
  if (is_nearest(c)) {
    const Grid<float> g = grid_of<float>(c, false);
    if (g.total == 0) return;
    return dispatch_bits(c.dtype, [&]<class T>() {
      e.launch(&nearest_kernel<T>, Encoder::blocks_for(g.total), 256, 0, g, static_cast<const T*>(x),
               static_cast<T*>(y));
    });
  }
  dispatch_floating(c.dtype, [&]<class T>() {
    const auto g = grid_of<accumulate_t<T>>(c, false);
    if (g.total == 0) return;
    auto kernel = c.kind == InterpolateKind::linear ? &forward_kernel<T, kLinear> : &forward_kernel<T, kCubic>;
    e.launch(kernel, Encoder::blocks_for(g.total), 256, 0, g, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void interpolate_backward(Encoder& e, const InterpolateCall& c, const void* dy, void* dx) {
  dispatch_floating(c.dtype, [&]<class T>() {
    auto run = [&]<class P>(auto kernel, const Grid<P>& g) {
      if (g.total == 0) return;
      e.launch(kernel, Encoder::blocks_for(g.total), 256, 0, g, static_cast<const T*>(dy), static_cast<T*>(dx));
    };
    using R = accumulate_t<T>;
    if (is_nearest(c))
      run(&backward_kernel<T, kNearest, float>, grid_of<float>(c, true));
    else if (c.kind == InterpolateKind::linear)
      run(&backward_kernel<T, kLinear, R>, grid_of<R>(c, true));
    else
      run(&backward_kernel<T, kCubic, R>, grid_of<R>(c, true));
  });
}

}  // namespace deft::cuda
