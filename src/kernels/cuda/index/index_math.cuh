// Positions and bad-index reports of the index, shape and resize kernels.
#pragma once

#include "kernels/cuda/device/encoder.h"
#include "kernels/cuda/device/iteration.h"

namespace deft::cuda {

// Quotient and remainder by a size known at launch; cheap where the numerators stay below 2^31.
struct Divider {
  int64_t size = 1;
  FastDivide fast;
  bool narrow = true;

  Divider() = default;
  Divider(int64_t d, int64_t numerators) : size(d < 1 ? 1 : d), narrow(numerators < INT32_MAX && d < INT32_MAX) {
    if (narrow) fast = FastDivide(static_cast<uint32_t>(size));
  }
#ifdef __CUDACC__
  __device__ __forceinline__ int64_t split(int64_t n, int64_t& rest) const {
    if (narrow) {
      uint32_t m = static_cast<uint32_t>(n), q = fast.quotient(m);
      rest = m - q * static_cast<uint32_t>(size);
      return q;
    }
    int64_t q = n / size;
    rest = n - q * size;
    return q;
  }
#endif
};

// Element number -> offsets of N operands. One branch, the same for all threads, instead of two kernels.
template <int N>
struct Walk {
  OffsetMap<N> map;
  bool narrow;
  explicit Walk(const Iteration& it) : map(it), narrow(it.narrow) {}
#ifdef __CUDACC__
  __device__ __forceinline__ void at(int64_t i, int64_t (&offsets)[N]) const {
    if (narrow)
      map.template offsets<uint32_t>(static_cast<uint32_t>(i), offsets);
    else
      map.template offsets<int64_t>(i, offsets);
  }
#endif
};

// How an index outside [0, size) is reported. Its position is shown with two coordinates where the index has two dims.
struct BadIndex {
  FaultSite site;
  int64_t columns = 1;
  bool silent = false;  // reported before, by the op that made the positions
};

#ifdef __CUDACC__
__device__ __forceinline__ int64_t thread_number() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// True in one of the active threads of a warp: the first, so that small cases name the first bad element.
__device__ __forceinline__ bool first_of_warp() {
  return (threadIdx.x & 31) == static_cast<unsigned>(__ffs(static_cast<int>(__activemask())) - 1);
}

__device__ __forceinline__ void report(const BadIndex& b, int64_t value, int64_t size, int64_t position) {
  if (b.silent || !first_of_warp()) return;
  raise_fault(b.site, value, size, position / b.columns, position % b.columns);
}
__device__ __forceinline__ bool outside(int64_t v, int64_t size) { return v < 0 || v >= size; }
#endif

}  // namespace deft::cuda
