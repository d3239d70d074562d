#include "kernels/cuda/conv/conv_direct.h"
#include "kernels/cuda/elementwise/convert.cuh"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // kernels loop from there on

// Sizes with three spatial dims; strides of x, w and y in elements: outer, channel, three dims.
struct Shape5 {
  int64_t n, c_in, c_out, groups, in[3], kernel[3], out[3], stride[3], pad[3], dilation[3];
  int64_t xs[5], ws[5], ys[5];
  __device__ int64_t in_group() const { return c_in / groups; }
  __device__ int64_t out_group() const { return c_out / groups; }
};

void set_strides(int64_t (&s)[5], int64_t channels, const int64_t* sizes, bool channels_last) {
  int64_t step = channels_last ? channels : 1;
  for (int d = 2; d >= 0; --d) s[2 + d] = step, step *= sizes[d];
  s[1] = channels_last ? 1 : step;
  s[0] = sizes[0] * sizes[1] * sizes[2] * channels;
}

Shape5 shape_of(const ConvCall& call) {
  ConvCall c = with_three_dims(call);
  Shape5 s{};
  s.n = c.n, s.c_in = c.c_in, s.c_out = c.c_out, s.groups = c.groups;
  for (int d = 0; d < 3; ++d) {
    s.in[d] = c.in[d], s.kernel[d] = c.kernel[d], s.out[d] = c.out[d];
    s.stride[d] = c.stride[d], s.pad[d] = c.pad[d], s.dilation[d] = c.dilation[d];
  }
  set_strides(s.xs, c.c_in, c.in, c.channels_last);
  set_strides(s.ys, c.c_out, c.out, c.channels_last);
  set_strides(s.ws, c.c_in / c.groups, c.kernel, c.w_channels_last);
  return s;
}

// Element number `i` of [outer, channels, sizes...] in that order.
struct Place {
  int64_t outer, channel, p[3];
  __device__ Place(int64_t i, int64_t channels, const int64_t* sizes) {
    for (int d = 2; d >= 0; --d) p[d] = i % sizes[d], i /= sizes[d];
    channel = i % channels;
    outer = i / channels;
  }
  __device__ int64_t offset(const int64_t* strides) const {
    return outer * strides[0] + channel * strides[1] + p[0] * strides[2] + p[1] * strides[3] + p[2] * strides[4];
  }
};

__device__ int64_t first_index() { return blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; }
__device__ int64_t index_step() { return gridDim.x * static_cast<int64_t>(blockDim.x); }

template <class T>
__global__ void forward_kernel(Shape5 s, const T* x, const T* w, const T* bias, T* y, int64_t total) {
  using Acc = accumulate_t<T>;
  for (int64_t i = first_index(); i < total; i += index_step()) {
    Place at(i, s.c_out, s.out);
    const T* from = x + at.outer * s.xs[0] + at.channel / s.out_group() * s.in_group() * s.xs[1];
    const T* taps = w + at.channel * s.ws[0];
    Acc sum = 0;
    for (int64_t k0 = 0; k0 < s.kernel[0]; ++k0) {
      int64_t p0 = at.p[0] * s.stride[0] - s.pad[0] + k0 * s.dilation[0];
      if (p0 < 0 || p0 >= s.in[0]) continue;
      for (int64_t k1 = 0; k1 < s.kernel[1]; ++k1) {
        int64_t p1 = at.p[1] * s.stride[1] - s.pad[1] + k1 * s.dilation[1];
        if (p1 < 0 || p1 >= s.in[1]) continue;
        for (int64_t k2 = 0; k2 < s.kernel[2]; ++k2) {
          int64_t p2 = at.p[2] * s.stride[2] - s.pad[2] + k2 * s.dilation[2];
          if (p2 < 0 || p2 >= s.in[2]) continue;
          const T* xp = from + p0 * s.xs[2] + p1 * s.xs[3] + p2 * s.xs[4];
          const T* wp = taps + k0 * s.ws[2] + k1 * s.ws[3] + k2 * s.ws[4];
          for (int64_t c = 0; c < s.in_group(); ++c)
            sum += convert<Acc>(xp[c * s.xs[1]]) * convert<Acc>(wp[c * s.ws[1]]);
        }
      }
    }
    if (bias) sum += convert<Acc>(bias[at.channel]);
    y[at.offset(s.ys)] = convert<T>(sum);
  }
}

// The output position whose tap k of dim d reads input position p; false if there is none.
__device__ __forceinline__ bool seen_from(const Shape5& s, int d, int64_t p, int64_t k, int64_t& q) {
  q = p + s.pad[d] - k * s.dilation[d];
  if (q < 0 || q % s.stride[d] != 0) return false;
  q /= s.stride[d];
  return q < s.out[d];
}

template <class T>
__global__ void backward_input_kernel(Shape5 s, const T* dy, const T* w, const T* bias, T* dx, int64_t total) {
  using Acc = accumulate_t<T>;
  for (int64_t i = first_index(); i < total; i += index_step()) {
    Place at(i, s.c_in, s.in);
    int64_t first = at.channel / s.in_group() * s.out_group();
    const T* from = dy + at.outer * s.ys[0] + first * s.ys[1];
    const T* taps = w + first * s.ws[0] + at.channel % s.in_group() * s.ws[1];
    Acc sum = 0;
    for (int64_t k0 = 0; k0 < s.kernel[0]; ++k0) {
      int64_t q0, q1, q2;
      if (!seen_from(s, 0, at.p[0], k0, q0)) continue;
      for (int64_t k1 = 0; k1 < s.kernel[1]; ++k1) {
        if (!seen_from(s, 1, at.p[1], k1, q1)) continue;
        for (int64_t k2 = 0; k2 < s.kernel[2]; ++k2) {
          if (!seen_from(s, 2, at.p[2], k2, q2)) continue;
          const T* yp = from + q0 * s.ys[2] + q1 * s.ys[3] + q2 * s.ys[4];
          const T* wp = taps + k0 * s.ws[2] + k1 * s.ws[3] + k2 * s.ws[4];
          for (int64_t c = 0; c < s.out_group(); ++c)
            sum += convert<Acc>(yp[c * s.ys[1]]) * convert<Acc>(wp[c * s.ws[0]]);
        }
      }
    }
    if (bias) sum += convert<Acc>(bias[at.channel]);
    dx[at.offset(s.xs)] = convert<T>(sum);
  }
}

// A block sums up one value of the weight's gradient.
template <class T>
__global__ void __launch_bounds__(kThreads)
    backward_weight_kernel(Shape5 s, const T* x, const T* dy, T* dw, int64_t total) {
  using Acc = accumulate_t<T>;
  __shared__ Acc partial[kThreads];
  int64_t pixels = s.n * s.out[0] * s.out[1] * s.out[2];
  for (int64_t i = blockIdx.x; i < total; i += gridDim.x) {
    Place at(i, s.in_group(), s.kernel);  // outer: the output channel
    int64_t c_in = at.outer / s.out_group() * s.in_group() + at.channel;
    Acc sum = 0;
    for (int64_t j = threadIdx.x; j < pixels; j += kThreads) {
      Place q(j, 1, s.out);
      int64_t p[3];
      bool inside = true;
      for (int d = 0; d < 3; ++d) {
        p[d] = q.p[d] * s.stride[d] - s.pad[d] + at.p[d] * s.dilation[d];
        inside = inside && p[d] >= 0 && p[d] < s.in[d];
      }
      if (!inside) continue;
      T from = x[q.outer * s.xs[0] + c_in * s.xs[1] + p[0] * s.xs[2] + p[1] * s.xs[3] + p[2] * s.xs[4]];
      T grad = dy[q.outer * s.ys[0] + at.outer * s.ys[1] + q.p[0] * s.ys[2] + q.p[1] * s.ys[3] + q.p[2] * s.ys[4]];
      sum += convert<Acc>(from) * convert<Acc>(grad);
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) dw[at.offset(s.ws)] = convert<T>(partial[0]);
    __syncthreads();
  }
}

}  // namespace

void conv_direct(Encoder& e, ConvKind kind, const ConvCall& call) {
  Shape5 s = shape_of(call);
  int64_t x_total = s.n * s.xs[0], y_total = s.n * s.ys[0], w_total = s.c_out * s.ws[0];
  dispatch_floating(call.dtype, [&]<class T>() {
    auto *x = static_cast<T*>(call.x), *w = static_cast<T*>(call.w), *y = static_cast<T*>(call.y);
    auto* bias = static_cast<const T*>(call.bias);
    dim3 threads(kThreads);
    if (kind == ConvKind::forward && y_total > 0)
      e.launch(&forward_kernel<T>, dim3(e.blocks_for(y_total, kThreads, kMaxBlocks)), threads, 0, s, x, w, bias, y,
               y_total);
    if (kind == ConvKind::backward_input && x_total > 0)
      e.launch(&backward_input_kernel<T>, dim3(e.blocks_for(x_total, kThreads, kMaxBlocks)), threads, 0, s, y, w, bias,
               x, x_total);
    if (kind == ConvKind::backward_weight && w_total > 0)
      e.launch(&backward_weight_kernel<T>, dim3(e.blocks_for(w_total, 1, kMaxBlocks)), threads, 0, s, x, y, w, w_total);
  });
}

}  // namespace deft::cuda
