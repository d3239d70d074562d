// The largest value of a row and the sum of exponentials, found in one pass.
#pragma once

#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda {

template <class A>
inline constexpr A kLowest = -std::numeric_limits<A>::infinity();

// 16-bit results do not need more than the hardware's exponential.
template <class T>
__device__ __forceinline__ accumulate_t<T> exp_of(accumulate_t<T> v) {
  if constexpr (is_half_v<T>)
    return __expf(v);
  else
    return exp(v);
}
// What to subtract before exp(): rows of -inf alone would give NaN too early, where others may still have values.
template <class A>
__device__ __forceinline__ A center_of(A top) {
  return top == kLowest<A> ? A(0) : top;
}

// A maximum and the sum of exp(x - maximum).
template <class T>
struct TopSum {
  using A = accumulate_t<T>;
  A top, sum;
  __device__ __forceinline__ void merge(A other_top, A other_sum) {
    const A joint = max(top, other_top), center = center_of(joint);
    sum = sum * exp_of<T>(top - center) + other_sum * exp_of<T>(other_top - center);
    top = joint;
  }
  // Over the warps of a block.
  __device__ __forceinline__ void merge_block(A* tops, A* sums) {
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) {
      tops[threadIdx.x / 32] = top;
      sums[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    const A mine = lane < warps ? tops[lane] : kLowest<A>;
    top = lanes_max(mine);
    sum = lanes_sum(lane < warps ? sums[lane] * exp_of<T>(mine - center_of(top)) : A(0));
  }
};

}  // namespace deft::cuda
