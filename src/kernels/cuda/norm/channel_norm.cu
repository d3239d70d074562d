#include "kernels/cuda/norm/channel_norm.h"

#include "kernels/cuda/norm/channel_norm_walk.cuh"

namespace deft::cuda {
namespace {

// Mean and sum of squared deviations from it of a chunk; how many elements that is follows from its number.
struct Moments {
  double mean, squares;
};

// Running moments of `count` elements.
template <class A>
struct Welford {
  A mean = 0, squares = 0;
  // Takes in others beside the `count` elements there are; `part` is their share of the result.
  __device__ __forceinline__ void merge(A count, A other_mean, A other_squares, A part) {
    const A delta = other_mean - mean;
    mean += delta * part;
    squares += other_squares + delta * (delta * (count * part));  // in this order: delta^2 may be too large
  }
};
template <class A>
__device__ __forceinline__ A share(A count, A more) {
  return more > A(0) ? more / (count + more) : A(0);
}

// Over a warp; lane 0 gets the result.
template <class A>
__device__ __forceinline__ void merge_lanes(Welford<A>& w, A& count) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const A more = __shfl_down_sync(0xffffffffu, count, d), mean = __shfl_down_sync(0xffffffffu, w.mean, d),
            squares = __shfl_down_sync(0xffffffffu, w.squares, d);
    w.merge(count, mean, squares, share(count, more));
    count += more;
  }
}

// Batches of packs get moments of their own, two passes over registers, and are merged: no sum grows large.
template <class T, int kVec>
__global__ void __launch_bounds__(kChannelThreads) segment_moments(const T* x, const Segments s, Moments* out) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = kChannelItems<kVec>;
  __shared__ A means[32], squares[32], counts[32];
  for (int64_t block = blockIdx.x; block < s.units(); block += gridDim.x) {
    const int64_t segment = block / s.chunks, part = block - segment * s.chunks;
    const int64_t end = min((part + 1) * s.chunk, s.packs());
    const T* from = x + segment * s.stride;
    Welford<A> w;
    A count = 0;
    for (int64_t first = part * s.chunk + threadIdx.x; first < end; first += kItems * blockDim.x) {
      P raw[kItems];
      int packs = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        raw[k] = zero_pack<T, kVec>();
        const int64_t i = first + static_cast<int64_t>(k) * blockDim.x;
        if (i >= end) continue;
        raw[k] = load_once(reinterpret_cast<const P*>(from + s.offset(i, kVec)));
        ++packs;
      }
      // Relative to one of them: the mean of equal values is that value, whatever 1 / n rounds to.
      const A base = convert<A>(raw[0].v[0]);
      A sum = 0, square = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k)
#pragma unroll
        for (int e = 0; e < kVec; ++e)
          if (k < packs) sum += convert<A>(raw[k].v[e]) - base;
      const A more = static_cast<A>(packs * kVec), mean = base + sum / more;
#pragma unroll
      for (int k = 0; k < kItems; ++k)
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const A d = convert<A>(raw[k].v[e]) - mean;
          if (k < packs) square += d * d;
        }
      w.merge(count, mean, square, share(count, more));
      count += more;
    }
    merge_lanes(w, count);
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) {
      means[threadIdx.x / 32] = w.mean;
      squares[threadIdx.x / 32] = w.squares;
      counts[threadIdx.x / 32] = count;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      const bool used = lane < warps;
      w.mean = used ? means[lane] : A(0);
      w.squares = used ? squares[lane] : A(0);
      count = used ? counts[lane] : A(0);
      merge_lanes(w, count);
      if (lane == 0) out[block] = {static_cast<double>(w.mean), static_cast<double>(w.squares)};
    }
    __syncthreads();  // the next round writes what the first warp reads
  }
}

// The same for NHWC data: out[plane * chunks + chunk].
template <class T, int kVec>
__global__ void __launch_bounds__(kChannelThreads) last_moments(const T* x, const NhwcRows r, Moments* out) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = 4;
  __shared__ A means[kChannelThreads * kVec], squares[kChannelThreads * kVec], counts[kChannelThreads];
  for (int64_t block = blockIdx.x; block < r.units(); block += gridDim.x) {
    const LastPlace<kVec> at(r, block);
    Welford<A> w[kVec];
    A count = 0;
    for (int64_t row = at.begin + at.y; at.live && row < at.end; row += kItems * at.height) {
      P raw[kItems];
      int items = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        raw[k] = zero_pack<T, kVec>();
        if (row + k * at.height >= at.end) continue;
        raw[k] = load_once(reinterpret_cast<const P*>(x + at.at(r, row + k * at.height)));
        ++items;
      }
      const A more = static_cast<A>(items), part = share(count, more), one = A(1) / more;
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const A base = convert<A>(raw[0].v[e]);
        A sum = 0, square = 0;
#pragma unroll
        for (int k = 0; k < kItems; ++k)
          if (k < items) sum += convert<A>(raw[k].v[e]) - base;
        const A mean = base + sum * one;
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
          const A d = convert<A>(raw[k].v[e]) - mean;
          if (k < items) square += d * d;
        }
        w[e].merge(count, mean, square, part);
      }
      count += more;
    }
    const int t = threadIdx.x, width = 1 << r.log_x;
    for (int half = at.height; half > 0; half /= 2) {  // the first round only stores
      if (at.y < half) {
        const int other = t + half * width;
        const A more = half < at.height ? counts[other] : A(0), part = share(count, more);
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          if (half < at.height) w[e].merge(count, means[other * kVec + e], squares[other * kVec + e], part);
          means[t * kVec + e] = w[e].mean;
          squares[t * kVec + e] = w[e].squares;
        }
        count += more;
        counts[t] = count;
      }
      __syncthreads();
    }
    if (at.y > 0 || !at.live) continue;
#pragma unroll
    for (int e = 0; e < kVec; ++e)
      out[(at.image * r.c + at.channel + e) * r.chunks + at.part] = {static_cast<double>(w[e].mean),
                                                                     static_cast<double>(w[e].squares)};
  }
}

// The partial results of a group: the moments of `members` planes (or of the group itself), each in `chunks` chunks.
struct Parts {
  const Moments* moments;                 // null where there is no element
  int64_t members, chunks, chunk, total;  // chunk and total: elements of a chunk and of a member
};

template <class A>
struct Finish {
  Parts parts;
  ChannelsView view;
  const void* x;
  bool per_image;                       // or a group is a channel of all images
  int64_t groups, per_group, channels;  // per_group: channels of a group; 1 for batch norm
  double eps, momentum;
  bool training;
  RunningNumbers running_mean, running_var;
  const void *weight, *bias;
  DType factors;
  A *mean, *rstd;
  MapTable<A> map;
};

__device__ __forceinline__ void move(const RunningNumbers& r, int64_t i, double momentum, double batch) {
  const double old = load_as<double>(r.data, r.dtype, i * r.stride);
  store_as(r.data, r.dtype, i * r.stride, old + momentum * (batch - old));
}

// Element i of a group: of the channels of an image, or of a channel in all images.
template <class A>
__device__ int64_t place_in(const Finish<A>& f, int64_t group, int64_t i) {
  const ChannelsView& v = f.view;
  const int64_t plane = i / v.s, at = i - plane * v.s, groups = v.c / f.per_group;
  const int64_t image = f.per_image ? group / groups : plane;
  const int64_t channel = f.per_image ? group % groups * f.per_group + plane : group;
  return v.last ? (image * v.s + at) * v.c + channel : (image * v.c + channel) * v.s + at;
}

// The squares of a group leave the range of f32 long before its numbers do: such a group, and one with infinities and
// NaN, is summed again in f64.
template <class A>
__device__ Moments wide_moments(const Finish<A>& f, int64_t group, double count, double* shared) {
  const auto n = static_cast<int64_t>(count);
  auto value = [&](int64_t i) { return load_as<double>(f.x, f.view.dtype, place_in(f, group, i)); };
  double mean = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) mean += value(i) / count;
  mean = block_sum(mean, shared);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) squares += (value(i) - mean) * (value(i) - mean);
  return {mean, block_sum(squares, shared)};
}

// One block for a group: statistics, then the coefficients of its planes.
template <class A>
__global__ void __launch_bounds__(kChannelThreads) finish_groups(const Finish<A> f) {
  __shared__ double shared[32];
  const int64_t group = blockIdx.x;
  const int lane = threadIdx.x, width = blockDim.x;
  if (group >= f.groups) return;
  double mean = 0, rstd = 0;
  if (!f.training) {
    mean = load_as<double>(f.running_mean.data, f.running_mean.dtype, group * f.running_mean.stride);
    rstd = 1 / sqrt(load_as<double>(f.running_var.data, f.running_var.dtype, group * f.running_var.stride) + f.eps);
  } else if (f.parts.moments) {
    const Parts& p = f.parts;
    const int64_t parts = p.members * p.chunks;
    const Moments* from = p.moments + group * parts;
    auto count_of = [&](int64_t i) { return static_cast<double>(min(p.chunk, p.total - i % p.chunks * p.chunk)); };
    const double count = static_cast<double>(p.members) * static_cast<double>(p.total);
    double squares = 0;
    const double base = from[0].mean;
    for (int64_t i = lane; i < parts; i += width) mean += (from[i].mean - base) * (count_of(i) / count);
    mean = base + block_sum(mean, shared);
    for (int64_t i = lane; i < parts; i += width) {
      const double d = from[i].mean - mean;
      squares += from[i].squares + count_of(i) * d * d;
    }
    squares = block_sum(squares, shared);
    if (!isfinite(squares)) {
      const Moments wide = wide_moments(f, group, count, shared);
      mean = wide.mean, squares = wide.squares;
    }
    rstd = 1 / sqrt(squares / count + f.eps);
    if (lane == 0 && f.running_mean.data) {
      move(f.running_mean, group, f.momentum, mean);
      move(f.running_var, group, f.momentum, squares / (count - 1));
    }
  }
  if (lane == 0) {
    f.mean[group] = static_cast<A>(mean);
    f.rstd[group] = static_cast<A>(rstd);
  }
  for (int64_t k = lane; f.map.of_x && k < f.per_group; k += width) {
    const int64_t entry = group * f.per_group + k, channel = entry % f.channels;
    f.map.of_x[entry] = static_cast<A>(f.weight ? rstd * load_as<double>(f.weight, f.factors, channel) : rstd);
    f.map.center[entry] = static_cast<A>(mean);
    f.map.offset[entry] = static_cast<A>(f.bias ? load_as<double>(f.bias, f.factors, channel) : 0.0);
  }
}

template <class T>
void finish(Encoder& e, const ChannelNormCall& c, const Parts& parts, bool empty) {
  using A = accumulate_t<T>;
  const ChannelsView& v = c.view;
  const int64_t groups = c.groups ? v.n * c.groups : v.c, per_group = c.groups ? v.c / c.groups : 1;
  const int64_t entries = groups * per_group;
  if (groups == 0) return;
  Workspace table(e, static_cast<size_t>(c.affine || empty ? 1 : 3 * entries) * sizeof(A));
  A *t = table.as<A>(), *affine = static_cast<A*>(c.affine);
  MapTable<A> map{};
  if (affine)
    map = {nullptr, affine, static_cast<A*>(c.mean), affine + entries};
  else if (!empty)
    map = {nullptr, t, t + entries, t + 2 * entries};
  const Finish<A> f{parts,
                    v,
                    c.x,
                    c.groups != 0,
                    groups,
                    per_group,
                    v.c,
                    c.eps,
                    c.momentum,
                    c.training,
                    c.running_mean,
                    c.running_var,
                    c.weight,
                    c.bias,
                    c.factors,
                    static_cast<A*>(c.mean),
                    static_cast<A*>(c.rstd),
                    map};
  e.launch(finish_groups<A>, Encoder::blocks_for(groups, 1), finish_threads(parts.members * parts.chunks), 0, f);
  if (empty) return;
  map_channels<T>(e, v, c.groups != 0, affine ? MapKind::relu_sum : MapKind::sum, static_cast<const T*>(c.residual),
                  static_cast<const T*>(c.x), map, static_cast<T*>(c.y));
}

template <class T>
void run(Encoder& e, const ChannelNormCall& c) {
  constexpr int kVec = 16 / sizeof(T);
  const ChannelsView& v = c.view;
  const T* x = static_cast<const T*>(c.x);
  const bool empty = v.n * v.c * v.s == 0;
  if (empty || !c.training) return finish<T>(e, c, {}, empty);
  if (v.last) {
    const bool packs = aligned16(x) && v.c % kVec == 0;
    const NhwcRows r(e, v, packs ? kVec : 1, kResidentBlocks);
    Workspace moments(e, static_cast<size_t>(v.n * v.c * r.chunks) * sizeof(Moments));
    e.launch(packs ? last_moments<T, kVec> : last_moments<T, 1>, Encoder::blocks_for(r.units(), 1), kChannelThreads, 0,
             x, r, moments.as<Moments>());
    return finish<T>(e, c, {moments.as<Moments>(), c.groups ? v.c / c.groups : 1, r.chunks, r.chunk, v.s}, false);
  }
  // The channels of a group lie side by side, so that it is one segment; a channel of a batch has a part per image.
  const int64_t run_length = c.groups ? v.c / c.groups * v.s : v.s;
  const bool packs = aligned16(x) && run_length % kVec == 0;
  const int vec = packs ? kVec : 1;
  const Segments s = c.groups ? Segments(e, v.n * c.groups, run_length, 1, run_length, 0, vec)
                              : Segments(e, v.c, v.s, v.n, v.s, v.c * v.s, vec);
  Workspace moments(e, static_cast<size_t>(s.count * s.chunks) * sizeof(Moments));
  e.launch(packs ? segment_moments<T, kVec> : segment_moments<T, 1>, Encoder::blocks_for(s.units(), 1), s.threads, 0, x,
           s, moments.as<Moments>());
  finish<T>(e, c, {moments.as<Moments>(), 1, s.chunks, s.chunk * vec, s.packs() * vec}, false);
}

}  // namespace

void channel_norm(Encoder& e, const ChannelNormCall& c) {
  dispatch_floating(c.view.dtype, [&]<class T>() { run<T>(e, c); });
}

}  // namespace deft::cuda
