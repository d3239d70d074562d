#include "kernels/cuda/channel_norm_walk.cuh"

namespace deft::cuda {
namespace {

template <class T, int kVec, class A>
__device__ __forceinline__ Pack<T, kVec> mapped(const Pack<T, kVec>& g, const Pack<T, kVec>& x, const A* of_g,
                                                const A* of_x, const A* center, const A* offset, bool has_g) {
  Pack<T, kVec> out;
#pragma unroll
  for (int e = 0; e < kVec; ++e) {
    A r = of_x[e] * (convert<A>(x.v[e]) - center[e]) + offset[e];
    if (has_g) r += of_g[e] * convert<A>(g.v[e]);
    out.v[e] = convert<T>(r);
  }
  return out;
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

template <class T, int kVec, class Index>
__global__ void __launch_bounds__(kChannelThreads)
    map_planes(const T* g, const T* x, T* out, const MapTable<accumulate_t<T>> m, const PlaneWalk<Index> w) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = 4;
  P gs[kItems], xs[kItems];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kChannelThreads * kItems) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int64_t i = first + k * kChannelThreads;
    if (i >= static_cast<int64_t>(w.packs)) continue;
    if (g) gs[k] = load_once(reinterpret_cast<const P*>(g) + i);
    xs[k] = load_once(reinterpret_cast<const P*>(x) + i);
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int64_t i = first + k * kChannelThreads;
    if (i >= static_cast<int64_t>(w.packs)) continue;
    const Index entry = w.entry(static_cast<Index>(i));
    const A of_g = g ? m.of_g[entry] : A(0), of_x = m.of_x[entry], center = m.center[entry], offset = m.offset[entry];
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      A v = of_x * (convert<A>(xs[k].v[e]) - center) + offset;
      if (g) v += of_g * convert<A>(gs[k].v[e]);
      xs[k].v[e] = convert<T>(v);
    }
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {  // after all loads, which could not pass these
    const int64_t i = first + k * kChannelThreads;
    if (i < static_cast<int64_t>(w.packs)) reinterpret_cast<P*>(out)[i] = xs[k];
  }
}

template <class T, int kVec>
__global__ void __launch_bounds__(kChannelThreads)
    map_last(const T* g, const T* x, T* out, const MapTable<accumulate_t<T>> m, const LastRows r) {
  using A = accumulate_t<T>;
  using P = Pack<T, kVec>;
  constexpr int kItems = 4;
  const LastPlace<kVec> at(r);
  if (!at.live) return;
  A of_g[kVec], of_x[kVec], center[kVec], offset[kVec];
#pragma unroll
  for (int e = 0; e < kVec; ++e) {
    const int64_t entry = at.image * r.c + at.channel + e;
    of_g[e] = g ? m.of_g[entry] : A(0);
    of_x[e] = m.of_x[entry];
    center[e] = m.center[entry];
    offset[e] = m.offset[entry];
  }
  for (int64_t row = at.begin + at.y; row < at.end; row += kItems * at.height) {
    P gs[kItems], xs[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (row + k * at.height >= at.end) continue;
      const int64_t i = at.at(r, row + k * at.height);
      if (g) gs[k] = load_once(reinterpret_cast<const P*>(g + i));
      xs[k] = load_once(reinterpret_cast<const P*>(x + i));
    }
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (row + k * at.height >= at.end) continue;
      *reinterpret_cast<P*>(out + at.at(r, row + k * at.height)) =
          mapped<T, kVec>(gs[k], xs[k], of_g, of_x, center, offset, g != nullptr);
    }
  }
}

template <class T, int kVec>
void run_planes(Encoder& e, const ChannelsView& v, bool per_plane, const T* g, const T* x,
                const MapTable<accumulate_t<T>>& m, T* out) {
  const int64_t plane = v.s / kVec, packs = v.n * v.c * plane, entries = per_plane ? v.n * v.c : v.c;
  const unsigned blocks = Encoder::blocks_for(packs, kChannelThreads * 4);
  if (packs < INT32_MAX) {
    const auto narrow = [](int64_t i) { return static_cast<uint32_t>(i); };
    const PlaneWalk<uint32_t> w{narrow(packs), narrow(plane), narrow(entries), FastDivide(narrow(plane)),
                                FastDivide(narrow(entries))};
    e.launch(map_planes<T, kVec, uint32_t>, blocks, kChannelThreads, 0, g, x, out, m, w);
  } else {
    const PlaneWalk<int64_t> w{packs, plane, entries, {}, {}};
    e.launch(map_planes<T, kVec, int64_t>, blocks, kChannelThreads, 0, g, x, out, m, w);
  }
}

}  // namespace

template <class T>
void map_channels(Encoder& e, const ChannelsView& v, bool per_plane, const T* g, const T* x,
                  const MapTable<accumulate_t<T>>& m, T* out) {
  constexpr int kVec = 16 / sizeof(T);
  const bool packs = all_aligned16(g, x, out) && (v.last ? v.c : v.s) % kVec == 0;
  if (v.last) {
    const LastRows r(e, v, packs ? kVec : 1, 16);
    e.launch(packs ? map_last<T, kVec> : map_last<T, 1>, r.blocks(), kChannelThreads, 0, g, x, out, m, r);
  } else if (packs) {
    run_planes<T, kVec>(e, v, per_plane, g, x, m, out);
  } else {
    run_planes<T, 1>(e, v, per_plane, g, x, m, out);
  }
}

#define DEFT_MAP(T)                                                                      \
  template void map_channels<T>(Encoder&, const ChannelsView&, bool, const T*, const T*, \
                                const MapTable<accumulate_t<T>>&, T*);
DEFT_MAP(float)
DEFT_MAP(double)
DEFT_MAP(BFloat16)
DEFT_MAP(Half)
#undef DEFT_MAP

}  // namespace deft::cuda
