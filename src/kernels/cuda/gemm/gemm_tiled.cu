// A block computes a 64 x 64 tile of c from slices of 16 of k in shared memory, a thread 4 x 4 values of it.
#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/gemm/gemm_tiled.h"

namespace deft::cuda {

namespace {

constexpr int kTile = 64, kSlice = 16, kThreads = 256, kEach = 4;
constexpr int kLoads = kTile * kSlice / kThreads;

// Integers are summed in the unsigned type, whose low bits are those of the exact result.
template <class T>
using sum_t = std::conditional_t<is_float_v<T>, compute_t<T>, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

template <class T>
__device__ __forceinline__ sum_t<T> widen(T v) {
  if constexpr (is_half_v<T>)
    return to_float(v);
  else
    return static_cast<sum_t<T>>(v);
}
template <class T>
__device__ __forceinline__ T narrow(sum_t<T> v) {
  if constexpr (is_half_v<T>)
    return from_float<T>(v);
  else
    return static_cast<T>(v);
}
template <class S>
__device__ __forceinline__ S factor(double v) {
  if constexpr (std::is_floating_point_v<S>)
    return static_cast<S>(v);
  else
    return static_cast<S>(static_cast<long long>(v));
}

// Copies the part of a matrix that a tile needs: part[p][i] = m[first + i, p0 + p], zero outside. Neighbouring threads
// take neighbouring elements of memory.
template <class T>
__device__ __forceinline__ void load_slice(sum_t<T> (&part)[kSlice][kTile + 1], const T* m, int64_t first, int64_t rows,
                                           int64_t stride, int64_t p0, int64_t k, int64_t k_stride) {
  bool along_k = k_stride == 1;
#pragma unroll
  for (int l = 0; l < kLoads; ++l) {
    int at = l * kThreads + static_cast<int>(threadIdx.x);
    int p = along_k ? at % kSlice : at / kTile, i = along_k ? at / kSlice : at % kTile;
    bool inside = first + i < rows && p0 + p < k;
    part[p][i] = inside ? widen(m[(first + i) * stride + (p0 + p) * k_stride]) : sum_t<T>(0);
  }
}

template <class T>
__device__ void store(const GemmCall& g, int64_t i, int64_t j, int64_t batch, sum_t<T> v) {
  using S = sum_t<T>;
  T* c = static_cast<T*>(g.c) + batch * g.c_batch + i * g.c_row + j * g.c_col;
  if (g.alpha != 1) v *= factor<S>(g.alpha);
  if (g.beta != 0) v += factor<S>(g.beta) * widen(*c);
  if (g.bias) v += widen(static_cast<const T*>(g.bias)[j]);
  *c = narrow<T>(v);
}

template <class T>
__global__ void __launch_bounds__(kThreads) tiled_kernel(GemmCall g, int64_t column_tiles) {
  using S = sum_t<T>;
  __shared__ S part_a[kSlice][kTile + 1];
  __shared__ S part_b[kSlice][kTile + 1];
  int64_t i0 = static_cast<int64_t>(blockIdx.x) / column_tiles * kTile;
  int64_t j0 = static_cast<int64_t>(blockIdx.x) % column_tiles * kTile;
  int64_t batch = blockIdx.y;
  const T* a = static_cast<const T*>(g.a) + batch * g.a_batch;
  const T* b = static_cast<const T*>(g.b) + batch * g.b_batch;
  // Values of a thread lie kTile / kEach apart, so that neighbours store next to each other.
  int row = static_cast<int>(threadIdx.x) / (kTile / kEach), column = static_cast<int>(threadIdx.x) % (kTile / kEach);
  S sum[kEach][kEach] = {};
  for (int64_t p0 = 0; p0 < g.k; p0 += kSlice) {
    load_slice(part_a, a, i0, g.m, g.a_row, p0, g.k, g.a_col);
    load_slice(part_b, b, j0, g.n, g.b_col, p0, g.k, g.b_row);
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kSlice; ++p) {
      S x[kEach], y[kEach];
#pragma unroll
      for (int q = 0; q < kEach; ++q) {
        x[q] = part_a[p][row + q * (kTile / kEach)];
        y[q] = part_b[p][column + q * (kTile / kEach)];
      }
#pragma unroll
      for (int q = 0; q < kEach; ++q)
#pragma unroll
        for (int r = 0; r < kEach; ++r) sum[q][r] += x[q] * y[r];
    }
    __syncthreads();
  }
#pragma unroll
  for (int q = 0; q < kEach; ++q)
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      int64_t i = i0 + row + q * (kTile / kEach), j = j0 + column + r * (kTile / kEach);
      if (i < g.m && j < g.n) store<T>(g, i, j, batch, sum[q][r]);
    }
}

}  // namespace

void gemm_tiled(Encoder& e, const GemmCall& call) {
  int64_t row_tiles = (call.m + kTile - 1) / kTile, column_tiles = (call.n + kTile - 1) / kTile;
  dim3 blocks(static_cast<unsigned>(row_tiles * column_tiles), static_cast<unsigned>(call.batch));
  dispatch_all(call.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) e.launch(&tiled_kernel<T>, blocks, dim3(kThreads), 0, call, column_tiles);
  });
}

}  // namespace deft::cuda
