#include "kernels/cuda/norm/layer_norm.h"

#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda {
namespace {

template <class T>
struct Args {
  using A = accumulate_t<T>;
  const T *x, *gamma, *beta;
  T* y;
  A *mean, *rstd;
  int64_t rows, n;
  A eps;
  bool layer;  // else RMS: the mean is taken to be 0
};

template <class T>
__device__ __forceinline__ void write_moments(const Args<T>& a, int64_t row, accumulate_t<T> mean,
                                              accumulate_t<T> rstd) {
  if (a.mean) a.mean[row] = mean;
  if (a.rstd) a.rstd[row] = rstd;
}

// (v - mean) * rstd * gamma + beta for the elements of one thread, stored at y. All point to the row's element 0. Loads
// come before stores, which they cannot pass.
template <class T, int kVec, int kItems>
__device__ __forceinline__ void write_normal(const T* gamma, const T* beta, T* y, int n, int lane, int threads,
                                             accumulate_t<T> mean, accumulate_t<T> rstd,
                                             accumulate_t<T> (&v)[kVec * kItems]) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = (k * threads + lane) * kVec;
    P scale = zero_pack<T, kVec>(), shift = zero_pack<T, kVec>();
    if (gamma && i < n) scale = *reinterpret_cast<const P*>(gamma + i);
    if (beta && i < n) shift = *reinterpret_cast<const P*>(beta + i);
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      A r = (v[k * kVec + e] - mean) * rstd;
      if (gamma) r *= convert<A>(scale.v[e]);
      if (beta) r += convert<A>(shift.v[e]);
      v[k * kVec + e] = r;
    }
  }
  store_row<T, kVec, kItems>(y, n, lane, threads, v);
}

// Elements of a row that lie in the registers of one warp of a block.
template <int kVec, int kItems>
__device__ __forceinline__ int count_of_warp(int n, int warp, int threads) {
  int count = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) count += min(max(n - (k * threads + warp * 32) * kVec, 0), 32 * kVec);
  return count;
}

// The squares of a row leave the range of f32 long before its numbers do: such rows, and those with infinities and NaN,
// are read and summed again on a smaller scale. (In f64, or from registers, every row would pay with registers.)
// all_sum(v) adds over the threads of the row.
template <class T, class A, class Sum>
__device__ __forceinline__ void scaled_moments(const T* row, int64_t end, int lane, int threads, const Sum& all_sum,
                                               bool layer, A n, A eps, A& mean, A& rstd) {
  constexpr A kScale = 0x1p-80f;
  A center = 0, squares = 0;
#pragma unroll 1
  for (int round = layer ? 0 : 2; round < 2; ++round) {  // the second makes up for what the first rounds away
    A sum = 0;
#pragma unroll 1
    for (int64_t i = lane; i < end; i += threads) sum += convert<A>(row[i]) * kScale - center;
    center += all_sum(sum) / n;
  }
#pragma unroll 1
  for (int64_t i = lane; i < end; i += threads) {
    const A d = convert<A>(row[i]) * kScale - center;
    squares += d * d;
  }
  const A variance = all_sum(squares) / n;
  mean = center / kScale;
  rstd = variance == 0 ? rsqrt(eps) : rsqrt(variance) * kScale;  // beside any other variance on this scale eps vanishes
}

// A row in registers: read once. Every warp finds its own moments, then those are merged.
template <class T, int kVec, int kItems, int kLanes>
__global__ void __launch_bounds__(kMaxRowThreads<kLanes>) norm_tile(const Args<T> a) {
  using A = accumulate_t<T>;
  __shared__ A means[32], all_squares[32];
  const RowPlace<kLanes> at;
  const int n = static_cast<int>(a.n), length = at.row < a.rows ? n : 0;
  A v[kVec * kItems];
  load_row<T, kVec, kItems>(a.x + at.row * n, length, at.lane, at.threads, A(0), v);
  A mean = 0;
  if (a.layer) {
#pragma unroll
    for (int k = 0; k < kVec * kItems; ++k) mean += v[k];
    const int count = kLanes ? n : count_of_warp<kVec, kItems>(n, threadIdx.x / 32, at.threads);
    mean = lanes_sum<kWarpLanes<kLanes>>(mean) / static_cast<A>(max(count, 1));
  }
  A squares = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const bool inside = (k * at.threads + at.lane) * kVec < length;
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      const A d = v[k * kVec + e] - mean;
      if (inside) squares += d * d;
    }
  }
  squares = lanes_sum<kWarpLanes<kLanes>>(squares);
  if constexpr (kLanes == 0) {
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) {
      means[threadIdx.x / 32] = mean;
      all_squares[threadIdx.x / 32] = squares;
    }
    __syncthreads();
    const bool used = lane < warps;
    const A count = used ? static_cast<A>(count_of_warp<kVec, kItems>(n, lane, at.threads)) : A(0);
    const A part = used ? means[lane] : A(0);
    mean = lanes_sum(part * count) / static_cast<A>(n);
    const A d = part - mean;
    squares = lanes_sum(used ? all_squares[lane] + count * d * d : A(0));
  }
  A rstd = rsqrt(squares / static_cast<A>(n) + a.eps);
  if constexpr (sizeof(A) == 4) {
    const bool again = !isfinite(squares);
    if (kLanes ? __any_sync(0xffffffffu, again) : again) {
      auto all_sum = [&](A s) { return kLanes ? lanes_sum<kWarpLanes<kLanes>>(s) : block_sum(s, means); };
      A other_mean, other_rstd;
      scaled_moments(a.x + at.row * n, length, at.lane, at.threads, all_sum, a.layer, static_cast<A>(n), a.eps,
                     other_mean, other_rstd);
      if (again) mean = other_mean, rstd = other_rstd;
    }
  }
  if (at.lane == 0 && length) write_moments(a, at.row, mean, rstd);
  write_normal<T, kVec, kItems>(a.gamma, a.beta, a.y + at.row * n, length, at.lane, at.threads, mean, rstd, v);
}

// A row of any length: read three times.
template <class T, int kVec>
__global__ void __launch_bounds__(1024) norm_long(const Args<T> a) {
  using A = accumulate_t<T>;
  constexpr int kElements = sizeof(T) == 8 ? 4 : 8, kItems = kElements / kVec;
  __shared__ A shared[32];
  const int step = blockDim.x * kElements;
  const A count = static_cast<A>(a.n);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* x = a.x + row * a.n;
    A v[kElements];
    auto load = [&](int64_t i) {
      const int left = static_cast<int>(min(a.n - i, int64_t{step}));
      load_row<T, kVec, kItems>(x + i, left, threadIdx.x, blockDim.x, A(0), v);
      return left;
    };
    A mean = 0, squares = 0;
    for (int64_t i = 0; a.layer && i < a.n; i += step) {
      load(i);
      A part = 0;
#pragma unroll
      for (int k = 0; k < kElements; ++k) part += v[k];
      mean += part;
    }
    if (a.layer) mean = block_sum(mean, shared) / count;
    for (int64_t i = 0; i < a.n; i += step) {
      const int left = load(i);
      A part = 0;
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const A d = v[k] - mean;
        if (static_cast<int>((k / kVec * blockDim.x + threadIdx.x) * kVec) < left) part += d * d;
      }
      squares += part;
    }
    squares = block_sum(squares, shared);
    A rstd = rsqrt(squares / count + a.eps);
    if constexpr (sizeof(A) == 4) {
      if (!isfinite(squares))
        scaled_moments(
            x, a.n, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
            [&](A s) { return block_sum(s, shared); }, a.layer, count, a.eps, mean, rstd);
    }
    if (threadIdx.x == 0) write_moments(a, row, mean, rstd);
    for (int64_t i = 0; i < a.n; i += step) {
      const int left = load(i);
      write_normal<T, kVec, kItems>(a.gamma ? a.gamma + i : nullptr, a.beta ? a.beta + i : nullptr, a.y + row * a.n + i,
                                    left, threadIdx.x, blockDim.x, mean, rstd, v);
    }
  }
}

void run(Encoder& e, const NormCall& c, bool layer) {
  if (c.rows == 0 || c.n == 0) return;
  dispatch_floating(c.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Args<T> a{static_cast<const T*>(c.x),
                    static_cast<const T*>(c.gamma),
                    static_cast<const T*>(c.beta),
                    static_cast<T*>(c.y),
                    static_cast<A*>(c.mean),
                    static_cast<A*>(c.rstd),
                    c.rows,
                    c.n,
                    static_cast<A>(c.eps),
                    layer};
    const bool aligned = all_aligned16(a.x, a.gamma, a.beta, a.y);
    const bool done =
        dispatch_tile<T, 4>(c.rows, c.n, aligned, [&]<int kVec, int kItems, int kLanes>(unsigned blocks, int threads) {
          e.launch(norm_tile<T, kVec, kItems, kLanes>, blocks, threads, 0, a);
        });
    if (done) return;
    constexpr int kVec = 16 / sizeof(T);
    auto kernel = aligned && c.n % kVec == 0 ? norm_long<T, kVec> : norm_long<T, 1>;
    e.launch(kernel, Encoder::blocks_for(c.rows, 1), 1024, 0, a);
  });
}

}  // namespace

void layer_norm(Encoder& e, const NormCall& c) { run(e, c, true); }
void rms_norm(Encoder& e, const NormCall& c) { run(e, c, false); }

}  // namespace deft::cuda
