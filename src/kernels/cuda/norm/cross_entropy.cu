#include "kernels/cuda/norm/cross_entropy.h"

#include "kernels/cuda/norm/softmax_rows.cuh"

namespace deft::cuda {
namespace {

constexpr int kMostThreads = 1024, kBatch = 4;  // packs that a thread has in flight
constexpr int64_t kFewValues = 8;               // of a thread

unsigned threads_for(int64_t n) {
  unsigned threads = 32;
  while (threads < kMostThreads && threads * kFewValues < n) threads *= 2;
  return threads;
}

template <class T>
struct Row {
  using A = accumulate_t<T>;
  static constexpr int kWidth = 16 / sizeof(T);
  const T *x, *weight;
  int64_t n;
  __device__ __forceinline__ Row(const CrossEntropyCall& c, int64_t row)
      : x(static_cast<const T*>(c.x) + row * c.n), weight(static_cast<const T*>(c.weight)), n(c.n) {}
  __device__ __forceinline__ A weight_of(int64_t i) const { return weight ? convert<A>(weight[i]) : A(1); }

  // f(i, count, v) for values [i, i + count) of this thread: kWidth in 16 aligned bytes, or one of those
  // before and behind. Values past the count are -inf.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
    using P = Pack<T, kWidth>;
    const int64_t before = (16 - reinterpret_cast<uintptr_t>(x) % 16) % 16 / sizeof(T), head = min(before, n);
    const int64_t packs = (n - head) / kWidth, step = blockDim.x;
    A v[kWidth];
    for (int64_t p = threadIdx.x; p < packs; p += kBatch * step) {
      P raw[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        if (p + b * step < packs) raw[b] = load_once(reinterpret_cast<const P*>(x + head) + p + b * step);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (p + b * step >= packs) continue;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = convert<A>(raw[b].v[k]);
        f(head + (p + b * step) * kWidth, kWidth, v);
      }
    }
    const int64_t tail = head + packs * kWidth;
    for (int64_t i = threadIdx.x; i < head + n - tail; i += step) {
      const int64_t at = i < head ? i : tail + i - head;
#pragma unroll
      for (int k = 1; k < kWidth; ++k) v[k] = kLowest<A>;
      v[0] = convert<A>(x[at]);
      f(at, 1, v);
    }
  }
};

template <class A, int kWidth>
__device__ __forceinline__ void add_values(TopSum<A>& mine, const A (&v)[kWidth]) {
  A top = mine.top;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) top = max(top, v[k]);
  const A center = center_of(top);
  mine.sum *= exp(mine.top - center);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) mine.sum += exp(v[k] - center);
  mine.top = top;
}

// Sums of w (top - x) and of w, for label smoothing. In f64: the first may leave the range of f32.
template <class T>
__device__ __forceinline__ void sum_weighted(const Row<T>& row, accumulate_t<T> top, double& below, double& weights) {
  row.each([&](int64_t i, int count, const auto& v) {
    for (int k = 0; k < count; ++k) {
      const auto w = static_cast<double>(row.weight_of(i + k));
      below += w * (static_cast<double>(top) - static_cast<double>(v[k]));
      weights += w;
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    rows_kernel(const __grid_constant__ CrossEntropyCall c, double* losses, double* weights,
                accumulate_t<T>* statistics, const __grid_constant__ FaultSite site) {
  using A = accumulate_t<T>;
  __shared__ A tops[32], sums[32];
  __shared__ double shared[32];
  for (int64_t number = blockIdx.x; number < c.rows; number += gridDim.x) {
    const Row<T> row(c, number);
    TopSum<A> all{kLowest<A>, A(0)};
    row.each([&](int64_t, int, const auto& v) { add_values(all, v); });
    const A top = lanes_max(all.top);
    all.sum = lanes_sum(all.sum * exp(all.top - center_of(top)));
    all.top = top;
    __syncthreads();  // the row before has been read from shared memory
    all.merge_block(tops, sums);
    double below = 0, total = 0;
    if (c.smoothing > 0) {
      sum_weighted(row, all.top, below, total);
      below = block_sum(below, shared);
      total = block_sum(total, shared);
    }
    if (threadIdx.x != 0) continue;
    const A log_sum = log(all.sum);
    statistics[number] = all.top;
    statistics[c.rows + number] = log_sum;
    const int64_t t = c.target[number];
    const bool good = t >= 0 && t < c.n;
    if (t == c.ignore_index || !good) {
      if (t != c.ignore_index) raise_fault(site, t, number, c.n, c.ignore_index);
      losses[number] = weights[number] = 0;
      continue;
    }
    const auto of_all = static_cast<double>(log_sum), w = static_cast<double>(row.weight_of(t));
    const double below_top = static_cast<double>(all.top) - static_cast<double>(convert<A>(row.x[t]));
    double loss = w * (of_all + below_top);  // in this order: large logits swallow the logarithm
    if (c.smoothing > 0)
      loss = (1 - c.smoothing) * loss + c.smoothing / static_cast<double>(c.n) * (total * of_all + below);
    losses[number] = loss;
    weights[number] = w;
  }
}

__global__ void __launch_bounds__(kMostThreads)
    sum_kernel(const double* losses, const double* weights, int64_t rows, bool mean, double* weight_sum, void* loss,
               DType loss_dtype) {
  __shared__ double shared[32];
  double total = 0, weight = 0;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) total += losses[i], weight += weights[i];
  total = block_sum(total, shared);
  weight = block_sum(weight, shared);
  if (threadIdx.x != 0) return;
  *weight_sum = weight;
  if (loss) store_as(loss, loss_dtype, 0, mean ? total / weight : total);
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    backward_kernel(const __grid_constant__ CrossEntropyCall c, const accumulate_t<T>* statistics,
                    const __grid_constant__ CrossEntropyGradient gradient, T* dx) {
  using A = accumulate_t<T>;
  __shared__ double shared[32];
  for (int64_t number = blockIdx.x; number < c.rows; number += gridDim.x) {
    const Row<T> row(c, number);
    const int64_t t = c.target[number];
    const bool counts = t >= 0 && t < c.n && t != c.ignore_index;
    double scale = load_as<double>(gradient.g, gradient.g_dtype, gradient.one_g ? 0 : number);
    if (gradient.weight_sum) scale /= *gradient.weight_sum;
    const double spread = scale * c.smoothing / static_cast<double>(c.n);
    const double of_target = counts ? scale * (1 - c.smoothing) * static_cast<double>(row.weight_of(t)) : 0;
    const A top = statistics[number], log_sum = statistics[c.rows + number], one = static_cast<A>(of_target);
    double below = 0, total = 0;
    if (c.smoothing > 0) {
      sum_weighted(row, top, below, total);
      total = block_sum(total, shared);
    }
    const A of_p = static_cast<A>(of_target + spread * total), of_w = static_cast<A>(spread);
    T* out = dx + number * c.n;
    const bool in_packs = (reinterpret_cast<uintptr_t>(out) - reinterpret_cast<uintptr_t>(row.x)) % 16 == 0;
    row.each([&](int64_t i, int count, const auto& v) {
      Pack<T> values;
#pragma unroll
      for (int k = 0; k < Row<T>::kWidth; ++k) {
        A d = of_p * exp(v[k] - top - log_sum);
        if (c.smoothing > 0 && k < count) d -= of_w * row.weight_of(i + k);
        values.v[k] = convert<T>(!counts ? A(0) : i + k == t ? d - one : d);
      }
      if (count > 1 && in_packs) {
        *reinterpret_cast<Pack<T>*>(out + i) = values;
      } else {
        for (int k = 0; k < count; ++k) out[i + k] = values.v[k];
      }
    });
  }
}

}  // namespace

void cross_entropy(Encoder& e, const CrossEntropyCall& c, double* losses, double* weights, void* largest_and_log_sum,
                   const FaultSite& site) {
  if (c.rows == 0) return;
  dispatch_floating(c.dtype, [&]<class T>() {
    e.launch(rows_kernel<T>, Encoder::blocks_for(c.rows, 1), threads_for(c.n), 0, c, losses, weights,
             static_cast<accumulate_t<T>*>(largest_and_log_sum), site);
  });
}

void cross_entropy_sum(Encoder& e, const double* losses, const double* weights, int64_t rows, bool mean,
                       double* weight_sum, void* loss, DType loss_dtype) {
  e.launch(sum_kernel, 1, threads_for(rows), 0, losses, weights, rows, mean, weight_sum, loss, loss_dtype);
}

void cross_entropy_backward(Encoder& e, const CrossEntropyCall& c, const void* largest_and_log_sum,
                            const CrossEntropyGradient& gradient, void* dx) {
  if (c.rows == 0) return;
  dispatch_floating(c.dtype, [&]<class T>() {
    e.launch(backward_kernel<T>, Encoder::blocks_for(c.rows, 1), threads_for(c.n), 0, c,
             static_cast<const accumulate_t<T>*>(largest_and_log_sum), gradient, static_cast<T*>(dx));
  });
}

}  // namespace deft::cuda
