// Strided iteration: element number -> offsets of all operands, after merging dims. Shared by host and device.
#pragma once

#include <cstdint>

#include "runtime/dtype.h"
#include "runtime/limits.h"

namespace deft::cuda {

inline constexpr int kMaxOperands = 5;

// A tensor argument of a kernel.
struct Operand {
  void* data;
  DType dtype;
  int64_t strides[kMaxDims];  // in elements; may be 0 or negative
};

// Division by a constant found at run time, for numerators below 2^31 (Granlund and Montgomery).
struct FastDivide {
  uint32_t divisor = 1, multiplier = 0, shift = 0;
  FastDivide() = default;
  explicit FastDivide(uint32_t d) : divisor(d) {
    while (shift < 32 && (uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d) / d + 1);
  }
#ifdef __CUDACC__
  __device__ __forceinline__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
#endif
};

// Sizes and strides of up to kMaxOperands operands over the same elements. The last dim is the innermost.
struct Iteration {
  int ndim = 0;  // at least 1 after normalize()
  int operands = 0;
  int64_t total = 0;
  bool narrow = false;  // all element numbers and offsets fit into 31 bits; divide[] is valid
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxOperands][kMaxDims];  // in elements
  FastDivide divide[kMaxDims];

  // Starts with the sizes and no operand; add() in the order kernels expect them.
  Iteration(int rank, const int64_t* size_list);
  void add(const int64_t* stride_list);
  // Drops dims of size 1, orders dims by the strides of operand 0 (unless `keep_order`), merges dims that every operand
  // walks as one.
  void normalize(bool keep_order = false);
  // True if operand o walks memory as 0, 1, 2, ...
  bool linear(int o) const { return ndim == 1 && (strides[o][0] == 1 || sizes[0] == 1); }
};

// The part of an Iteration that a kernel gets by value, for N operands.
template <int N>
struct OffsetMap {
  int ndim;
  int64_t sizes[kMaxDims];
  int64_t strides[N][kMaxDims];
  FastDivide divide[kMaxDims];

  explicit OffsetMap(const Iteration& it) : ndim(it.ndim) {
    for (int d = 0; d < it.ndim; ++d) {
      sizes[d] = it.sizes[d];
      divide[d] = it.divide[d];
      for (int o = 0; o < N; ++o) strides[o][d] = it.strides[o][d];
    }
  }
#ifdef __CUDACC__
  // Offsets of element `index`. Index is uint32_t where the iteration is narrow, int64_t otherwise.
  template <class Index>
  __device__ __forceinline__ void offsets(Index index, int64_t (&at)[N]) const {
#pragma unroll
    for (int o = 0; o < N; ++o) at[o] = 0;
    for (int d = ndim - 1; d > 0; --d) {
      Index next, rest;
      if constexpr (sizeof(Index) == 4) {
        next = divide[d].quotient(index);
        rest = index - next * divide[d].divisor;
      } else {
        next = index / sizes[d];
        rest = index - next * sizes[d];
      }
#pragma unroll
      for (int o = 0; o < N; ++o) at[o] += static_cast<int64_t>(rest) * strides[o][d];
      index = next;
    }
#pragma unroll
    for (int o = 0; o < N; ++o) at[o] += static_cast<int64_t>(index) * strides[o][0];
  }
#endif
};

}  // namespace deft::cuda
