// Note [Deeper image]: y[o] = sum over t of w[t] x[2 o + t - pad]. With t = 2 u + a this is a sum over u of stride 1 on
// pixels that hold both x[2 j + a - pad], a = 0 and 1; a tap behind the last one is 0. The same in the other dim.
// Channels are in the order (a of h, a of w, channel), filled up with zeros to 16 bytes.
#include "kernels/cuda/conv/conv_deepen.h"
#include "kernels/cuda/elementwise/convert.cuh"
#include "runtime/numerics.h"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kMaxChannels = 4;

constexpr int deep_channels(int channels, int element_bytes) {
  int pack = 16 / element_bytes;
  return (4 * channels + pack - 1) / pack * pack;
}

struct Sizes {
  int in_h, in_w, pad_h, pad_w, kernel_h, kernel_w;
  int deep_h, deep_w, taps_h, taps_w;
  unsigned pixels, weights;  // of the deeper image; elements of the weight
  unsigned image_blocks;     // the blocks behind them write the weight
  int64_t xs[4], ws[4];
};

// One thread per pixel of the deeper image.
template <class T, int C>
__device__ __forceinline__ void write_pixel(const Sizes& s, const T* __restrict__ x, T* __restrict__ deep, unsigned i) {
  constexpr int kDeep = deep_channels(C, sizeof(T)), kPack = 16 / sizeof(T);
  auto width = static_cast<unsigned>(s.deep_w), height = static_cast<unsigned>(s.deep_h);
  unsigned row = i / width;
  int left = 2 * static_cast<int>(i % width) - s.pad_w, top = 2 * static_cast<int>(row % height) - s.pad_h;
  const T* image = x + row / height * s.xs[0];
  T v[kDeep] = {};
#pragma unroll
  for (int a = 0; a < 4; ++a) {
    int p = top + a / 2, q = left + a % 2;
    bool inside = p >= 0 && p < s.in_h && q >= 0 && q < s.in_w;
    const T* from = image + p * s.xs[2] + q * s.xs[3];
#pragma unroll
    for (int c = 0; c < C; ++c) v[a * C + c] = inside ? from[c * s.xs[1]] : T(0);
  }
  auto* to = reinterpret_cast<Pack<T>*>(deep + static_cast<int64_t>(i) * kDeep);
#pragma unroll
  for (int k = 0; k < kDeep / kPack; ++k) {
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < kPack; ++j) pack.v[j] = v[k * kPack + j];
    to[k] = pack;
  }
}

// One thread per element [c_out, u of h, u of w, deep channel].
template <class T, int C>
__device__ __forceinline__ void write_weight(const Sizes& s, const T* w, T* deep, unsigned i) {
  constexpr unsigned kDeep = deep_channels(C, sizeof(T));
  auto c = static_cast<int>(i % kDeep), tap = static_cast<int>(i / kDeep);
  int u_w = tap % s.taps_w, u_h = tap / s.taps_w % s.taps_h, outer = tap / s.taps_w / s.taps_h;
  int t_h = 2 * u_h + c / (2 * C), t_w = 2 * u_w + c / C % 2;
  bool there = c < 4 * C && t_h < s.kernel_h && t_w < s.kernel_w;
  deep[i] = there ? w[outer * s.ws[0] + c % C * s.ws[1] + t_h * s.ws[2] + t_w * s.ws[3]] : T(0);
}

template <class T, int C>
__global__ void __launch_bounds__(kThreads) deepen_kernel(Sizes s, const T* x, const T* w, T* deep_x, T* deep_w) {
  if (blockIdx.x < s.image_blocks) {
    unsigned i = blockIdx.x * kThreads + threadIdx.x;
    if (i < s.pixels) write_pixel<T, C>(s, x, deep_x, i);
  } else {
    unsigned i = (blockIdx.x - s.image_blocks) * kThreads + threadIdx.x;
    if (i < s.weights) write_weight<T, C>(s, w, deep_w, i);
  }
}

int64_t pixels_of(const ConvCall& deep) { return deep.n * deep.in[0] * deep.in[1]; }
int64_t weights_of(const ConvCall& deep) { return deep.c_out * deep.kernel[0] * deep.kernel[1] * deep.c_in; }

}  // namespace

bool can_deepen(const ConvCall& c) {
  bool type = size_of(c.dtype) == 2 || (c.dtype == DType::f32 && allow_tf32());
  if (!type || c.spatial != 2 || c.groups != 1 || c.c_in > kMaxChannels || !c.channels_last) return false;
  for (int d = 0; d < 2; ++d) {
    bool small = c.in[d] < (1 << 24) && c.pad[d] < (1 << 24) && c.kernel[d] < (1 << 24);
    if (c.stride[d] != 2 || c.dilation[d] != 1 || c.kernel[d] < 3 || !small) return false;
  }
  ConvCall deep = deepened(c);
  return c.n > 0 && pixels_of(deep) * deep.c_in < INT32_MAX && weights_of(deep) < INT32_MAX;
}

ConvCall deepened(const ConvCall& call) {
  ConvCall deep = call;
  deep.c_in = deep_channels(static_cast<int>(call.c_in), static_cast<int>(size_of(call.dtype)));
  for (int d = 0; d < 2; ++d) {
    deep.kernel[d] = (call.kernel[d] + 1) / 2;
    deep.in[d] = call.out[d] + deep.kernel[d] - 1;
    deep.stride[d] = 1, deep.pad[d] = 0;
  }
  deep.w_channels_last = true;
  return deep;
}

void deepen(Encoder& e, const ConvCall& call, const int64_t* x_strides, const int64_t* w_strides,
            const ConvCall& deep) {
  Sizes s{};
  s.in_h = static_cast<int>(call.in[0]), s.in_w = static_cast<int>(call.in[1]);
  s.pad_h = static_cast<int>(call.pad[0]), s.pad_w = static_cast<int>(call.pad[1]);
  s.kernel_h = static_cast<int>(call.kernel[0]), s.kernel_w = static_cast<int>(call.kernel[1]);
  s.deep_h = static_cast<int>(deep.in[0]), s.deep_w = static_cast<int>(deep.in[1]);
  s.taps_h = static_cast<int>(deep.kernel[0]), s.taps_w = static_cast<int>(deep.kernel[1]);
  s.pixels = static_cast<unsigned>(pixels_of(deep)), s.weights = static_cast<unsigned>(weights_of(deep));
  s.image_blocks = Encoder::blocks_for(s.pixels, kThreads);
  for (int i = 0; i < 4; ++i) s.xs[i] = x_strides[i], s.ws[i] = w_strides[i];
  dim3 blocks(s.image_blocks + Encoder::blocks_for(s.weights, kThreads));
  auto run = [&]<class T, int C>() {
    e.launch(&deepen_kernel<T, C>, blocks, dim3(kThreads), 0, s, static_cast<const T*>(call.x),
             static_cast<const T*>(call.w), static_cast<T*>(deep.x), static_cast<T*>(deep.w));
  };
  auto of_type = [&]<class T>() {
    switch (call.c_in) {
      case 1:
        return run.template operator()<T, 1>();
      case 2:
        return run.template operator()<T, 2>();
      case 3:
        return run.template operator()<T, 3>();
      default:
        return run.template operator()<T, 4>();
    }
  };
  size_of(call.dtype) == 2 ? of_type.template operator()<uint16_t>() : of_type.template operator()<uint32_t>();
}

}  // namespace deft::cuda
