#include "kernels/cuda/norm/channel_norm_walk.cuh"

namespace deft::cuda {
namespace {

// Sums of g, and of g * (x - mean), over a chunk.
struct GradSums {
  double g, product;
};

// Which statistics a plane has: its group's (group norm) or its channel's (batch norm, where planes are channels).
struct GroupOf {
  int64_t per_group;  // channels of a group; 1 for batch norm
  __device__ __forceinline__ int64_t operator()(int64_t plane) const { return plane / per_group; }
};

// A relu between the norm and g, see ChannelNormBackwardCall.
enum class Gate { none, from_x, from_y };
template <class T>
struct GateData {
  const accumulate_t<T>*of_x, *offset;  // of channels
  const T *y, *more;
  T* masked;
};
template <class F>
void with_gate(const ChannelNormBackwardCall& c, const F& f) {
  c.y        ? f.template operator()<Gate::from_y>()
  : c.affine ? f.template operator()<Gate::from_x>()
             : f.template operator()<Gate::none>();
}
// Loads the operands of the gate: the pack at element `at`.
template <class T, int kVec>
__device__ __forceinline__ void load_gate(const GateData<T>& gate, int64_t at, Pack<T, kVec>& y, Pack<T, kVec>& more) {
  using P = Pack<T, kVec>;
  y = load_once(reinterpret_cast<const P*>(gate.y + at));
  if (gate.more) more = load_once(reinterpret_cast<const P*>(gate.more + at));
}
// Zeroes g where the relu does not pass it, and stores it.
template <class T, int kVec>
__device__ __forceinline__ void apply_gate(const GateData<T>& gate, int64_t at, Pack<T, kVec>& g,
                                           const Pack<T, kVec>& y, const Pack<T, kVec>& more) {
  using A = accumulate_t<T>;
#pragma unroll
  for (int e = 0; e < kVec; ++e) {
    A v = convert<A>(g.v[e]);
    if (gate.more) v += convert<A>(more.v[e]);
    g.v[e] = convert<T>(passed(v, convert<A>(y.v[e])));
  }
  *reinterpret_cast<Pack<T, kVec>*>(gate.masked + at) = g;
}

// A segment is a plane, or all planes of a channel.
template <Gate kGate, class T, int kVec>
__global__ void __launch_bounds__(kChannelThreads)
    segment_grad_sums(const T* g, const T* x, const accumulate_t<T>* means, const GroupOf group_of, const Segments s,
                      const GateData<T> gate, GradSums* out) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = kChannelItems<kVec>;
  __shared__ A shared[32];
  for (int64_t block = blockIdx.x; block < s.units(); block += gridDim.x) {
    const int64_t segment = block / s.chunks, part = block - segment * s.chunks;
    const int64_t end = min((part + 1) * s.chunk, s.packs());
    const A mean = means[group_of(segment)];
    A of_x = 0, offset = 0;
    if constexpr (kGate == Gate::from_x) of_x = gate.of_x[segment], offset = gate.offset[segment];
    A sum = 0, product = 0;
    for (int64_t first = part * s.chunk + threadIdx.x; first < end; first += kItems * blockDim.x) {
      P gs[kItems], xs[kItems];
      [[maybe_unused]] P ys[kItems], others[kItems];
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        gs[k] = xs[k] = zero_pack<T, kVec>();
        const int64_t i = first + static_cast<int64_t>(k) * blockDim.x;
        if (i >= end) continue;
        const int64_t at = segment * s.stride + s.offset(i, kVec);
        gs[k] = load_once(reinterpret_cast<const P*>(g + at));
        xs[k] = load_once(reinterpret_cast<const P*>(x + at));
        if constexpr (kGate == Gate::from_y) load_gate(gate, at, ys[k], others[k]);
      }
      if constexpr (kGate == Gate::from_y) {
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
          const int64_t i = first + static_cast<int64_t>(k) * blockDim.x;
          if (i < end) apply_gate(gate, segment * s.stride + s.offset(i, kVec), gs[k], ys[k], others[k]);
        }
      }
      A more = 0, products = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k)
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const A d = convert<A>(xs[k].v[e]) - mean;
          A v = convert<A>(gs[k].v[e]);
          if constexpr (kGate == Gate::from_x) v = passed(v, rounded<T>(fma(of_x, d, offset)));
          more += v;
          products = fma(v, d, products);
        }
      sum += more;
      product += products;
    }
    sum = block_sum(sum, shared);
    product = block_sum(product, shared);
    if (threadIdx.x == 0) out[block] = {static_cast<double>(sum), static_cast<double>(product)};
    __syncthreads();
  }
}

// The same for NHWC data: out[plane * chunks + chunk].
template <Gate kGate, class T, int kVec>
__global__ void __launch_bounds__(kChannelThreads, 2)
    last_grad_sums(const T* g, const T* x, const accumulate_t<T>* means, const GroupOf group_of, const NhwcRows r,
                   const GateData<T> gate, GradSums* out) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = 4, kAtOnce = kGate == Gate::from_y ? 2 : kItems;  // more of y have no room in registers
  __shared__ A sums[kChannelThreads * kVec], products[kChannelThreads * kVec];
  for (int64_t block = blockIdx.x; block < r.units(); block += gridDim.x) {
    const LastPlace<kVec> at(r, block);
    A sum[kVec], product[kVec], mean[kVec];
    [[maybe_unused]] A of_x[kVec], offset[kVec];
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      sum[e] = product[e] = 0;
      mean[e] = at.live ? means[group_of(at.image * r.c + at.channel + e)] : A(0);
      if constexpr (kGate == Gate::from_x) {
        of_x[e] = at.live ? gate.of_x[at.channel + e] : A(0);
        offset[e] = at.live ? gate.offset[at.channel + e] : A(0);
      }
    }
    for (int64_t row = at.begin + at.y; at.live && row < at.end; row += kItems * at.height) {
      A more[kVec] = {}, with_x[kVec] = {};
#pragma unroll
      for (int batch = 0; batch < kItems / kAtOnce; ++batch) {
        const int64_t first = row + batch * kAtOnce * at.height;
        P gs[kAtOnce], xs[kAtOnce];
        [[maybe_unused]] P ys[kAtOnce], others[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          gs[k] = xs[k] = zero_pack<T, kVec>();
          if (first + k * at.height >= at.end) continue;
          const int64_t i = at.at(r, first + k * at.height);
          gs[k] = load_once(reinterpret_cast<const P*>(g + i));
          xs[k] = load_once(reinterpret_cast<const P*>(x + i));
          if constexpr (kGate == Gate::from_y) load_gate(gate, i, ys[k], others[k]);
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          if constexpr (kGate == Gate::from_y) {
            const int64_t i = first + k * at.height;
            if (i < at.end) apply_gate(gate, at.at(r, i), gs[k], ys[k], others[k]);
          }
#pragma unroll
          for (int e = 0; e < kVec; ++e) {
            const A d = convert<A>(xs[k].v[e]) - mean[e];
            A v = convert<A>(gs[k].v[e]);
            if constexpr (kGate == Gate::from_x) v = passed(v, rounded<T>(fma(of_x[e], d, offset[e])));
            more[e] += v;
            with_x[e] = fma(v, d, with_x[e]);
          }
        }
      }
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        sum[e] += more[e];
        product[e] += with_x[e];
      }
    }
    const int t = threadIdx.x, width = 1 << r.log_x;
    for (int half = at.height; half > 0; half /= 2) {  // the first round only stores
      if (at.y < half) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          const int other = (t + half * width) * kVec + e;
          if (half < at.height) {
            sum[e] += sums[other];
            product[e] += products[other];
          }
          sums[t * kVec + e] = sum[e];
          products[t * kVec + e] = product[e];
        }
      }
      __syncthreads();
    }
    if (at.y > 0 || !at.live) continue;
#pragma unroll
    for (int e = 0; e < kVec; ++e)
      out[(at.image * r.c + at.channel + e) * r.chunks + at.part] = {static_cast<double>(sum[e]),
                                                                     static_cast<double>(product[e])};
  }
}

template <class A>
struct Finish {
  const GradSums* sums;  // [planes][chunks]; null where they are not needed
  int64_t chunks;
  int64_t images, channels, groups, per_group;  // images: 1 for batch norm; groups: of all images
  double count;                                 // elements of a group
  bool moving;
  const void* weight;
  DType factors;
  const A *mean, *rstd;
  void *dweight, *dbias;
  MapTable<A> map;
  bool with_parameters;  // of batch norm, by finish_map

  __device__ __forceinline__ void store_parameters(int64_t channel, double of_weight, double of_bias) const {
    if (dweight) store_as(dweight, factors, channel, of_weight);
    if (dbias) store_as(dbias, factors, channel, of_bias);
  }
  __device__ __forceinline__ double weight_of(int64_t channel) const {
    return weight ? load_as<double>(weight, factors, channel) : 1.0;
  }
};

// One block for a channel: sums over its images.
template <class A>
__global__ void __launch_bounds__(kChannelThreads) finish_parameters(const Finish<A> f) {
  __shared__ double shared[32];
  const int64_t channel = blockIdx.x;
  const int lane = threadIdx.x;
  if (channel >= f.channels) return;
  double dweight = 0, dbias = 0;
  for (int64_t i = lane; i < f.images * f.chunks; i += blockDim.x) {
    const int64_t image = i / f.chunks, plane = image * f.channels + channel;
    const GradSums s = f.sums[plane * f.chunks + (i - image * f.chunks)];
    dweight += s.product * static_cast<double>(f.rstd[plane / f.per_group]);
    dbias += s.g;
  }
  dweight = block_sum(dweight, shared);
  dbias = block_sum(dbias, shared);
  if (lane == 0) f.store_parameters(channel, dweight, dbias);
}

// One block for a group: its sums, then the coefficients of its planes. A group of batch norm is a channel, whose
// parameters are done on the way.
template <class A>
__global__ void __launch_bounds__(kChannelThreads) finish_map(const Finish<A> f) {
  __shared__ double shared[32];
  const int64_t group = blockIdx.x;
  const int lane = threadIdx.x;
  if (group >= f.groups) return;
  const int64_t first = group * f.per_group;
  const double mean = static_cast<double>(f.mean[group]), rstd = static_cast<double>(f.rstd[group]);
  const bool own_weights = f.per_group > 1;
  double sum = 0, product = 0;
  for (int64_t i = lane; f.sums && i < f.per_group * f.chunks; i += blockDim.x) {
    const double weight = own_weights ? f.weight_of((first + i / f.chunks) % f.channels) : 1.0;
    const GradSums s = f.sums[first * f.chunks + i];
    sum += weight * s.g;
    product += weight * s.product;
  }
  sum = block_sum(sum, shared);
  product = block_sum(product, shared);
  if (f.with_parameters && lane == 0) f.store_parameters(group, product * rstd, sum);
  if (!own_weights) {
    const double weight = f.weight_of(first % f.channels);
    sum *= weight;
    product *= weight;
  }
  for (int64_t k = lane; k < f.per_group; k += blockDim.x) {
    const double scale = f.weight_of((first + k) % f.channels) * rstd;
    if (f.moving) f.map.of_g[first + k] = static_cast<A>(scale);
    f.map.of_x[first + k] = static_cast<A>(f.moving ? -rstd * rstd * rstd * product / f.count : scale);
    f.map.center[first + k] = static_cast<A>(f.moving ? mean : 0.0);
    f.map.offset[first + k] = static_cast<A>(f.moving ? -rstd * sum / f.count : 0.0);
  }
}

template <class T>
void finish(Encoder& e, const ChannelNormBackwardCall& c, const GradSums* sums, int64_t chunks) {
  using A = accumulate_t<T>;
  const ChannelsView& v = c.view;
  const int64_t groups = c.groups ? v.n * c.groups : v.c, per_group = c.groups ? v.c / c.groups : 1;
  const double count = static_cast<double>(c.groups ? per_group * v.s : v.n * v.s);
  Finish<A> f{sums,
              chunks,
              c.groups ? v.n : 1,
              v.c,
              groups,
              per_group,
              count,
              c.moving,
              c.weight,
              c.factors,
              static_cast<const A*>(c.mean),
              static_cast<const A*>(c.rstd),
              c.dweight,
              c.dbias,
              {},
              !c.groups};
  if ((c.dweight || c.dbias) && (c.groups || !c.dx))
    e.launch(finish_parameters<A>, Encoder::blocks_for(v.c, 1), finish_threads(f.images * chunks), 0, f);
  if (!c.dx) return;
  const int64_t entries = groups * per_group;
  Workspace table(e, static_cast<size_t>(4 * entries) * sizeof(A));
  A* t = table.as<A>();
  const A* affine = static_cast<const A*>(c.affine);
  f.map = {t, t + entries, t + 2 * entries, t + 3 * entries, affine, affine ? affine + v.c : nullptr};
  e.launch(finish_map<A>, Encoder::blocks_for(groups, 1), finish_threads(per_group * chunks), 0, f);
  const T* g = static_cast<const T*>(c.y ? c.masked : c.g);
  map_channels<T>(e, v, c.groups != 0, affine ? MapKind::gated : MapKind::sum, c.moving ? g : nullptr,
                  c.moving ? static_cast<const T*>(c.x) : g, f.map, static_cast<T*>(c.dx));
}

template <Gate kGate, class T>
void run(Encoder& e, const ChannelNormBackwardCall& c) {
  using A = accumulate_t<T>;
  constexpr int kVec = 16 / sizeof(T);
  const ChannelsView& v = c.view;
  const T *g = static_cast<const T*>(c.g), *x = static_cast<const T*>(c.x);
  if (!c.moving && !c.dweight && !c.dbias) return finish<T>(e, c, nullptr, 0);
  const A* affine = static_cast<const A*>(c.affine);
  const GateData<T> gate{affine, affine ? affine + v.c : nullptr, static_cast<const T*>(c.y),
                         static_cast<const T*>(c.more), static_cast<T*>(c.masked)};
  const bool packs = all_aligned16(g, x, gate.y, gate.more, gate.masked) && (v.last ? v.c : v.s) % kVec == 0;
  const int vec = packs ? kVec : 1;
  const GroupOf group_of{c.groups ? v.c / c.groups : 1};
  if (v.last) {
    const NhwcRows r(e, v, vec, kResidentBlocks);
    Workspace sums(e, static_cast<size_t>(v.n * v.c * r.chunks) * sizeof(GradSums));
    e.launch(packs ? last_grad_sums<kGate, T, kVec> : last_grad_sums<kGate, T, 1>, Encoder::blocks_for(r.units(), 1),
             kChannelThreads, 0, g, x, static_cast<const A*>(c.mean), group_of, r, gate, sums.as<GradSums>());
    return finish<T>(e, c, sums.as<GradSums>(), r.chunks);
  }
  const Segments s =
      c.groups ? Segments(e, v.n * v.c, v.s, 1, v.s, 0, vec) : Segments(e, v.c, v.s, v.n, v.s, v.c * v.s, vec);
  Workspace sums(e, static_cast<size_t>(s.count * s.chunks) * sizeof(GradSums));
  e.launch(packs ? segment_grad_sums<kGate, T, kVec> : segment_grad_sums<kGate, T, 1>,
           Encoder::blocks_for(s.units(), 1), s.threads, 0, g, x, static_cast<const A*>(c.mean), group_of, s, gate,
           sums.as<GradSums>());
  finish<T>(e, c, sums.as<GradSums>(), s.chunks);
}

}  // namespace

void channel_norm_backward(Encoder& e, const ChannelNormBackwardCall& c) {
  dispatch_floating(c.view.dtype, [&]<class T>() { with_gate(c, [&]<Gate kGate>() { run<kGate, T>(e, c); }); });
}

}  // namespace deft::cuda
