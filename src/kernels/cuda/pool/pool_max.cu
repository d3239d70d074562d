#include "kernels/cuda/pool/pool_plan.cuh"

namespace deft::cuda {
namespace {

template <class T>
__device__ __forceinline__ compute_t<T> lowest() {
  if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::lowest();
  else
    return -std::numeric_limits<compute_t<T>>::infinity();
}

// One thread for kVec neighbouring channels of an output.
template <class T, int kVec, class Index>
__global__ void __launch_bounds__(kPoolThreads) max_forward(const Plan<Index> p, const T* x, T* y, int64_t* indices) {
  using C = compute_t<T>;
  using P = Pack<T, kVec>;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x;
  if (n >= p.outputs.total) return;
  const Place<Index> o = p.outputs.place(static_cast<Index>(n));
  const Span<Index> zs = p.axis[0].window(o.at[0]), ys = p.axis[1].window(o.at[1]), xs = p.axis[2].window(o.at[2]);
  C best[kVec];
  Index where[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) {
    best[e] = lowest<T>();
    where[e] = -1;
  }
  const T* from = x + static_cast<int64_t>(o.plane) * p.in * p.inner + o.pack * kVec;
  for (Index z = zs.begin; z < zs.end; z += p.axis[0].dilation) {
    for (Index r = ys.begin; r < ys.end; r += p.axis[1].dilation) {
      const Index line = (z * p.axis[1].in + r) * p.axis[2].in;
      for (Index q = xs.begin; q < xs.end; q += p.axis[2].dilation) {
        const P raw = *reinterpret_cast<const P*>(from + static_cast<int64_t>(line + q) * p.inner);
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const C v = convert<C>(raw.v[e]);
          if (v > best[e] || v != v || where[e] < 0) {
            best[e] = v;
            where[e] = line + q;
          }
        }
      }
    }
  }
  P out;
#pragma unroll
  for (int e = 0; e < kVec; ++e) out.v[e] = convert<T>(best[e]);
  reinterpret_cast<P*>(y)[n] = out;
  if (!indices) return;
  constexpr int kPair = kVec == 1 ? 1 : 2;
#pragma unroll
  for (int e = 0; e < kVec; e += kPair) {
    Pack<int64_t, kPair> pair;
#pragma unroll
    for (int k = 0; k < kPair; ++k) pair.v[k] = where[e + k];
    reinterpret_cast<Pack<int64_t, kPair>*>(indices + n * kVec)[e / kPair] = pair;
  }
}

// The result of a walk in order: the first of equal values, but the last NaN.
template <class C>
__device__ __forceinline__ bool replaces(C v, int32_t at, C best, int32_t best_at) {
  if (at < 0) return false;
  if (best_at < 0) return true;
  if (v != v) return best == best || at > best_at;
  if (best != best) return false;
  return v > best || (v == best && at < best_at);
}

// A warp for an output with a large window; inner is 1.
template <class T>
__global__ void __launch_bounds__(kPoolThreads)
    max_forward_large(const Plan<int32_t> p, const T* x, T* y, int64_t* indices) {
  using C = compute_t<T>;
  const int64_t n = (static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (n >= p.outputs.total) return;
  const Place<int32_t> o = p.outputs.place(static_cast<int32_t>(n));
  const Span<int32_t> zs = p.axis[0].window(o.at[0]), ys = p.axis[1].window(o.at[1]), xs = p.axis[2].window(o.at[2]);
  auto length = [&](const Span<int32_t>& s, int d) {
    return s.end > s.begin ? (s.end - s.begin + p.axis[d].dilation - 1) / p.axis[d].dilation : 0;
  };
  const int32_t height = length(ys, 1), width = length(xs, 2), count = length(zs, 0) * height * width;
  const T* from = x + static_cast<int64_t>(o.plane) * p.in;
  C best = lowest<T>();
  int32_t where = -1;
  for (int32_t i = lane; i < count; i += 32) {
    const int32_t line = i / width, z = line / height;
    const int32_t at =
        ((zs.begin + z * p.axis[0].dilation) * p.axis[1].in + ys.begin + (line - z * height) * p.axis[1].dilation) *
            p.axis[2].in +
        xs.begin + (i - line * width) * p.axis[2].dilation;
    const C v = convert<C>(from[at]);
    if (v > best || v != v || where < 0) {
      best = v;
      where = at;
    }
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const C v = __shfl_xor_sync(0xffffffffu, best, d);
    const int32_t at = __shfl_xor_sync(0xffffffffu, where, d);
    if (replaces(v, at, best, where)) {
      best = v;
      where = at;
    }
  }
  if (lane > 0) return;
  y[n] = convert<T>(best);
  if (indices) indices[n] = where;
}

template <class T, int kVec, class Index>
__global__ void __launch_bounds__(kPoolThreads)
    max_backward(const Plan<Index> p, const T* dy, const int64_t* indices, T* dx) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x;
  if (n >= p.inputs.total) return;
  const Place<Index> i = p.inputs.place(static_cast<Index>(n));
  const Span<Index> zs = p.axis[0].covering(i.at[0]), ys = p.axis[1].covering(i.at[1]),
                    xs = p.axis[2].covering(i.at[2]);
  const int64_t me = (static_cast<int64_t>(i.at[0]) * p.axis[1].in + i.at[1]) * p.axis[2].in + i.at[2];
  A sum[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) sum[e] = 0;
  for (Index z = zs.begin; z < zs.end; ++z) {
    for (Index r = ys.begin; r < ys.end; ++r) {
      for (Index q = xs.begin; q < xs.end; ++q) {
        const int64_t o = (static_cast<int64_t>(z) * p.axis[1].out + r) * p.axis[2].out + q;
        const int64_t from = (static_cast<int64_t>(i.plane) * p.out + o) * p.inner + i.pack * kVec;
        const P raw = *reinterpret_cast<const P*>(dy + from);
        constexpr int kPair = kVec == 1 ? 1 : 2;
#pragma unroll
        for (int e = 0; e < kVec; e += kPair) {
          const Pack<int64_t, kPair> at = *reinterpret_cast<const Pack<int64_t, kPair>*>(indices + from + e);
#pragma unroll
          for (int k = 0; k < kPair; ++k)
            if (at.v[k] == me) sum[e + k] += convert<A>(raw.v[e + k]);
        }
      }
    }
  }
  P out;
#pragma unroll
  for (int e = 0; e < kVec; ++e) out.v[e] = convert<T>(sum[e]);
  reinterpret_cast<P*>(dx)[n] = out;
}

}  // namespace

void max_pool_forward(Encoder& e, const PoolCall& call, const void* x, void* y, int64_t* indices) {
  dispatch_all(call.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      const T* from = static_cast<const T*>(x);
      T* to = static_cast<T*>(y);
      if (call.inner == 1 && window_size(call) >= kLargeWindow && fits_int32(call, true)) {
        const Plan<int32_t> p(call, true, 1);
        return e.launch(max_forward_large<T>, Encoder::blocks_for(p.outputs.total, kPoolThreads / 32), kPoolThreads, 0,
                        p, from, to, indices);
      }
      with_plan<T>(call, true, all_aligned16(x, y, indices), [&]<int kVec, class Index>(const Plan<Index>& p) {
        e.launch(max_forward<T, kVec, Index>, Encoder::blocks_for(p.outputs.total, kPoolThreads), kPoolThreads, 0, p,
                 from, to, indices);
      });
    }
  });
}

void max_pool_backward(Encoder& e, const PoolCall& call, const void* dy, const int64_t* indices, void* dx) {
  dispatch_floating(call.dtype, [&]<class T>() {
    with_plan<T>(call, true, all_aligned16(dy, indices, dx), [&]<int kVec, class Index>(const Plan<Index>& p) {
      e.launch(max_backward<T, kVec, Index>, Encoder::blocks_for(p.inputs.total, kPoolThreads), kPoolThreads, 0, p,
               static_cast<const T*>(dy), indices, static_cast<T*>(dx));
    });
  });
}

}  // namespace deft::cuda
