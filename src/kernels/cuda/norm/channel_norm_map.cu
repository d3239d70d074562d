#include "kernels/cuda/norm/channel_norm_walk.cuh"

namespace deft::cuda {
namespace {

// The coefficients of an element.
template <class A>
struct Factors {
  A of_g, of_x, center, offset, gate_of_x, gate_offset;
};
template <MapKind kKind, class A>
__device__ __forceinline__ Factors<A> factors_of(const MapTable<A>& m, int64_t entry, bool has_other) {
  constexpr bool kG = kKind != MapKind::relu_sum, kGated = kKind == MapKind::gated;
  return {kG && has_other ? m.of_g[entry] : A(0),
          m.of_x[entry],
          m.center[entry],
          m.offset[entry],
          kGated ? m.gate_of_x[entry] : A(0),
          kGated ? m.gate_offset[entry] : A(0)};
}

template <MapKind kKind, class T, class A>
__device__ __forceinline__ T mapped(T x, T other, const Factors<A>& c, bool has_other) {
  const A d = convert<A>(x) - c.center;
  A r = fma(c.of_x, d, c.offset);
  if constexpr (kKind == MapKind::relu_sum) {
    if (has_other) r = rounded<T>(rounded<T>(r) + convert<A>(other));
    return convert<T>(r > A(0) || r != r ? r : A(0));
  } else {
    if (!has_other) return convert<T>(r);
    A g = convert<A>(other);
    if constexpr (kKind == MapKind::gated) g = passed(g, rounded<T>(fma(c.gate_of_x, d, c.gate_offset)));
    return convert<T>(fma(c.of_g, g, r));
  }
}

// Packs of kVec elements; all of a pack lie in one plane. Entry: plane modulo `entries`.
template <class Index>
struct PlaneWalk {
  Index packs, plane_packs, entries;
  FastDivide by_plane, by_entries;
  __device__ __forceinline__ Index entry(Index pack) const {
    if constexpr (sizeof(Index) == 4) {
      const Index plane = by_plane.quotient(pack);
      return plane - by_entries.quotient(plane) * entries;
    } else {
      return pack / plane_packs % entries;
    }
  }
};

template <MapKind kKind, class T, int kVec, class Index>
__global__ void __launch_bounds__(kChannelThreads)
    map_nchw(const T* other, const T* x, T* out, const MapTable<accumulate_t<T>> m, const PlaneWalk<Index> w) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = 4;
  P others[kItems], xs[kItems];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kChannelThreads * kItems) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int64_t i = first + k * kChannelThreads;
    if (i >= static_cast<int64_t>(w.packs)) continue;
    if (other) others[k] = load_once(reinterpret_cast<const P*>(other) + i);
    xs[k] = load_once(reinterpret_cast<const P*>(x) + i);
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int64_t i = first + k * kChannelThreads;
    if (i >= static_cast<int64_t>(w.packs)) continue;
    const Factors<A> c = factors_of<kKind>(m, w.entry(static_cast<Index>(i)), other != nullptr);
#pragma unroll
    for (int e = 0; e < kVec; ++e) xs[k].v[e] = mapped<kKind>(xs[k].v[e], others[k].v[e], c, other != nullptr);
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {  // after all loads, which could not pass these
    const int64_t i = first + k * kChannelThreads;
    if (i < static_cast<int64_t>(w.packs)) reinterpret_cast<P*>(out)[i] = xs[k];
  }
}

template <MapKind kKind, class T, int kVec>
__global__ void __launch_bounds__(kChannelThreads)
    map_nhwc(const T* other, const T* x, T* out, const MapTable<accumulate_t<T>> m, const NhwcRows r) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = 4;
  const LastPlace<kVec> at(r);
  if (!at.live) return;
  Factors<A> c[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) c[e] = factors_of<kKind>(m, at.image * r.c + at.channel + e, other != nullptr);
  for (int64_t row = at.begin + at.y; row < at.end; row += kItems * at.height) {
    P others[kItems], xs[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (row + k * at.height >= at.end) continue;
      const int64_t i = at.at(r, row + k * at.height);
      if (other) others[k] = load_once(reinterpret_cast<const P*>(other + i));
      xs[k] = load_once(reinterpret_cast<const P*>(x + i));
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (row + k * at.height >= at.end) continue;
      P made;
#pragma unroll
      for (int e = 0; e < kVec; ++e) made.v[e] = mapped<kKind>(xs[k].v[e], others[k].v[e], c[e], other != nullptr);
      *reinterpret_cast<P*>(out + at.at(r, row + k * at.height)) = made;
    }
  }
}

template <MapKind kKind, class T, int kVec>
void run_nchw(Encoder& e, const ChannelsView& v, bool per_plane, const T* other, const T* x,
              const MapTable<accumulate_t<T>>& m, T* out) {
  const int64_t plane = v.s / kVec, packs = v.n * v.c * plane, entries = per_plane ? v.n * v.c : v.c;
  const unsigned blocks = Encoder::blocks_for(packs, kChannelThreads * 4);
  if (packs < INT32_MAX) {
    const auto narrow = [](int64_t i) { return static_cast<uint32_t>(i); };
    const PlaneWalk<uint32_t> w{narrow(packs), narrow(plane), narrow(entries), FastDivide(narrow(plane)),
                                FastDivide(narrow(entries))};
    e.launch(map_nchw<kKind, T, kVec, uint32_t>, blocks, kChannelThreads, 0, other, x, out, m, w);
  } else {
    const PlaneWalk<int64_t> w{packs, plane, entries, {}, {}};
    e.launch(map_nchw<kKind, T, kVec, int64_t>, blocks, kChannelThreads, 0, other, x, out, m, w);
  }
}

template <MapKind kKind, class T>
void run(Encoder& e, const ChannelsView& v, bool per_plane, const T* other, const T* x,
         const MapTable<accumulate_t<T>>& m, T* out) {
  constexpr int kVec = 16 / sizeof(T);
  const bool packs = all_aligned16(other, x, out) && (v.last ? v.c : v.s) % kVec == 0;
  if (v.last) {
    const NhwcRows r(e, v, packs ? kVec : 1, 16);
    e.launch(packs ? map_nhwc<kKind, T, kVec> : map_nhwc<kKind, T, 1>, r.blocks(), kChannelThreads, 0, other, x, out, m,
             r);
  } else if (packs) {
    run_nchw<kKind, T, kVec>(e, v, per_plane, other, x, m, out);
  } else {
    run_nchw<kKind, T, 1>(e, v, per_plane, other, x, m, out);
  }
}

}  // namespace

template <class T>
void map_channels(Encoder& e, const ChannelsView& v, bool per_plane, MapKind kind, const T* other, const T* x,
                  const MapTable<accumulate_t<T>>& m, T* out) {
  switch (kind) {
    case MapKind::sum:
      return run<MapKind::sum>(e, v, per_plane, other, x, m, out);
    case MapKind::gated:
      return run<MapKind::gated>(e, v, per_plane, other, x, m, out);
    case MapKind::relu_sum:
      return run<MapKind::relu_sum>(e, v, per_plane, other, x, m, out);
  }
}

#define DEFT_MAP(T)                                                                               \
  template void map_channels<T>(Encoder&, const ChannelsView&, bool, MapKind, const T*, const T*, \
                                const MapTable<accumulate_t<T>>&, T*);
DEFT_MAP(float)
DEFT_MAP(double)
DEFT_MAP(BFloat16)
DEFT_MAP(Half)
#undef DEFT_MAP

}  // namespace deft::cuda
