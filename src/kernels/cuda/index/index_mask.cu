#include "kernels/cuda/index/index_mask.h"

#include "kernels/cuda/index/index_math.cuh"

namespace deft::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kRounds = 8;
constexpr int64_t kBlock = kThreads * kRounds;
constexpr int kScanThreads = 1024;

// The bits that make an element differ from zero: all but the sign of a float.
template <class T>
T value_bits(DType dtype) {
  return is_floating(dtype) ? static_cast<T>(static_cast<T>(~T(0)) >> 1) : static_cast<T>(~T(0));
}

template <class T>
struct IsSet {
  Walk<1> walk;
  const T* x;
  T bits;
  __device__ bool operator()(int64_t i) const {
    int64_t at[1];
    walk.at(i, at);
    return (x[at[0]] & bits) != 0;
  }
};

// Calls f(element, is it set, set elements before it) for the elements of this block. `before`: those before the block.
template <class Set, class F>
__device__ void ranked(const Set& set, int64_t total, int64_t before, const F& f) {
  __shared__ int counts[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + r * kThreads + threadIdx.x;
    const bool on = i < total && set(i);
    const unsigned votes = __ballot_sync(~0u, on);
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    int64_t rank = before + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) rank += counts[w];
      before += counts[w];
    }
    __syncthreads();
    if (i < total) f(i, on, rank);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) count_kernel(IsSet<T> set, int64_t total, int64_t* counts) {
  int count = 0;
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + r * kThreads + threadIdx.x;
    count += __syncthreads_count(i < total && set(i));
  }
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

// Counts become the sums before them, in one block: there are few.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(int64_t* counts, int64_t n) {
  __shared__ int64_t sums[kScanThreads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t before = 0;
  for (int64_t first = 0; first < n; first += kScanThreads) {
    const int64_t i = first + threadIdx.x;
    const int64_t own = i < n ? counts[i] : 0;
    int64_t sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const int64_t other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int64_t base = before;
    for (int w = 0; w < kScanThreads / 32; ++w) {
      if (w < warp) base += sums[w];
      before += sums[w];
    }
    __syncthreads();
    if (i < n) counts[i] = base + sum - own;
  }
  if (threadIdx.x == 0) counts[n] = before;
}

struct Sizes {
  int ndim;
  Divider of[kMaxDims];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    nonzero_kernel(IsSet<T> set, int64_t total, const int64_t* starts, Sizes sizes, int64_t* out) {
  ranked(set, total, starts[blockIdx.x], [&](int64_t i, bool on, int64_t rank) {
    if (!on) return;
    int64_t* row = out + rank * sizes.ndim;
    for (int d = sizes.ndim - 1; d >= 0; --d) i = sizes.of[d].split(i, row[d]);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    select_kernel(IsSet<uint8_t> set, int64_t total, const int64_t* starts, Walk<1> walk, const T* x, T* out) {
  ranked(set, total, starts[blockIdx.x], [&](int64_t i, bool on, int64_t rank) {
    if (!on) return;
    int64_t at[1];
    walk.at(i, at);
    out[rank] = x[at[0]];
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(IsSet<uint8_t> set, int64_t total, const int64_t* starts, const T* values, int64_t count, T* out) {
  ranked(set, total, starts[blockIdx.x],
         [&](int64_t i, bool on, int64_t rank) { out[i] = on && rank < count ? values[rank] : T(0); });
}

Iteration iteration_of(int ndim, const int64_t* sizes, const Operand& x) {
  Iteration it(ndim, sizes);
  it.add(x.strides);
  it.normalize(true);
  return it;
}
template <class T>
IsSet<T> is_set(const Iteration& it, const Operand& x) {
  return {Walk<1>(it), static_cast<const T*>(x.data), value_bits<T>(x.dtype)};
}
unsigned grid(int64_t count) { return static_cast<unsigned>(mask_blocks(count)); }

}  // namespace

int64_t mask_blocks(int64_t count) { return (count + kBlock - 1) / kBlock; }

void count_set(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, int64_t* starts) {
  const Iteration it = iteration_of(ndim, sizes, x);
  if (it.total == 0) return e.zero(starts, sizeof(int64_t));
  dispatch_bits(x.dtype, [&]<class T>() {
    e.launch(&count_kernel<T>, grid(it.total), kThreads, 0, is_set<T>(it, x), it.total, starts);
  });
  e.launch(&scan_kernel, 1, kScanThreads, 0, starts, mask_blocks(it.total));
}

void write_nonzero(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, const int64_t* starts, int64_t* out) {
  const Iteration it = iteration_of(ndim, sizes, x);
  if (it.total == 0) return;
  Sizes s{ndim, {}};
  for (int d = 0; d < ndim; ++d) s.of[d] = Divider(sizes[d], it.total);
  dispatch_bits(x.dtype, [&]<class T>() {
    e.launch(&nonzero_kernel<T>, grid(it.total), kThreads, 0, is_set<T>(it, x), it.total, starts, s, out);
  });
}

void select_masked(Encoder& e, int ndim, const int64_t* sizes, const Operand& x, const Operand& mask,
                   const int64_t* starts, void* out) {
  const Iteration it = iteration_of(ndim, sizes, mask), from = iteration_of(ndim, sizes, x);
  if (it.total == 0) return;
  dispatch_bits(x.dtype, [&]<class T>() {
    e.launch(&select_kernel<T>, grid(it.total), kThreads, 0, is_set<uint8_t>(it, mask), it.total, starts, Walk<1>(from),
             static_cast<const T*>(x.data), static_cast<T*>(out));
  });
}

void unpack_masked(Encoder& e, int ndim, const int64_t* sizes, const void* values, int64_t count, DType dtype,
                   const Operand& mask, const int64_t* starts, void* out) {
  const Iteration it = iteration_of(ndim, sizes, mask);
  if (it.total == 0) return;
  dispatch_bits(dtype, [&]<class T>() {
    e.launch(&unpack_kernel<T>, grid(it.total), kThreads, 0, is_set<uint8_t>(it, mask), it.total, starts,
             static_cast<const T*>(values), count, static_cast<T*>(out));
  });
}

}  // namespace deft::cuda
