#include "kernels/cuda/pool/pool_plan.cuh"

namespace deft::cuda {
namespace {

// Numbers of inputs of one window, product over the dims: those inside, and with the padding.
struct Count {
  int64_t live = 1, length = 1;
  template <class Index>
  __device__ __forceinline__ Count with(const Axis<Index>& a, Index o, const Span<Index>& s) const {
    return {live * max(int64_t{0}, static_cast<int64_t>(s.end - s.begin)), length * a.padded_length(o)};
  }
};

// Elements added up before their sum goes to one in f64: a long sum in f32 would lose digits.
constexpr int kRun = 128;

template <class T, int kVec, class Index>
__global__ void __launch_bounds__(kPoolThreads) avg_forward(const Plan<Index> p, const T* x, T* y) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x;
  if (n >= p.outputs.total) return;
  const Place<Index> o = p.outputs.place(static_cast<Index>(n));
  Span<Index> s[3];
  Count count;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    s[d] = p.axis[d].window(o.at[d]);
    count = count.with(p.axis[d], o.at[d], s[d]);
  }
  A sum[kVec];
  double total[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) sum[e] = 0, total[e] = 0;
  Index pending = 0;
  const T* from = x + static_cast<int64_t>(o.plane) * p.in * p.inner + o.pack * kVec;
  for (Index z = s[0].begin; z < s[0].end; ++z) {
    for (Index r = s[1].begin; r < s[1].end; ++r) {
      const Index line = (z * p.axis[1].in + r) * p.axis[2].in;
      for (Index q = s[2].begin; q < s[2].end;) {
        const Index stop = min(s[2].end, q + kRun);
        pending += stop - q;
        for (; q < stop; ++q) {
          const P raw = *reinterpret_cast<const P*>(from + static_cast<int64_t>(line + q) * p.inner);
#pragma unroll
          for (int e = 0; e < kVec; ++e) sum[e] += convert<A>(raw.v[e]);
        }
        if (pending < kRun) continue;
        pending = 0;
#pragma unroll
        for (int e = 0; e < kVec; ++e) total[e] += sum[e], sum[e] = 0;
      }
    }
  }
  const A divisor = p.template weight<A>(count.live, count.length);
  P out;
#pragma unroll
  for (int e = 0; e < kVec; ++e)
    out.v[e] = convert<T>(divisor == A(0) ? A(0) : static_cast<A>(total[e] + sum[e]) / divisor);
  reinterpret_cast<P*>(y)[n] = out;
}

// A warp for an output with a large window; inner is 1.
template <class T>
__global__ void __launch_bounds__(kPoolThreads) avg_forward_large(const Plan<int32_t> p, const T* x, T* y) {
  using A = accumulate_t<T>;
  const int64_t n = (static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (n >= p.outputs.total) return;
  const Place<int32_t> o = p.outputs.place(static_cast<int32_t>(n));
  Span<int32_t> s[3];
  Count count;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    s[d] = p.axis[d].window(o.at[d]);
    count = count.with(p.axis[d], o.at[d], s[d]);
  }
  const int32_t height = s[1].end - s[1].begin, width = s[2].end - s[2].begin;
  const T* from = x + static_cast<int64_t>(o.plane) * p.in;
  double sum = 0;
#pragma unroll 4
  for (int32_t i = lane; i < static_cast<int32_t>(count.live); i += 32) {
    const int32_t line = i / width, z = line / height;
    sum += convert<double>(from[((s[0].begin + z) * p.axis[1].in + s[1].begin + (line - z * height)) * p.axis[2].in +
                                s[2].begin + (i - line * width)]);
  }
  sum = lanes_sum(sum);
  const A divisor = p.template weight<A>(count.live, count.length);
  if (lane == 0) y[n] = convert<T>(divisor == A(0) ? A(0) : static_cast<A>(sum) / divisor);
}

template <class T, int kVec, class Index>
__global__ void __launch_bounds__(kPoolThreads) avg_backward(const Plan<Index> p, const T* dy, T* dx) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kPoolThreads + threadIdx.x;
  if (n >= p.inputs.total) return;
  const Place<Index> i = p.inputs.place(static_cast<Index>(n));
  const Span<Index> zs = p.axis[0].covering(i.at[0]), ys = p.axis[1].covering(i.at[1]),
                    xs = p.axis[2].covering(i.at[2]);
  A sum[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) sum[e] = 0;
  for (Index z = zs.begin; z < zs.end; ++z) {
    const Count of_z = Count{}.with(p.axis[0], z, p.axis[0].window(z));
    for (Index r = ys.begin; r < ys.end; ++r) {
      const Count of_r = of_z.with(p.axis[1], r, p.axis[1].window(r));
      for (Index q = xs.begin; q < xs.end; ++q) {
        const Count all = of_r.with(p.axis[2], q, p.axis[2].window(q));
        const A divisor = p.template weight<A>(all.live, all.length);
        if (divisor == A(0)) continue;
        const int64_t o = (static_cast<int64_t>(z) * p.axis[1].out + r) * p.axis[2].out + q;
        const int64_t from = (static_cast<int64_t>(i.plane) * p.out + o) * p.inner + i.pack * kVec;
        const P raw = *reinterpret_cast<const P*>(dy + from);
#pragma unroll
        for (int e = 0; e < kVec; ++e) sum[e] += convert<A>(raw.v[e]) / divisor;
      }
    }
  }
  P out;
#pragma unroll
  for (int e = 0; e < kVec; ++e) out.v[e] = convert<T>(sum[e]);
  reinterpret_cast<P*>(dx)[n] = out;
}

}  // namespace

void avg_pool_forward(Encoder& e, const PoolCall& call, const void* x, void* y) {
  dispatch_floating(call.dtype, [&]<class T>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (call.inner == 1 && window_size(call) >= kLargeWindow && fits_int32(call, false)) {
      const Plan<int32_t> p(call, false, 1);
      return e.launch(avg_forward_large<T>, Encoder::blocks_for(p.outputs.total, kPoolThreads / 32), kPoolThreads, 0, p,
                      from, to);
    }
    with_plan<T>(call, false, all_aligned16(x, y), [&]<int kVec, class Index>(const Plan<Index>& p) {
      e.launch(avg_forward<T, kVec, Index>, Encoder::blocks_for(p.outputs.total, kPoolThreads), kPoolThreads, 0, p,
               from, to);
    });
  });
}

void avg_pool_backward(Encoder& e, const PoolCall& call, const void* dy, void* dx) {
  dispatch_floating(call.dtype, [&]<class T>() {
    with_plan<T>(call, false, all_aligned16(dy, dx), [&]<int kVec, class Index>(const Plan<Index>& p) {
      e.launch(avg_backward<T, kVec, Index>, Encoder::blocks_for(p.inputs.total, kPoolThreads), kPoolThreads, 0, p,
               static_cast<const T*>(dy), static_cast<T*>(dx));
    });
  });
}

}  // namespace deft::cuda
