// Philox on the device. Arithmetic is that of kernels/cpu/elementwise/random_values.cpp: in double, multiplications and
// additions rounded one by one, so that the CPU's numbers come out.
#include <numbers>

#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/elementwise/random.h"

namespace deft::cuda {

namespace {

constexpr int kThreads = 256;

struct Words {
  uint32_t w[4];
};
__device__ __forceinline__ Words words(PhiloxState draw, int64_t block) {
  auto w = philox(draw, static_cast<uint64_t>(block));
  return {{w[0], w[1], w[2], w[3]}};
}
__device__ __forceinline__ double uniform(uint32_t word) { return static_cast<double>(uniform_from_bits(word)); }

// A thread makes the four numbers of a Philox block and stores them at once where `whole` says it may: aligned.
template <class T, class Make>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(T* out, int64_t n, bool whole, PhiloxState draw, const __grid_constant__ Make make) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads, blocks = (n + 3) / 4;
  for (int64_t b = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; b < blocks; b += stride) {
    Pack<T, 4> v;
    make(words(draw, b), v);
    if (whole && b * 4 + 4 <= n) {
      *reinterpret_cast<Pack<T, 4>*>(out + b * 4) = v;
    } else {
      for (int j = 0; j < 4 && b * 4 + j < n; ++j) out[b * 4 + j] = v.v[j];
    }
  }
}

bool aligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

template <class T, class Make>
void fill(Encoder& e, void* out, int64_t n, PhiloxState draw, const Make& make) {
  if (n == 0) return;
  unsigned blocks = Encoder::blocks_for((n + 3) / 4, kThreads, static_cast<int64_t>(e.multiprocessors()) * 64);
  e.launch(fill_kernel<T, Make>, blocks, kThreads, 0, static_cast<T*>(out), n, aligned(out, 4 * sizeof(T)), draw, make);
}

template <class T>
struct Uniform {
  double low, range, high;
  __device__ __forceinline__ void operator()(const Words& w, Pack<T, 4>& out) const {
    const T first = convert<T>(low), last = convert<T>(high);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      T v = convert<T>(__dadd_rn(__dmul_rn(uniform(w.w[j]), range), low));
      // Rounding to a narrow type must not reach the open end.
      bool below = convert<compute_t<T>>(v) < convert<compute_t<T>>(last);
      out.v[j] = below || low == high ? v : first;
    }
  }
};

template <class T>
struct Normal {
  double mean, std;
  __device__ __forceinline__ void operator()(const Words& w, Pack<T, 4>& out) const {
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      double u = __dmul_rn(__dadd_rn(static_cast<double>(w.w[j]), 0.5), 0x1p-32);
      double angle =
          __dmul_rn(__dmul_rn(2 * std::numbers::pi, __dadd_rn(static_cast<double>(w.w[j + 1]), 0.5)), 0x1p-32);
      double radius = sqrt(-2 * log(u)), sine, cosine;
      sincos(angle, &sine, &cosine);
      out.v[j] = convert<T>(__dadd_rn(__dmul_rn(std, __dmul_rn(radius, cosine)), mean));
      out.v[j + 1] = convert<T>(__dadd_rn(__dmul_rn(std, __dmul_rn(radius, sine)), mean));
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    randint_kernel(T* out, int64_t n, PhiloxState draw, uint64_t low, uint64_t range) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    Words w = words(draw, i);
    uint64_t bits = static_cast<uint64_t>(w.w[0]) << 32 | w.w[1];
    out[i] = convert<T>(static_cast<int64_t>(low + __umul64hi(bits, range)));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    bernoulli_kernel(const T* p, T* out, int64_t n, bool whole, PhiloxState draw, FaultSite site) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads, blocks = (n + 3) / 4;
  for (int64_t b = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; b < blocks; b += stride) {
    const Words w = words(draw, b);
    const bool full = whole && b * 4 + 4 <= n;
    Pack<T, 4> v{};
    if (full) {
      v = *reinterpret_cast<const Pack<T, 4>*>(p + b * 4);
    } else {
      for (int j = 0; j < 4 && b * 4 + j < n; ++j) v.v[j] = p[b * 4 + j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      double chance = convert<double>(v.v[j]);
      if (!(chance >= 0 && chance <= 1)) raise_fault(site, b * 4 + j);
      v.v[j] = convert<T>(uniform(w.w[j]) < chance ? 1.0f : 0.0f);
    }
    if (full) {
      *reinterpret_cast<Pack<T, 4>*>(out + b * 4) = v;
    } else {
      for (int j = 0; j < 4 && b * 4 + j < n; ++j) out[b * 4 + j] = v.v[j];
    }
  }
}

struct Drop {
  double p, scale;
  template <class T>
  __device__ __forceinline__ T operator()(T v, uint32_t word) const {
    if (!(uniform(word) >= p)) return convert<T>(0.0f);
    return convert<T>(__dmul_rn(convert<double>(v), scale));
  }
};

// Pack by pack of Philox blocks: kBlocks of them, so that a load has 16 bytes where there are 4 or 2 to a number.
template <class T, int kBlocks>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* in, T* out, int64_t n, bool whole, PhiloxState draw, Drop drop) {
  constexpr int N = 4 * kBlocks;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads, packs = (n + N - 1) / N;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < packs; i += stride) {
    const bool full = whole && i * N + N <= n;
    Pack<T, N> v{};
    if (full) {
      v = *reinterpret_cast<const Pack<T, N>*>(in + i * N);
    } else {
      for (int j = 0; j < N && i * N + j < n; ++j) v.v[j] = in[i * N + j];
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const Words w = words(draw, i * kBlocks + b);
#pragma unroll
      for (int j = 0; j < 4; ++j) v.v[b * 4 + j] = drop(v.v[b * 4 + j], w.w[j]);
    }
    if (full) {
      *reinterpret_cast<Pack<T, N>*>(out + i * N) = v;
    } else {
      for (int j = 0; j < N && i * N + j < n; ++j) out[i * N + j] = v.v[j];
    }
  }
}

// Other layouts, in the order of memory: a block is drawn for every element, of which one number is used.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_strided(const T* in, T* out, int64_t n, bool narrow, const __grid_constant__ OffsetMap<3> map,
                    PhiloxState draw, Drop drop) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    int64_t at[3];
    if (narrow)
      map.offsets(static_cast<uint32_t>(i), at);
    else
      map.offsets(i, at);
    const Words w = words(draw, at[2] / 4);
    const int word = static_cast<int>(at[2] % 4);
    out[at[0]] = drop(in[at[1]], word & 2 ? (word & 1 ? w.w[3] : w.w[2]) : (word & 1 ? w.w[1] : w.w[0]));
  }
}

unsigned busy_blocks(const Encoder& e, int64_t threads) {
  return Encoder::blocks_for(threads, kThreads, static_cast<int64_t>(e.multiprocessors()) * 64);
}

}  // namespace

void fill_uniform(Encoder& e, DType dtype, void* out, int64_t n, PhiloxState draw, double low, double high) {
  dispatch_floating(dtype, [&]<class T>() { fill<T>(e, out, n, draw, Uniform<T>{low, high - low, high}); });
}

void fill_normal(Encoder& e, DType dtype, void* out, int64_t n, PhiloxState draw, double mean, double std) {
  dispatch_floating(dtype, [&]<class T>() { fill<T>(e, out, n, draw, Normal<T>{mean, std}); });
}

void fill_randint(Encoder& e, DType dtype, void* out, int64_t n, PhiloxState draw, int64_t low, int64_t high) {
  if (n == 0) return;
  const auto first = static_cast<uint64_t>(low), range = static_cast<uint64_t>(high) - first;
  dispatch_all(dtype, [&]<class T>() {
    e.launch(randint_kernel<T>, busy_blocks(e, n), kThreads, 0, static_cast<T*>(out), n, draw, first, range);
  });
}

void bernoulli(Encoder& e, DType dtype, const void* p, void* out, int64_t n, PhiloxState draw) {
  if (n == 0) return;
  FaultSite site =
      e.fault_site(FaultKind::value, "{0}: probabilities lie in [0, 1], found one that does not at element {1}");
  dispatch_floating(dtype, [&]<class T>() {
    bool whole = aligned(p, 4 * sizeof(T)) && aligned(out, 4 * sizeof(T));
    e.launch(bernoulli_kernel<T>, busy_blocks(e, (n + 3) / 4), kThreads, 0, static_cast<const T*>(p),
             static_cast<T*>(out), n, whole, draw, site);
  });
}

void dropout(Encoder& e, int ndim, const int64_t* sizes, const Operand& in, const Operand& out, PhiloxState draw,
             double p, double scale) {
  int64_t numbers[kMaxDims], n = 1;
  for (int d = ndim - 1; d >= 0; --d) {
    numbers[d] = n;
    n *= sizes[d];
  }
  if (n == 0) return;
  Iteration it(ndim, sizes);
  it.add(out.strides);
  it.add(in.strides);
  it.add(numbers);
  it.normalize();
  const Drop drop{p, scale};
  dispatch_floating(in.dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(in.data);
    T* to = static_cast<T*>(out.data);
    constexpr int kBlocks = sizeof(T) == 2 ? 2 : 1, kPack = 4 * kBlocks;
    if (it.linear(0) && it.linear(1)) {
      bool whole = aligned(from, kPack * sizeof(T)) && aligned(to, kPack * sizeof(T));
      e.launch(dropout_kernel<T, kBlocks>, busy_blocks(e, (n + kPack - 1) / kPack), kThreads, 0, from, to, n, whole,
               draw, drop);
    } else {
      e.launch(dropout_strided<T>, busy_blocks(e, n), kThreads, 0, from, to, n, it.narrow, OffsetMap<3>(it), draw,
               drop);
    }
  });
}

}  // namespace deft::cuda
