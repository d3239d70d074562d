#include "kernels/cuda/norm/softmax_columns.cuh"

namespace deft::cuda {
namespace {

template <class T>
using A = accumulate_t<T>;

// The term that is summed over a row, and the gradient of an element from the sum.
template <class T>
__device__ __forceinline__ A<T> term(A<T> g, A<T> y, bool log_result) {
  return log_result ? g : g * y;
}
template <class T>
__device__ __forceinline__ A<T> slope(A<T> g, A<T> y, A<T> sum, bool log_result) {
  if (!log_result) return y * (g - sum);
  if constexpr (is_half_v<T>)
    return g - __expf(y) * sum;
  else
    return g - exp(y) * sum;
}

// A row of both in registers: read once.
template <class T, int kVec, int kItems, int kLanes>
__global__ void __launch_bounds__(kMaxRowThreads<kLanes>)
    backward_tile(const T* g, const T* y, T* dx, int64_t rows, int n, bool log_result) {
  __shared__ A<T> sums[32];
  const RowPlace<kLanes> at;
  const int length = at.row < rows ? n : 0;
  Pack<T, kVec> gs[kItems], ys[kItems];
  load_packs(g + at.row * n, length, at.lane, at.threads, gs);
  load_packs(y + at.row * n, length, at.lane, at.threads, ys);
  A<T> sum = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
#pragma unroll
    for (int e = 0; e < kVec; ++e) sum += term<T>(convert<A<T>>(gs[k].v[e]), convert<A<T>>(ys[k].v[e]), log_result);
  }
  if constexpr (kLanes == 0)
    sum = block_sum(sum, sums);
  else
    sum = lanes_sum<kLanes>(sum);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = (k * at.threads + at.lane) * kVec;
    if (i >= length) continue;
    Pack<T, kVec> out;
#pragma unroll
    for (int e = 0; e < kVec; ++e)
      out.v[e] = convert<T>(slope<T>(convert<A<T>>(gs[k].v[e]), convert<A<T>>(ys[k].v[e]), sum, log_result));
    *reinterpret_cast<Pack<T, kVec>*>(dx + at.row * n + i) = out;
  }
}

// A row of any length: read twice.
template <class T, int kVec>
__global__ void __launch_bounds__(1024)
    backward_long(const T* g, const T* y, T* dx, int64_t rows, int64_t n, bool log_result) {
  constexpr int kElements = sizeof(T) == 8 ? 4 : 8, kItems = kElements / kVec;
  __shared__ A<T> sums[32];
  const int step = blockDim.x * kElements;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    A<T> sum = 0, gs[kElements], ys[kElements];
    auto load = [&](int64_t i, int left) {
      load_row<T, kVec, kItems>(g + row * n + i, left, threadIdx.x, blockDim.x, A<T>(0), gs);
      load_row<T, kVec, kItems>(y + row * n + i, left, threadIdx.x, blockDim.x, A<T>(0), ys);
    };
    for (int64_t i = 0; i < n; i += step) {
      load(i, static_cast<int>(min(n - i, int64_t{step})));
      A<T> part = 0;
#pragma unroll
      for (int k = 0; k < kElements; ++k) part += term<T>(gs[k], ys[k], log_result);
      sum += part;
    }
    sum = block_sum(sum, sums);
    for (int64_t i = 0; i < n; i += step) {
      const int left = static_cast<int>(min(n - i, int64_t{step}));
      load(i, left);
#pragma unroll
      for (int k = 0; k < kElements; ++k) gs[k] = slope<T>(gs[k], ys[k], sum, log_result);
      store_row<T, kVec, kItems>(dx + row * n + i, left, threadIdx.x, blockDim.x, gs);
    }
  }
}

// Interleaved rows (inner > 1): read twice.
template <class T, int kVec>
__global__ void __launch_bounds__(kColumnThreads)
    backward_columns(const T* g, const T* y, T* dx, const ColumnShape s, bool log_result) {
  using P = Pack<T, kVec>;
  __shared__ A<T> sums[kColumnThreads * kVec];
  const ColumnPlace<kVec> at(s);
  constexpr int kItems = 4;
  P gs[kItems], ys[kItems];
  auto load = [&](int64_t i0) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int64_t i = i0 + k * at.height, p = at.first + i * s.inner;
      gs[k] = ys[k] = zero_pack<T, kVec>();
      if (i >= s.n) continue;
      gs[k] = *reinterpret_cast<const P*>(g + p);
      ys[k] = *reinterpret_cast<const P*>(y + p);
    }
  };
  A<T> sum[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) sum[e] = 0;
  for (int64_t i = at.y; at.live && i < s.n; i += kItems * at.height) {
    load(i);
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      A<T> part = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k)
        part += term<T>(convert<A<T>>(gs[k].v[e]), convert<A<T>>(ys[k].v[e]), log_result);
      sum[e] += part;
    }
  }
  if (at.height > 1) {
    const int width = 1 << s.log_x, t = threadIdx.x;
    for (int half = at.height; half > 0; half /= 2) {  // the first round only stores
      if (at.y < half) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          if (half < at.height) sum[e] += sums[(t + half * width) * kVec + e];
          sums[t * kVec + e] = sum[e];
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < kVec; ++e) sum[e] = sums[at.slot * kVec + e];
  }
  for (int64_t i0 = at.y; at.live && i0 < s.n; i0 += kItems * at.height) {
    load(i0);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int64_t i = i0 + k * at.height;
      if (i >= s.n) continue;
      P out;
#pragma unroll
      for (int e = 0; e < kVec; ++e)
        out.v[e] = convert<T>(slope<T>(convert<A<T>>(gs[k].v[e]), convert<A<T>>(ys[k].v[e]), sum[e], log_result));
      *reinterpret_cast<P*>(dx + at.first + i * s.inner) = out;
    }
  }
}

template <class T>
void run(Encoder& e, const RowsView& v, const T* g, const T* y, T* dx, bool log_result) {
  const bool aligned = all_aligned16(g, y, dx);
  if (v.inner > 1) {
    const bool packs = aligned && v.inner % kColumnVec<T> == 0;
    const ColumnShape s(v, packs ? kColumnVec<T> : 1);
    auto kernel = packs ? backward_columns<T, kColumnVec<T>> : backward_columns<T, 1>;
    return e.launch(kernel, s.blocks, kColumnThreads, 0, g, y, dx, s, log_result);
  }
  const bool done =
      dispatch_tile<T, 2>(v.outer, v.n, aligned, [&]<int kVec, int kItems, int kLanes>(unsigned blocks, int threads) {
        e.launch(backward_tile<T, kVec, kItems, kLanes>, blocks, threads, 0, g, y, dx, v.outer, v.n, log_result);
      });
  if (done) return;
  constexpr int kVec = 16 / sizeof(T);
  auto kernel = aligned && v.n % kVec == 0 ? backward_long<T, kVec> : backward_long<T, 1>;
  e.launch(kernel, Encoder::blocks_for(v.outer, 1), 1024, 0, g, y, dx, v.outer, v.n, log_result);
}

}  // namespace

void softmax_backward(Encoder& e, const RowsView& v, const void* g, const void* y, void* dx, bool log_result) {
  dispatch_floating(v.dtype, [&]<class T>() {
    run(e, v, static_cast<const T*>(g), static_cast<const T*>(y), static_cast<T*>(dx), log_result);
  });
}

}  // namespace deft::cuda
