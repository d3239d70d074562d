#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/gemm/epilogue.h"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;  // the kernel loops from there on

// The share of a normal distribution below x to 2e-5 of itself, which 16-bit results do not show: with t = 1 / (1 +
// 0.35 |x|), a polynomial in t fitted to log2 of the tail over t times its bell curve.
__device__ __forceinline__ float share_below_rough(float x) {
  float z = fabsf(x), t = __fdividef(1.0f, fmaf(0.35f, z, 1.0f));
  float p = fmaf(0.3329833150f, t, -1.0500476360f);
  p = fmaf(p, t, 0.7375743389f);
  p = fmaf(p, t, 0.3480318785f);
  p = fmaf(p, t, 1.4736783504f);
  p = fmaf(p, t, -2.8422110081f);
  float tail = t * exp2f(fmaf(-0.72134752f * z, z, p));
  return x < 0 ? tail : 1 - tail;
}

template <class T, class Acc>
__device__ __forceinline__ Acc share_below(Acc x) {
  if constexpr (is_half_v<T>)
    return share_below_rough(x);
  else
    return Acc(0.5) * erfc(x * Acc(-0.70710678118654752440));
}

template <class Acc>
__device__ __forceinline__ Acc sigmoid_of(Acc x) {
  return Acc(1) / (Acc(1) + exp(-x));
}

// Over all values at once: one branch, not one per value.
template <class T, class Acc, int N>
__device__ __forceinline__ void activate(Activation a, Acc (&v)[N]) {
  auto each = [&](auto f) {
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = f(v[j]);
  };
  switch (a) {
    case Activation::relu:
      return each([](Acc x) { return x < 0 ? Acc(0) : x; });  // NaN stays
    case Activation::gelu:
      return each([](Acc x) { return x * share_below<T>(x); });
    case Activation::gelu_tanh:
      return each(
          [](Acc x) { return x * sigmoid_of(Acc(2 * 0.79788456080286535588) * x * (Acc(1) + Acc(0.044715) * x * x)); });
    case Activation::silu:
      return each([](Acc x) { return x * sigmoid_of(x); });
    case Activation::sigmoid:
      return each([](Acc x) { return sigmoid_of(x); });
    case Activation::tanh:
      return each([](Acc x) { return tanh(x); });
    default:
      return;
  }
}

// One thread per N neighbouring elements, which share a channel (`inner` > 1) or have neighbouring ones.
template <class T, int N, class Index>
__global__ void __launch_bounds__(kThreads)
    epilogue_kernel(T* y, const T* bias, const T* residual, Activation activation, Index packs, Index channels,
                    Index inner) {
  using Acc = accumulate_t<T>;
  auto* data = reinterpret_cast<Pack<T, N>*>(y);
  auto* more = reinterpret_cast<const Pack<T, N>*>(residual);
  Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += step) {
    Pack<T, N> v = data[i], r{};
    if (more) r = more[i];
    Acc sum[N];
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = convert<Acc>(v.v[j]);
    if (bias) {
      Index c = i * N / inner % channels;
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += convert<Acc>(bias[inner == 1 ? c + j : c]);
    }
    if (more) {
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += convert<Acc>(r.v[j]);
    }
    activate<T>(activation, sum);
#pragma unroll
    for (int j = 0; j < N; ++j) v.v[j] = convert<T>(sum[j]);
    data[i] = v;
  }
}

template <class T, int N>
void launch(Encoder& e, const EpilogueCall& call, int64_t total, int64_t inner) {
  auto* y = static_cast<T*>(call.y);
  auto *bias = static_cast<const T*>(call.bias), *residual = static_cast<const T*>(call.residual);
  int64_t packs = total / N;
  dim3 blocks(e.blocks_for(packs, kThreads, kMaxBlocks));
  if (total < (int64_t{1} << 31))  // sums of an index and a step stay below 2^32
    e.launch(&epilogue_kernel<T, N, uint32_t>, blocks, dim3(kThreads), 0, y, bias, residual, call.activation, packs,
             call.channels, inner);
  else
    e.launch(&epilogue_kernel<T, N, int64_t>, blocks, dim3(kThreads), 0, y, bias, residual, call.activation, packs,
             call.channels, inner);
}

}  // namespace

void run_epilogue(Encoder& e, const EpilogueCall& call) {
  int64_t total = call.n * call.channels * call.positions;
  if (total == 0 || (!call.bias && !call.residual && call.activation == Activation::none)) return;
  int64_t inner = call.channels_last ? 1 : call.positions;
  auto at = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  dispatch_floating(call.dtype, [&]<class T>() {
    constexpr int kPack = 16 / sizeof(T);
    // Neighbours of a pack must be in one row of positions or, where inner is 1, in one row of channels.
    bool even = call.bias ? (inner == 1 ? call.channels : inner) % kPack == 0 : total % kPack == 0;
    if (even && (at(call.y) | at(call.residual)) % 16 == 0)
      launch<T, kPack>(e, call, total, inner);
    else
      launch<T, 1>(e, call, total, inner);
  });
}

}  // namespace deft::cuda
