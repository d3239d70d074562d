// Reductions within a warp and a block, and rows that are held in registers between two passes.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/elementwise/convert.cuh"

namespace deft::cuda {

// --- Reductions -------------------------------------------------------------------------------------------------

// Over kLanes neighbouring warp lanes; all of them get the same bits. The whole warp must take part.
template <int kLanes = 32, class A>
__device__ __forceinline__ A lanes_sum(A v) {
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
// NaN is ignored.
template <int kLanes = 32, class A>
__device__ __forceinline__ A lanes_max(A v) {
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) v = max(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}
// Over a block of whole warps; all threads get the same bits. `shared` has room for 32 values.
template <class A>
__device__ __forceinline__ A block_sum(A v, A* shared) {
  v = lanes_sum(v);
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (warps == 1) return v;
  __syncthreads();  // an earlier call may still be reading
  if (lane == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  return lanes_sum(lane < warps ? shared[lane] : A(0));
}

// --- Packs ------------------------------------------------------------------------------------------------------

inline bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }  // null is
template <class... P>
bool all_aligned16(const P*... p) {
  return (aligned16(p) && ...);
}

// For data that is read once: it should not drive others out of the caches.
template <class T, int N>
__device__ __forceinline__ Pack<T, N> load_once(const Pack<T, N>* p) {
  if constexpr (sizeof(Pack<T, N>) == 16) {
    return std::bit_cast<Pack<T, N>>(__ldcs(reinterpret_cast<const uint4*>(p)));
  } else {
    return *p;
  }
}
template <class T, int N>
__device__ __forceinline__ Pack<T, N> zero_pack() {
  Pack<T, N> z;
#pragma unroll
  for (int k = 0; k < N; ++k) z.v[k] = convert<T>(accumulate_t<T>(0));
  return z;
}

// --- Rows -------------------------------------------------------------------------------------------------------

// `threads` threads share a row of n elements. Thread `lane` has kItems packs of kVec, pack k begins at element
// (k * threads + lane) * kVec; n is a multiple of kVec.
template <class T, int kVec, int kItems>
__device__ __forceinline__ void load_packs(const T* row, int n, int lane, int threads, Pack<T, kVec> (&raw)[kItems]) {
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = (k * threads + lane) * kVec;
    raw[k] = zero_pack<T, kVec>();
    if (i < n) raw[k] = load_once(reinterpret_cast<const Pack<T, kVec>*>(row + i));
  }
}
// The same in the type for computing, with `missing` past the end.
template <class T, int kVec, int kItems>
__device__ __forceinline__ void load_row(const T* row, int n, int lane, int threads, accumulate_t<T> missing,
                                         accumulate_t<T> (&v)[kVec * kItems]) {
  Pack<T, kVec> raw[kItems];
  load_packs(row, n, lane, threads, raw);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const bool inside = (k * threads + lane) * kVec < n;
#pragma unroll
    for (int e = 0; e < kVec; ++e) v[k * kVec + e] = inside ? convert<accumulate_t<T>>(raw[k].v[e]) : missing;
  }
}
template <class T, int kVec, int kItems>
__device__ __forceinline__ void store_row(T* row, int n, int lane, int threads,
                                          const accumulate_t<T> (&v)[kVec * kItems]) {
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = (k * threads + lane) * kVec;
    if (i >= n) continue;
    Pack<T, kVec> raw;
#pragma unroll
    for (int e = 0; e < kVec; ++e) raw.v[e] = convert<T>(v[k * kVec + e]);
    *reinterpret_cast<Pack<T, kVec>*>(row + i) = raw;
  }
}

// Threads of a block in which 8 or 32 warp lanes share each row.
inline constexpr int kLaneBlock = 128;

// Which row a thread works on. kLanes: 8 or 32 lanes for a row; 0: the whole block.
template <int kLanes>
struct RowPlace {
  int64_t row;
  int lane, threads;
  __device__ __forceinline__ RowPlace() {
    if constexpr (kLanes == 0) {
      row = blockIdx.x;
      lane = threadIdx.x;
      threads = blockDim.x;
    } else {
      row = static_cast<int64_t>(blockIdx.x) * (kLaneBlock / kLanes) + threadIdx.x / kLanes;
      lane = threadIdx.x % kLanes;
      threads = kLanes;
    }
  }
};
template <int kLanes>
inline constexpr int kMaxRowThreads = kLanes ? kLaneBlock : 1024;
// Lanes of one warp that share a row.
template <int kLanes>
inline constexpr int kWarpLanes = kLanes ? kLanes : 32;

// Calls f.template operator()<kVec, kItems, kLanes>(blocks, threads) for the smallest tile that holds rows of n
// elements. A thread holds at most kMaxUnits (2 or 4) units of 8 elements (4 of f64), 2 where it loads them one by one:
// that takes more registers. False: rows are too long for registers.
template <class T, int kMaxUnits, class F>
bool dispatch_tile(int64_t rows, int64_t n, bool aligned, const F& f) {
  constexpr int kVec = 16 / sizeof(T), kUnit = sizeof(T) == 8 ? 4 : 8;
  const bool packs = aligned && n % kVec == 0;
  const int64_t most = packs ? kMaxUnits : 2;
  auto tile = [&]<int kUnits, int kLanes>(unsigned blocks, int threads) {
    if constexpr (kUnits <= 2) {
      if (!packs) return f.template operator()<1, kUnits * kUnit, kLanes>(blocks, threads);
    }
    if constexpr (kUnits <= kMaxUnits) f.template operator()<kVec, kUnits * kUnit / kVec, kLanes>(blocks, threads);
  };
  auto lane_blocks = [&](int lanes) { return Encoder::blocks_for(rows, kLaneBlock / lanes); };
  if (n <= 8 * kUnit) {
    tile.template operator()<1, 8>(lane_blocks(8), kLaneBlock);
    return true;
  }
  int64_t units = (n + 32 * kUnit - 1) / (32 * kUnit);
  if (units <= most) {
    const unsigned blocks = lane_blocks(32);
    if (units == 1)
      tile.template operator()<1, 32>(blocks, kLaneBlock);
    else if (units == 2)
      tile.template operator()<2, 32>(blocks, kLaneBlock);
    else if (units == 3)
      tile.template operator()<3, 32>(blocks, kLaneBlock);
    else
      tile.template operator()<4, 32>(blocks, kLaneBlock);
    return true;
  }
  int threads = 64;
  while (threads < 1024 && threads * kUnit * most < n) threads *= 2;
  if (threads * kUnit * most < n || rows > 0x7fffffff) return false;
  units = (n + threads * kUnit - 1) / (threads * kUnit);  // more than half of `most`
  const auto blocks = static_cast<unsigned>(rows);
  if (units <= 2)
    tile.template operator()<2, 0>(blocks, threads);
  else if (units == 3)
    tile.template operator()<3, 0>(blocks, threads);
  else
    tile.template operator()<4, 0>(blocks, threads);
  return true;
}

}  // namespace deft::cuda
