#include "kernels/cuda/norm/softmax.h"

#include "kernels/cuda/norm/softmax_columns.cuh"
#include "kernels/cuda/norm/softmax_rows.cuh"

namespace deft::cuda {
namespace {

// A row in registers: read once.
template <class T, int kVec, int kItems, int kLanes>
__global__ void __launch_bounds__(kMaxRowThreads<kLanes>)
    softmax_tile(const T* x, T* y, int64_t rows, int n, bool log_result) {
  using A = accumulate_t<T>;
  constexpr int kElements = kVec * kItems;
  __shared__ A tops[32], sums[32];
  const RowPlace<kLanes> at;
  const int length = at.row < rows ? n : 0;
  A v[kElements];
  load_row<T, kVec, kItems>(x + at.row * n, length, at.lane, at.threads, kLowest<A>, v);
  A top = v[0];
#pragma unroll
  for (int k = 1; k < kElements; ++k) top = max(top, v[k]);
  top = lanes_max<kWarpLanes<kLanes>>(top);
  const A center = center_of(top);
  A sum = 0;
  if (log_result) {
#pragma unroll
    for (int k = 0; k < kElements; ++k) sum += exp_of<T>(v[k] - center);
  } else {
#pragma unroll
    for (int k = 0; k < kElements; ++k) sum += v[k] = exp_of<T>(v[k] - center);
  }
  sum = lanes_sum<kWarpLanes<kLanes>>(sum);
  A scale = 1;
  if constexpr (kLanes == 0) {
    TopSum<T> all{top, sum};
    all.merge_block(tops, sums);
    scale = exp_of<T>(top - all.top);  // NaN where the whole row is -inf
    top = all.top;
    sum = all.sum;
  }
  if (log_result) {
    const A log_sum = log(sum);
#pragma unroll
    for (int k = 0; k < kElements; ++k) v[k] = v[k] - top - log_sum;
  } else {
    scale /= sum;
#pragma unroll
    for (int k = 0; k < kElements; ++k) v[k] *= scale;
  }
  store_row<T, kVec, kItems>(y + at.row * n, length, at.lane, at.threads, v);
}

// A row of any length: read twice.
template <class T, int kVec>
__global__ void __launch_bounds__(1024) softmax_long(const T* x, T* y, int64_t rows, int64_t n, bool log_result) {
  using A = accumulate_t<T>;
  constexpr int kElements = sizeof(T) == 8 ? 4 : 8, kItems = kElements / kVec;
  __shared__ A tops[32], sums[32];
  const int step = blockDim.x * kElements;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = x + row * n;
    T* to = y + row * n;
    TopSum<T> mine{kLowest<A>, A(0)};
    A v[kElements];
    for (int64_t i = 0; i < n; i += step) {
      load_row<T, kVec, kItems>(from + i, static_cast<int>(min(n - i, int64_t{step})), threadIdx.x, blockDim.x,
                                kLowest<A>, v);
      A top = mine.top;
#pragma unroll
      for (int k = 0; k < kElements; ++k) top = max(top, v[k]);
      const A center = center_of(top);
      mine.sum *= exp_of<T>(mine.top - center);
#pragma unroll
      for (int k = 0; k < kElements; ++k) mine.sum += exp_of<T>(v[k] - center);
      mine.top = top;
    }
    const A top = lanes_max(mine.top);
    mine.sum = lanes_sum(mine.sum * exp_of<T>(mine.top - center_of(top)));
    mine.top = top;
    __syncthreads();  // the row before has been read from shared memory
    mine.merge_block(tops, sums);
    const A log_sum = log(mine.sum), scale = A(1) / mine.sum;
    for (int64_t i = 0; i < n; i += step) {
      const int left = static_cast<int>(min(n - i, int64_t{step}));
      load_row<T, kVec, kItems>(from + i, left, threadIdx.x, blockDim.x, kLowest<A>, v);
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const A d = v[k] - mine.top;
        v[k] = log_result ? d - log_sum : exp_of<T>(d) * scale;
      }
      store_row<T, kVec, kItems>(to + i, left, threadIdx.x, blockDim.x, v);
    }
  }
}

// Interleaved rows (inner > 1). Rows of up to kColumnItems * height elements stay in registers.
template <class T, int kVec>
__global__ void __launch_bounds__(kColumnThreads)
    softmax_columns(const T* x, T* y, const ColumnShape s, bool log_result) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  __shared__ A tops[kColumnThreads * kVec], sums[kColumnThreads * kVec];
  const ColumnPlace<kVec> at(s);
  TopSum<T> mine[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) mine[e] = {kLowest<A>, A(0)};
  A v[kColumnItems][kVec];
  auto load = [&](int64_t i0) {
#pragma unroll
    for (int k = 0; k < kColumnItems; ++k) {
      const int64_t i = i0 + k * at.height;
      P raw = zero_pack<T, kVec>();
      if (i < s.n) raw = *reinterpret_cast<const P*>(x + at.first + i * s.inner);
#pragma unroll
      for (int e = 0; e < kVec; ++e) v[k][e] = i < s.n ? convert<A>(raw.v[e]) : kLowest<A>;
    }
  };
  const int64_t step = int64_t{kColumnItems} * at.height;
  for (int64_t i = at.y; at.live && i < s.n; i += step) {
    load(i);
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      A top = mine[e].top;
#pragma unroll
      for (int k = 0; k < kColumnItems; ++k) top = max(top, v[k][e]);
      const A center = center_of(top);
      A sum = mine[e].sum * exp_of<T>(mine[e].top - center);
#pragma unroll
      for (int k = 0; k < kColumnItems; ++k) sum += exp_of<T>(v[k][e] - center);
      mine[e] = {top, sum};
    }
  }
  if (at.height > 1) {
    const int width = 1 << s.log_x, t = threadIdx.x;
    for (int half = at.height; half > 0; half /= 2) {  // the first round only stores
      if (at.y < half) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const int other = (t + half * width) * kVec + e;
          if (half < at.height) mine[e].merge(tops[other], sums[other]);
          tops[t * kVec + e] = mine[e].top;
          sums[t * kVec + e] = mine[e].sum;
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < kVec; ++e) mine[e] = {tops[at.slot * kVec + e], sums[at.slot * kVec + e]};
  }
  if (!at.live) return;
  A last[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) last[e] = log_result ? log(mine[e].sum) : A(1) / mine[e].sum;
  for (int64_t i0 = at.y; i0 < s.n; i0 += step) {
    if (s.n > step) load(i0);
#pragma unroll
    for (int k = 0; k < kColumnItems; ++k) {
      const int64_t i = i0 + k * at.height;
      if (i >= s.n) continue;
      P raw;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const A d = v[k][e] - mine[e].top;
        raw.v[e] = convert<T>(log_result ? d - last[e] : exp_of<T>(d) * last[e]);
      }
      *reinterpret_cast<P*>(y + at.first + i * s.inner) = raw;
    }
  }
}

template <class T>
void run(Encoder& e, const RowsView& v, const T* x, T* y, bool log_result) {
  const bool aligned = all_aligned16(x, y);
  if (v.inner > 1) {
    const bool packs = aligned && v.inner % kColumnVec<T> == 0;
    const ColumnShape s(v, packs ? kColumnVec<T> : 1);
    auto kernel = packs ? softmax_columns<T, kColumnVec<T>> : softmax_columns<T, 1>;
    return e.launch(kernel, s.blocks, kColumnThreads, 0, x, y, s, log_result);
  }
  const bool done =
      dispatch_tile<T, 4>(v.outer, v.n, aligned, [&]<int kVec, int kItems, int kLanes>(unsigned blocks, int threads) {
        e.launch(softmax_tile<T, kVec, kItems, kLanes>, blocks, threads, 0, x, y, v.outer, v.n, log_result);
      });
  if (done) return;
  constexpr int kVec = 16 / sizeof(T);
  auto kernel = aligned && v.n % kVec == 0 ? softmax_long<T, kVec> : softmax_long<T, 1>;
  e.launch(kernel, Encoder::blocks_for(v.outer, 1), 1024, 0, x, y, v.outer, v.n, log_result);
}

}  // namespace

void softmax(Encoder& e, const RowsView& v, const void* x, void* y, bool log_result) {
  dispatch_floating(v.dtype, [&]<class T>() { run(e, v, static_cast<const T*>(x), static_cast<T*>(y), log_result); });
}

}  // namespace deft::cuda
