#include <algorithm>

#include "kernels/cuda/norm/layer_norm.h"
#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda {
namespace {

constexpr int kThreads = 512;

template <class T>
struct Args {
  using A = accumulate_t<T>;
  const T *g, *x, *gamma;
  const A *mean, *rstd;
  T* dx;
  A *dgamma, *dbeta;  // sums of each block: [blocks][n]; null if not wanted
  int64_t rows, n;
  bool layer;
};

template <class T, int kVec, int kItems>
struct RowInputs {
  Pack<T, kVec> g[kItems], x[kItems];
  accumulate_t<T> mean, rstd;
  __device__ __forceinline__ void load(const Args<T>& a, int64_t row, int lane, int threads) {
    const bool live = row < a.rows;
    const int n = live ? static_cast<int>(a.n) : 0;
    load_packs(a.g + row * a.n, n, lane, threads, g);
    load_packs(a.x + row * a.n, n, lane, threads, x);
    mean = live && a.layer ? a.mean[row] : 0;
    rstd = live ? a.rstd[row] : 0;
  }
};

// Adds the sums of the `groups` groups of a block for the same columns, one group after the other, and writes them.
template <int kVec, int kItems, class A>
__device__ void write_sums(const A (&sum)[kVec * kItems], A* out, int n, int group, int groups, int lane, int threads,
                           A* shared) {
  for (int turn = 0; turn < groups; ++turn) {
    __syncthreads();
    if (turn != group) continue;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = (k * threads + lane) * kVec;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        if (i >= n) continue;
        const A total = turn ? shared[i + e] + sum[k * kVec + e] : sum[k * kVec + e];
        (turn + 1 < groups ? shared : out)[i + e] = total;
      }
    }
  }
}

// A block has `groups` groups of `threads` threads; each works on a row at a time, held in registers, and keeps the
// sums for the parameters of its columns. 16-bit rows that come in packs are loaded one ahead.
template <class T, int kVec, int kItems>
__global__ void __launch_bounds__(kThreads, kVec* kItems * sizeof(accumulate_t<T>) <= 32 ? 2 : 1)
    norm_backward_tile(const Args<T> a, int threads, int groups) {
  using A = accumulate_t<T>;
  constexpr int kElements = kVec * kItems;
  constexpr bool kAhead = is_half_v<T> && kVec > 1;
  extern __shared__ double dynamic[];
  __shared__ A sums[2][2][kThreads / 32];
  const int group = threadIdx.x / threads, lane = threadIdx.x - group * threads, n = static_cast<int>(a.n);
  const int warps = threads / 32, warp_lane = threadIdx.x % 32;
  const A count = static_cast<A>(n);
  Pack<T, kVec> gamma[kItems];
  A dgamma[kElements], dbeta[kElements];
#pragma unroll
  for (int k = 0; k < kElements; ++k) dgamma[k] = dbeta[k] = 0;
  if (a.gamma) {
    load_packs(a.gamma, n, lane, threads, gamma);
  } else {
#pragma unroll
    for (int k = 0; k < kElements; ++k) gamma[k / kVec].v[k % kVec] = convert<T>(A(1));
  }

  const int64_t step = static_cast<int64_t>(gridDim.x) * groups;
  int64_t first = static_cast<int64_t>(blockIdx.x) * groups;
  RowInputs<T, kVec, kItems> now, next;
  if (kAhead) now.load(a, first + group, lane, threads);
  for (int turn = 0; first < a.rows; first += step, turn ^= 1) {
    const int64_t row = first + group;
    if (kAhead)
      next.load(a, row + step, lane, threads);
    else
      now.load(a, row, lane, threads);
    A slope = 0, offset = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const bool inside =
          (k * threads + lane) * kVec < n;  // elsewhere x is 0, which may be infinitely far from the mean
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const A g = convert<A>(now.g[k].v[e]);
        const A normal = inside ? (convert<A>(now.x[k].v[e]) - now.mean) * now.rstd : A(0);
        const A weighted = g * convert<A>(gamma[k].v[e]);
        dgamma[k * kVec + e] += g * normal;
        dbeta[k * kVec + e] += g;
        slope += weighted * normal;
        offset += weighted;
      }
    }
    if (a.dx) {
      slope = lanes_sum(slope);
      offset = lanes_sum(offset);
      if (warps > 1) {  // two buffers, so that one barrier for a row is enough
        if (warp_lane == 0) {
          sums[turn][0][threadIdx.x / 32] = slope;
          sums[turn][1][threadIdx.x / 32] = offset;
        }
        __syncthreads();
        const bool used = warp_lane < warps;
        slope = lanes_sum(used ? sums[turn][0][group * warps + warp_lane] : A(0));
        offset = lanes_sum(used ? sums[turn][1][group * warps + warp_lane] : A(0));
      }
      slope /= count;
      offset = a.layer ? offset / count : A(0);
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const int i = (k * threads + lane) * kVec;
        if (i >= n || row >= a.rows) continue;
        Pack<T, kVec> out;
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const A normal = (convert<A>(now.x[k].v[e]) - now.mean) * now.rstd;
          const A weighted = convert<A>(now.g[k].v[e]) * convert<A>(gamma[k].v[e]);
          out.v[e] = convert<T>(now.rstd * (weighted - offset - normal * slope));
        }
        *reinterpret_cast<Pack<T, kVec>*>(a.dx + row * a.n + i) = out;
      }
    }
    if (kAhead) now = next;
  }
  A* shared = reinterpret_cast<A*>(dynamic);
  const int64_t to = static_cast<int64_t>(blockIdx.x) * a.n;
  if (a.dgamma) write_sums<kVec, kItems>(dgamma, a.dgamma + to, n, group, groups, lane, threads, shared);
  if (a.dbeta) write_sums<kVec, kItems>(dbeta, a.dbeta + to, n, group, groups, lane, threads, shared);
}

// --- Rows of any length -----------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads) norm_backward_long(const Args<T> a) {
  using A = accumulate_t<T>;
  __shared__ A shared[32];
  const A count = static_cast<A>(a.n);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T *g = a.g + row * a.n, *x = a.x + row * a.n;
    const A mean = a.layer ? a.mean[row] : A(0), rstd = a.rstd[row];
    A slope = 0, offset = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < a.n; i += kThreads) {
      const A weighted = convert<A>(g[i]) * (a.gamma ? convert<A>(a.gamma[i]) : A(1));
      slope += weighted * ((convert<A>(x[i]) - mean) * rstd);
      offset += weighted;
    }
    slope = block_sum(slope, shared) / count;
    offset = a.layer ? block_sum(offset, shared) / count : A(0);
    for (int64_t first = threadIdx.x; first < a.n; first += 4 * kThreads) {
      A weighted[4], normal[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int64_t i = first + k * kThreads;
        if (i >= a.n) continue;
        weighted[k] = convert<A>(g[i]) * (a.gamma ? convert<A>(a.gamma[i]) : A(1));
        normal[k] = (convert<A>(x[i]) - mean) * rstd;
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int64_t i = first + k * kThreads;
        if (i < a.n) a.dx[row * a.n + i] = convert<T>(rstd * (weighted[k] - offset - normal[k] * slope));
      }
    }
  }
}

// Sums for the parameters over `piece` rows: one thread has one column. blockIdx.x is piece * strips + strip.
template <class T>
__global__ void __launch_bounds__(kThreads) parameter_sums(const Args<T> a, int64_t strips, int64_t piece) {
  using A = accumulate_t<T>;
  const int64_t part = blockIdx.x / strips, i = (blockIdx.x - part * strips) * kThreads + threadIdx.x;
  if (i >= a.n) return;
  const int64_t end = min(a.rows, (part + 1) * piece);
  A dgamma = 0, dbeta = 0;
#pragma unroll 4
  for (int64_t row = part * piece; row < end; ++row) {
    const A g = convert<A>(a.g[row * a.n + i]), mean = a.layer ? a.mean[row] : A(0);
    dgamma += g * ((convert<A>(a.x[row * a.n + i]) - mean) * a.rstd[row]);
    dbeta += g;
  }
  if (a.dgamma) a.dgamma[part * a.n + i] = dgamma;
  if (a.dbeta) a.dbeta[part * a.n + i] = dbeta;
}

// --- The sums of all blocks -------------------------------------------------------------------------------------

constexpr int kSumColumns = 32, kSumRows = 16;

// out[i] = sum over parts of partial[part][i]; blockIdx.y: gamma or beta.
template <class T>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    sum_parts(const accumulate_t<T>* gamma_parts, const accumulate_t<T>* beta_parts, int64_t parts, int64_t n,
              T* dgamma, T* dbeta) {
  using A = accumulate_t<T>;
  __shared__ A shared[kSumRows][kSumColumns + 1];
  const A* from = blockIdx.y ? beta_parts : gamma_parts;
  T* to = blockIdx.y ? dbeta : dgamma;
  if (!to) return;
  const int x = threadIdx.x % kSumColumns, y = threadIdx.x / kSumColumns;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSumColumns + x;
  A sum = 0;
  if (i < n) {
#pragma unroll 4
    for (int64_t p = y; p < parts; p += kSumRows) sum += from[p * n + i];
  }
  shared[y][x] = sum;
  __syncthreads();
  if (y > 0 || i >= n) return;
  for (int k = 1; k < kSumRows; ++k) sum += shared[k][x];
  to[i] = convert<T>(sum);
}

// --- Host -------------------------------------------------------------------------------------------------------

template <class T>
class Run {
 public:
  Run(Encoder& e, const NormBackwardCall& c, bool layer)
      : e_(e),
        c_(c),
        args_{static_cast<const T*>(c.g),
              static_cast<const T*>(c.x),
              static_cast<const T*>(c.gamma),
              static_cast<const A*>(c.mean),
              static_cast<const A*>(c.rstd),
              static_cast<T*>(c.dx),
              nullptr,
              nullptr,
              c.rows,
              c.n,
              layer} {}

  void operator()() {
    constexpr int kVec = 16 / sizeof(T), kUnit = sizeof(T) == 8 ? 4 : 8;
    const bool packs = all_aligned16(c_.g, c_.x, c_.gamma, c_.dx) && c_.n % kVec == 0;
    if (packs && c_.n <= kThreads * kUnit)
      tile<kVec, kUnit / kVec>(2);
    else if (packs && c_.n <= kThreads * 2 * kUnit)
      tile<kVec, 2 * kUnit / kVec>(1);
    else if (c_.n <= kThreads * kUnit)
      tile<1, kUnit>(2);
    else
      long_rows();
  }

 private:
  using A = accumulate_t<T>;

  template <int kVec, int kItems>
  void tile(int blocks_per_processor) {
    const int64_t warps = (c_.n + 32 * kVec * kItems - 1) / (32 * kVec * kItems);
    const int threads = static_cast<int>(warps) * 32, groups = kThreads / threads;
    const unsigned blocks = Encoder::blocks_for(c_.rows, groups, e_.multiprocessors() * blocks_per_processor);
    const size_t shared = groups > 1 ? static_cast<size_t>(c_.n) * sizeof(A) : 0;
    with_parts(blocks, [&] {
      e_.launch(norm_backward_tile<T, kVec, kItems>, blocks, threads * groups, shared, args_, threads, groups);
    });
  }
  void long_rows() {
    const int64_t strips = (c_.n + kThreads - 1) / kThreads;
    const int64_t wanted = std::max<int64_t>(1, 8 * e_.multiprocessors() / strips);
    const int64_t piece = (c_.rows + wanted - 1) / wanted, parts = (c_.rows + piece - 1) / piece;
    if (c_.dgamma || c_.dbeta)
      with_parts(parts, [&] { e_.launch(parameter_sums<T>, strips * parts, kThreads, 0, args_, strips, piece); });
    if (c_.dx) e_.launch(norm_backward_long<T>, Encoder::blocks_for(c_.rows, 1), kThreads, 0, args_);
  }

  // Room for the sums of each part while f runs, then their total.
  template <class F>
  void with_parts(int64_t parts, F&& f) {
    const int64_t size = parts * c_.n, kinds = (c_.dgamma ? 1 : 0) + (c_.dbeta ? 1 : 0);
    if (kinds == 0) return f();
    Workspace memory(e_, static_cast<size_t>(size * kinds) * sizeof(A));
    if (c_.dgamma) args_.dgamma = memory.as<A>();
    if (c_.dbeta) args_.dbeta = memory.as<A>() + (c_.dgamma ? size : 0);
    f();
    e_.launch(sum_parts<T>, dim3(Encoder::blocks_for(c_.n, kSumColumns), 2), kSumColumns * kSumRows, 0, args_.dgamma,
              args_.dbeta, parts, c_.n, static_cast<T*>(c_.dgamma), static_cast<T*>(c_.dbeta));
  }

  Encoder& e_;
  const NormBackwardCall& c_;
  Args<T> args_;
};

void run(Encoder& e, const NormBackwardCall& c, bool layer) {
  if (c.rows == 0 || c.n == 0) return;
  dispatch_floating(c.dtype, [&]<class T>() { Run<T>(e, c, layer)(); });
}

}  // namespace

void layer_norm_backward(Encoder& e, const NormBackwardCall& c) { run(e, c, true); }
void rms_norm_backward(Encoder& e, const NormBackwardCall& c) { run(e, c, false); }

}  // namespace deft::cuda
