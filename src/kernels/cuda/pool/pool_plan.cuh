// Windows of pooling: which inputs belong to an output, and which outputs read an input.
#pragma once

#include <algorithm>

#include "kernels/cuda/device/iteration.h"
#include "kernels/cuda/pool/pool.h"
#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda {

inline constexpr int kPoolThreads = 256;
// Windows of at least this many elements are worth a warp each.
inline constexpr int64_t kLargeWindow = 64;

// Division by a number known at launch. Index is int32_t where everything stays below 2^31, else int64_t.
template <class Index>
struct Divider {
  Index divisor = 1;
  FastDivide fast;
  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<Index>(std::max<int64_t>(1, d))) {
    if (sizeof(Index) == 4) fast = FastDivide(static_cast<uint32_t>(divisor));
  }
  __device__ __forceinline__ Index quotient(Index n) const {
    if constexpr (sizeof(Index) == 4)
      return static_cast<Index>(fast.quotient(static_cast<uint32_t>(n)));
    else
      return n / divisor;
  }
};

template <class Index>
struct Span {
  Index begin, end;
};

template <class Index>
struct Axis {
  Index in = 1, out = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
  bool adaptive = false;
  Divider<Index> by_stride, by_in, by_out;

  // Input positions of window o, `dilation` apart.
  __device__ __forceinline__ Span<Index> window(Index o) const {
    if (adaptive) return {by_out.quotient(o * in), by_out.quotient((o + 1) * in + out - 1)};
    const Index start = o * stride - pad;
    const Index skip = start < 0 ? (-start + dilation - 1) / dilation * dilation : 0;
    return {start + skip, min(in, start + (kernel - 1) * dilation + 1)};
  }
  // Windows that may hold input i.
  __device__ __forceinline__ Span<Index> covering(Index i) const {
    if (adaptive) return {by_in.quotient(i * out), by_in.quotient((i + 1) * out + in - 1)};
    const Index first = i + pad - (kernel - 1) * dilation;
    return {first <= 0 ? 0 : by_stride.quotient(first + stride - 1), min(out, by_stride.quotient(i + pad) + 1)};
  }
  // Length of window o with the padding it covers.
  __device__ __forceinline__ Index padded_length(Index o) const {
    if (adaptive) return window(o).end - window(o).begin;
    const Index start = o * stride - pad;
    return min(start + kernel, in + pad) - start;
  }
};

// A thread's place in a grid of outer x sizes x packs of inner elements.
template <class Index>
struct Place {
  Index plane, at[3], pack;
};
template <class Index>
struct Grid {
  Divider<Index> packs, size[3];
  int64_t total = 0;
  __device__ __forceinline__ Place<Index> place(Index n) const {
    Place<Index> p;
    Index next = packs.quotient(n);
    p.pack = n - next * packs.divisor;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const Index left = next;
      next = size[d].quotient(left);
      p.at[d] = left - next * size[d].divisor;
    }
    p.plane = next;
    return p;
  }
};

template <class Index>
struct Plan {
  Axis<Index> axis[3];
  Index inner, in, out;  // in, out: elements of a plane
  Grid<Index> inputs, outputs;
  bool include_pad;
  int64_t divisor;

  Plan(const PoolCall& c, bool dilated, int vec)
      : inner(static_cast<Index>(c.inner)),
        in(1),
        out(1),
        include_pad(c.count_include_pad),
        divisor(c.divisor_override) {
    for (int d = 0; d < 3; ++d) {
      const int s = d - (3 - c.spatial);
      Axis<Index>& a = axis[d];
      if (s >= 0) {
        a.in = static_cast<Index>(c.in[s]);
        a.out = static_cast<Index>(c.out[s]);
        a.adaptive = c.adaptive;
        if (!c.adaptive) {
          a.kernel = static_cast<Index>(c.kernel[s]);
          a.stride = static_cast<Index>(c.stride[s]);
          a.pad = static_cast<Index>(c.pad[s]);
          a.dilation = static_cast<Index>(dilated && c.kernel[s] > 1 ? c.dilation[s] : 1);
        }
      }
      a.by_stride = Divider<Index>(a.stride);
      a.by_in = inputs.size[d] = Divider<Index>(a.in);
      a.by_out = outputs.size[d] = Divider<Index>(a.out);
      in *= a.in;
      out *= a.out;
    }
    inputs.packs = outputs.packs = Divider<Index>(c.inner / vec);
    inputs.total = c.outer * in * (c.inner / vec);
    outputs.total = c.outer * out * (c.inner / vec);
  }

  // Divisor of an average over a window of `live` inputs, `length` with the padding; 0: no input.
  template <class A>
  __device__ __forceinline__ A weight(int64_t live, int64_t length) const {
    if (live <= 0) return 0;
    return static_cast<A>(divisor ? divisor : include_pad ? length : live);
  }
};

// True if int32_t is enough for all positions and element numbers.
inline bool fits_int32(const PoolCall& c, bool dilated) {
  constexpr int64_t kLimit = int64_t{1} << 30;
  int64_t in = c.outer * c.inner, out = in;
  if (in > kLimit) return false;
  for (int s = 0; s < c.spatial; ++s) {
    if (c.in[s] > kLimit || c.out[s] > kLimit) return false;
    in *= c.in[s];
    out *= c.out[s];
    if (in > kLimit || out > kLimit) return false;
    if (c.adaptive) {
      if ((c.in[s] + 1) * (c.out[s] + 1) > kLimit) return false;
    } else {
      const int64_t reach = (c.kernel[s] - 1) * (dilated ? c.dilation[s] : 1);
      if (reach > kLimit / 4 || c.stride[s] > kLimit / 4 || c.pad[s] > kLimit / 4) return false;
      if (c.in[s] > kLimit / 4 || c.out[s] * c.stride[s] > kLimit) return false;
    }
  }
  return true;
}
inline int64_t window_size(const PoolCall& c) {
  int64_t size = 1;
  for (int s = 0; s < c.spatial; ++s)
    size *= c.adaptive ? c.in[s] / std::max<int64_t>(1, c.out[s]) + 1 : std::min(c.kernel[s], c.in[s]);
  return size;
}

// Channels a thread takes where inner allows it.
template <class T>
inline constexpr int kPoolVec = sizeof(T) == 1 ? 8 : 16 / sizeof(T);

// Calls f.template operator()<kVec, Index>(plan) for the data of one type.
template <class T, class F>
void with_plan(const PoolCall& c, bool dilated, bool aligned, const F& f) {
  if (!fits_int32(c, dilated))
    f.template operator()<1, int64_t>(Plan<int64_t>(c, dilated, 1));
  else if (aligned && c.inner % kPoolVec<T> == 0)
    f.template operator()<kPoolVec<T>, int32_t>(Plan<int32_t>(c, dilated, kPoolVec<T>));
  else
    f.template operator()<1, int32_t>(Plan<int32_t>(c, dilated, 1));
}

}  // namespace deft::cuda
