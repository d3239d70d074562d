// Bitonic sort in shared memory of (key, index) pairs, which are never equal: the order is that of a stable sort.
// Longer rows of which only the best few are wanted go through a radix select first.
#include "kernels/cuda/reduce/sort.cuh"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kSortedAtOnce = 512;  // pairs a block sorts at least, of several rows if need be

// Key and index in one number.
template <class T>
using pair_t = std::conditional_t<sizeof(T) == 8, unsigned __int128, uint64_t>;
template <class T>
__device__ __forceinline__ pair_t<T> make_pair(sort_key_t<T> key, int64_t index) {
  return static_cast<pair_t<T>>(key) << 32 | static_cast<uint32_t>(index);
}

// `count` pairs in groups of `size`, both powers of two; every group is sorted by itself.
template <class P>
__device__ __forceinline__ void bitonic(P* s, int count, int size) {
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int t = threadIdx.x; t < count / 2; t += kThreads) {
        const int i = 2 * t - (t & (step - 1)), j = i + step;
        const bool up = (i & (size - 1) & run) == 0;
        P a = s[i], b = s[j];
        if ((a > b) == up) {
          s[i] = b;
          s[j] = a;
        }
      }
    }
  }
  __syncthreads();
}

// The first k pairs of a row become its result.
template <class T>
__device__ __forceinline__ void put_pair(const T* row, pair_t<T> pair, T* value, int64_t* index) {
  const auto at = static_cast<uint32_t>(pair);
  *value = row[at];
  *index = at;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sort_kernel(const T* in, int64_t outer, int n, int k, int size, sort_key_t<T> flip, T* values, int64_t* indices) {
  using P = pair_t<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  P* s = reinterpret_cast<P*>(shared);
  const int rows = size < kSortedAtOnce ? kSortedAtOnce / size : 1, count = rows * size;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * rows;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int64_t row = first + i / size;
    const int c = i % size;
    s[i] = row < outer && c < n ? make_pair<T>(sort_key(in[row * n + c]) ^ flip, c) : ~P(0);
  }
  bitonic(s, count, size);
  for (int i = threadIdx.x; i < rows * k; i += kThreads) {
    const int64_t row = first + i / k;
    const int c = i % k;
    if (row < outer) put_pair<T>(in + row * n, s[i / k * size + c], values + row * k + c, indices + row * k + c);
  }
}

// Numbers in warp order: how many threads before this one have `flag`, and how many there are.
struct Ranks {
  int before, total;
};
__device__ __forceinline__ Ranks rank_in_block(bool flag, int* warp_counts) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned votes = __ballot_sync(0xffffffffu, flag);
  if (lane == 0) warp_counts[warp] = __popc(votes);
  __syncthreads();
  Ranks r{__popc(votes & ((1u << lane) - 1)), 0};
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) r.before += warp_counts[w];
    r.total += warp_counts[w];
  }
  __syncthreads();
  return r;
}

// One block finds the k first of a row: their last key digit by digit, then those before it and as many equal to it as
// are missing, lowest index first.
template <class T>
__global__ void __launch_bounds__(kThreads)
    select_kernel(const T* in, int64_t n, int k, int size, sort_key_t<T> flip, T* values, int64_t* indices) {
  using K = sort_key_t<T>;
  using P = pair_t<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  P* s = reinterpret_cast<P*>(shared);
  __shared__ int counts[256];
  __shared__ int warp_counts[kThreads / 32];
  __shared__ int digit_found, left_found;
  const T* row = in + static_cast<int64_t>(blockIdx.x) * n;
  K prefix = 0, mask = 0;
  int left = k;  // to be taken among the keys that begin with `prefix`
  for (int shift = key_bits<T> - 8; shift >= 0; shift -= 8) {
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      const K key = sort_key(row[i]) ^ flip;
      if ((key & mask) == prefix) atomicAdd(&counts[static_cast<int>(key >> shift & 255)], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int rest = left, digit = 0;
      while (rest > counts[digit]) rest -= counts[digit++];
      digit_found = digit;
      left_found = rest;
    }
    __syncthreads();
    prefix |= static_cast<K>(digit_found) << shift;
    mask |= static_cast<K>(255) << shift;
    left = left_found;
  }
  int smaller = 0, equal = 0;
  for (int64_t tile = 0; tile < n; tile += kThreads) {
    const int64_t i = tile + threadIdx.x;
    const K key = i < n ? sort_key(row[i]) ^ flip : K(0);
    const bool before = i < n && key < prefix, same = i < n && key == prefix;
    if (!__syncthreads_or(before || same)) continue;
    const Ranks a = rank_in_block(before, warp_counts);
    if (before) s[smaller + a.before] = make_pair<T>(key, i);
    const Ranks b = rank_in_block(same, warp_counts);
    if (same && equal + b.before < left) s[k - left + equal + b.before] = make_pair<T>(key, i);
    smaller += a.total;
    equal += b.total;
  }
  for (int i = k + static_cast<int>(threadIdx.x); i < size; i += kThreads) s[i] = ~P(0);
  bitonic(s, size, size);
  const int64_t out = static_cast<int64_t>(blockIdx.x) * k;
  for (int i = threadIdx.x; i < k; i += kThreads) put_pair<T>(row, s[i], values + out + i, indices + out + i);
}

int power_of_two_from(int64_t n) {
  int p = 2;
  while (p < n) p *= 2;
  return p;
}

}  // namespace

void sort_small(Encoder& e, DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool descending,
                void* values, int64_t* indices) {
  const int size = power_of_two_from(n), rows = size < kSortedAtOnce ? kSortedAtOnce / size : 1;
  dispatch_sort(dtype, [&]<class T>() {
    e.launch(sort_kernel<T>, Encoder::blocks_for(outer, rows), kThreads, sizeof(pair_t<T>) * rows * size,
             static_cast<const T*>(in), outer, n, k, size, key_flip<T>(descending), static_cast<T*>(values), indices);
  });
}

void select_small(Encoder& e, DType dtype, const void* in, int64_t outer, int64_t n, int64_t k, bool descending,
                  void* values, int64_t* indices) {
  const int size = power_of_two_from(k);
  dispatch_sort(dtype, [&]<class T>() {
    e.launch(select_kernel<T>, static_cast<unsigned>(outer), kThreads, sizeof(pair_t<T>) * size,
             static_cast<const T*>(in), n, k, size, key_flip<T>(descending), static_cast<T*>(values), indices);
  });
}

}  // namespace deft::cuda
