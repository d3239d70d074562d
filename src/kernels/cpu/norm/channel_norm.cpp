#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/channel_norm.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/norm/channel_norm.h"
#include "kernels/cpu/norm/row-inl.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kGrain = 16384;
// NHWC data is summed in tiles: strips of channels, pieces of rows of a fixed size that share one partial result, and
// within a piece blocks of rows that are short enough for f32. Rows are taken four at a time, so that the sums and
// coefficients of the channels are loaded and stored once for four rows.
constexpr int64_t kStrip = 512;
constexpr int64_t kPiece = 512;
constexpr int64_t kBlock = 64;
constexpr int64_t kTogether = 4;
// Prefetch distance in bytes. The hardware prefetcher does not foresee four rows at a time: with this, sums over 25 MB
// of f32 read 25 to 27 GB/s instead of 13 to 16.
constexpr int64_t kSumAhead = 2048;

template <class S>
using C = accumulate_t<S>;

struct Sums {
  double a, b;
};

// Rounded as if it had been stored.
template <class S>
HWY_INLINE RowVec<S> rounded(RowVec<S> v) {
  if constexpr (std::is_same_v<S, C<S>>) return v;
#if HWY_TARGET == HWY_NEON
  if constexpr (std::is_same_v<S, BFloat16>) {
    if (kConvertsBf16) [[likely]] {
      uint16x4_t half;
      asm volatile(".arch armv8.2-a+bf16\n\tbfcvtn %0.4h, %1.4s" : "=w"(half) : "w"(v.raw.raw));
      return RowVec<S>(typename RowVec<S>::Raw(vreinterpretq_f32_u32(vshll_n_u16(half, 16))));
    }
  }
#endif
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<S, BFloat16>) {
    const hn::Rebind<uint32_t, typename RowVec<S>::D> du;
    return RowVec<S>(hn::BitCast(typename RowVec<S>::D(), hn::ShiftLeft<16>(hn::PromoteTo(du, bf16_bits(v)))));
  }
#endif
  S lanes[RowVec<S>::kLanes];
  store_vec(v, lanes);
  return load_vec(lanes);
}

// The largest number that is stored as zero.
template <class S>
constexpr double kVanishes = std::is_same_v<S, BFloat16> ? 0x1p-134
                             : std::is_same_v<S, Half>   ? 0x1p-25
                                                         : 0;

// ---- A relu between the norm and g, see FusedRelu.
enum class Gate { none, from_x, from_y, from_y_sum };

template <class F>
void with_gate(const FusedRelu* relu, const F& f) {
  if (!relu) return f.template operator()<Gate::none>();
  if (!relu->y) return f.template operator()<Gate::from_x>();
  relu->more ? f.template operator()<Gate::from_y_sum>() : f.template operator()<Gate::from_y>();
}

template <class S>
struct GateData {
  const S *y = nullptr, *more = nullptr;
  S* masked = nullptr;
  GateData() = default;
  GateData(const FusedRelu* r, int64_t at) {
    if (!r || !r->y) return;
    y = static_cast<const S*>(r->y) + at;
    more = r->more ? static_cast<const S*>(r->more) + at : nullptr;
    masked = static_cast<S*>(r->masked) + at;
  }
};
// The gradient before the relu at element `at` and its neighbours; `before`: the relu's input, for Gate::from_x.
template <Gate kGate, class S>
HWY_INLINE RowVec<S> gated(RowVec<S> g, RowVec<S> before, const GateData<S>& r, int64_t at, int64_t m) {
  using V = RowVec<S>;
  if constexpr (kGate == Gate::none) return g;
  if constexpr (kGate == Gate::from_x) return select(before <= V(kVanishes<S>), V(0), g);
  if constexpr (kGate == Gate::from_y_sum) g = rounded<S>(g + load_some(r.more + at, m));
  g = select(load_some(r.y + at, m) <= V(0), V(0), g);
  store_some(g, r.masked + at, m);
  return g;
}

// ---- NCHW: contiguous planes.
template <Gate kGate, class S>
Sums grad_sums_of(const S* g, const S* x, int64_t n, double center, const FusedRelu* relu, int64_t plane) {
  using V = RowVec<S>;
  constexpr bool kFromX = kGate == Gate::from_x;
  const V mean(static_cast<C<S>>(center)), of_x(kFromX ? static_cast<C<S>>(relu->of_x[plane]) : C<S>(0)),
      offset(kFromX ? static_cast<C<S>>(relu->offset[plane]) : C<S>(0));
  const GateData<S> gate(relu, plane * n);
  const auto [sum, product] = sum_row<C<S>, 2>(n, [&](int64_t i, int64_t m, LaneSums<C<S>, 2>& s) HWY_ATTR {
    const V d = load_some(x + i, m) - mean;
    const V v = gated<kGate, S>(load_some(g + i, m), kFromX ? fma(of_x, d, offset) : d, gate, i, m);
    s.of[0] += v;
    s.of[1] = fma(v, d, s.of[1]);
  });
  return {sum, product};
}

// ---- NHWC: all channels of a strip at once, row after row.
struct Tile {
  int64_t rows, width, stride;
};
// Two sums for every channel of a strip, in f32 or f64: padded to whole vectors.
template <class S>
struct StripSums {
  C<S> a[kStrip], b[kStrip];
};

// Adds up to kTogether rows: add(at, i, count, a, b) adds the terms of element `at` of the tile and its neighbours to
// the sums of channels i .. i + count - 1. fetch(at) prefetches the cache line of an element that is `ahead`.
template <int kRows, class S, class F, class Fetch>
inline void add_rows(int64_t first, const Tile& t, StripSums<S>& sums, const F& add, int64_t ahead,
                     const Fetch& fetch) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  auto step = [&](int64_t i, int64_t m) HWY_ATTR {
    V a = V::load(sums.a + i), b = V::load(sums.b + i);
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t at = (first + r) * t.stride + i;
      if constexpr (kRows == kTogether) fetch(at + ahead);
      add(at, i, m, a, b);
    }
    a.store(sums.a + i);
    b.store(sums.b + i);
  };
  int64_t i = 0;
  for (; i + kLanes <= t.width; i += kLanes) step(i, kLanes);
  if (i < t.width) step(i, t.width - i);
}
// The sums over a tile, block after block.
template <class S, class F, class Fetch>
void sum_tile(const Tile& t, Sums* out, const F& add, const Fetch& fetch) {
  StripSums<S> sums;
  const int64_t rows_ahead = kSumAhead / (t.width * static_cast<int64_t>(sizeof(S))) / kTogether + 1;
  const int64_t ahead = rows_ahead * kTogether * t.stride;
  std::fill_n(out, t.width, Sums{0, 0});
  for (int64_t done = 0; done < t.rows;) {
    std::fill_n(sums.a, kStrip, C<S>(0));
    std::fill_n(sums.b, kStrip, C<S>(0));
    const int64_t end = std::min(done + kBlock, t.rows);
    for (; done + kTogether <= end; done += kTogether) add_rows<kTogether, S>(done, t, sums, add, ahead, fetch);
    for (; done < end; ++done) add_rows<1, S>(done, t, sums, add, ahead, fetch);
    for (int64_t i = 0; i < t.width; ++i) {
      out[i].a += static_cast<double>(sums.a[i]);
      out[i].b += static_cast<double>(sums.b[i]);
    }
  }
}

void merge_moments(Sums& to, double n_to, const Sums& part, double n_part) {
  const double n = n_to + n_part, delta = part.a - to.a;
  to.a += delta * (n_part / n);
  to.b += part.b + delta * delta * (n_to * (n_part / n));
}

// The squares of numbers leave the range of f32 long before they do: such planes, and those with infinities and NaN,
// are summed again in f64.
template <class S>
HWY_NOINLINE Sums wide_moments(const S* x, int64_t n, int64_t stride) {
  double mean = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i)
    mean += static_cast<double>(static_cast<C<S>>(x[i * stride])) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(static_cast<C<S>>(x[i * stride])) - mean;
    squares += d * d;
  }
  return {mean, squares};
}

// As moments_of_row(): deviations from a guess, and once more where one was far off.
template <class S>
void moments_of_tile(const S* x, const Tile& t, Sums* out) {
  using V = RowVec<S>;
  const double count = static_cast<double>(t.rows);
  C<S> center[kStrip];
  auto add = [&](int64_t at, int64_t i, int64_t m, V& a, V& b) HWY_ATTR {
    const V d = load_some(x + at, m) - V::load(center + i);
    a += d;
    b = fma(d, d, b);
  };
  auto fetch = [&](int64_t at) HWY_ATTR { __builtin_prefetch(x + at); };
  const int64_t few = std::min(t.rows, kTogether);
  std::fill_n(center, kStrip, C<S>(0));
  for (int64_t i = 0; i < t.width; i += V::kLanes) {
    const int64_t m = std::min<int64_t>(V::kLanes, t.width - i);
    V sum(0);
    for (int64_t r = 0; r < few; ++r) sum += load_some(x + r * t.stride + i, m);
    (sum / V(static_cast<C<S>>(few))).store(center + i);
  }
  sum_tile<S>(t, out, add, fetch);
  auto far_off = [&](const Sums& s) { return s.a / count * s.a > 0.8 * s.b; };
  if (std::any_of(out, out + t.width, far_off)) {
    for (int64_t i = 0; i < t.width; ++i)
      center[i] = static_cast<C<S>>(static_cast<double>(center[i]) + out[i].a / count);
    sum_tile<S>(t, out, add, fetch);
  }
  for (int64_t i = 0; i < t.width; ++i) {
    const double shift = out[i].a / count, squares = out[i].b - shift * out[i].a;
    out[i] = {static_cast<double>(center[i]) + shift, squares > 0 || squares != squares ? squares : 0};
    if (!std::isfinite(squares)) [[unlikely]]
      out[i] = wide_moments(x + i, t.rows, t.stride);
  }
}
template <Gate kGate, class S>
void grad_sums_of_tile(const S* g, const S* x, const double* center, const FusedRelu* relu, int64_t first,
                       int64_t plane, const Tile& t, Sums* out) {
  using V = RowVec<S>;
  constexpr bool kFromX = kGate == Gate::from_x;
  C<S> mean[kStrip] = {}, of_x[kStrip] = {}, offset[kStrip] = {};
  for (int64_t i = 0; i < t.width; ++i) mean[i] = static_cast<C<S>>(center[i]);
  for (int64_t i = 0; kFromX && i < t.width; ++i) {
    of_x[i] = static_cast<C<S>>(relu->of_x[plane + i]);
    offset[i] = static_cast<C<S>>(relu->offset[plane + i]);
  }
  const GateData<S> gate(relu, first);
  auto add = [&](int64_t at, int64_t i, int64_t m, V& a, V& b) HWY_ATTR {
    const V d = load_some(x + at, m) - V::load(mean + i);
    const V before = kFromX ? fma(V::load(of_x + i), d, V::load(offset + i)) : d;
    const V v = gated<kGate, S>(load_some(g + at, m), before, gate, at, m);
    a += v;
    b = fma(v, d, b);
  };
  sum_tile<S>(t, out, add, [&](int64_t at) HWY_ATTR {
    __builtin_prefetch(x + at);
    __builtin_prefetch(g + at);
    if constexpr (kGate == Gate::from_y || kGate == Gate::from_y_sum) __builtin_prefetch(gate.y + at);
    if constexpr (kGate == Gate::from_y_sum) __builtin_prefetch(gate.more + at);
  });
}

// Runs tile(first element, first plane, Tile, out) on every piece and merges the pieces of a strip in order.
template <class RunTile, class Merge>
void reduce_nhwc(const ChannelsView& v, double* a, double* b, const RunTile& run_tile, const Merge& merge) {
  const int64_t strips = (v.c + kStrip - 1) / kStrip, pieces = (v.s + kPiece - 1) / kPiece;
  const int64_t units = v.n * strips * pieces;
  Workspace<Sums> partial(units * kStrip);
  const int64_t work = std::min(v.s, kPiece) * std::min(v.c, kStrip);
  parallel_for(0, units, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t piece = u % pieces, strip = u / pieces % strips, image = u / pieces / strips;
      const int64_t row = piece * kPiece, channel = strip * kStrip;
      const Tile t{std::min(kPiece, v.s - row), std::min(kStrip, v.c - channel), v.c};
      run_tile((image * v.s + row) * v.c + channel, image * v.c + channel, t, partial.data() + u * kStrip);
    }
  });
  for (int64_t plane = 0; plane < v.n * v.c; ++plane) {
    const int64_t image = plane / v.c, channel = plane % v.c;
    const Sums* p = partial.data() + (image * strips + channel / kStrip) * pieces * kStrip + channel % kStrip;
    Sums total = p[0];
    for (int64_t k = 1; k < pieces; ++k) {
      merge(total, static_cast<double>(k * kPiece), p[k * kStrip],
            static_cast<double>(std::min(kPiece, v.s - k * kPiece)));
    }
    a[plane] = total.a;
    b[plane] = total.b;
  }
}

template <class F>
void each_plane(const ChannelsView& v, const F& f) {
  parallel_for(0, v.n * v.c, std::max<int64_t>(1, kGrain / v.s), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) f(p);
  });
}

void moments_any(const ChannelsView& v, const void* x, double* mean, double* squares) {
  dispatch_floating(v.dtype, [&]<class S>() {
    const S* xs = static_cast<const S*>(x);
    if (v.last) {
      return reduce_nhwc(
          v, mean, squares, [&](int64_t at, int64_t, const Tile& t, Sums* out) { moments_of_tile(xs + at, t, out); },
          merge_moments);
    }
    each_plane(v, [&](int64_t p) {
      const RowMoments m = moments_of_row<false>(xs + p * v.s, v.s);
      mean[p] = m.mean;
      squares[p] = m.squares;
      if (std::isfinite(m.squares)) return;
      const Sums wide = wide_moments(xs + p * v.s, v.s, 1);
      mean[p] = wide.a;
      squares[p] = wide.b;
    });
  });
}

template <Gate kGate, class S>
void grad_sums(const ChannelsView& v, const S* g, const S* x, const double* center, double* sum, double* product,
               const FusedRelu* relu) {
  if (v.last) {
    return reduce_nhwc(
        v, sum, product,
        [&](int64_t at, int64_t plane, const Tile& t, Sums* out) {
          grad_sums_of_tile<kGate>(g + at, x + at, center + plane, relu, at, plane, t, out);
        },
        [](Sums& to, double, const Sums& part, double) { to.a += part.a, to.b += part.b; });
  }
  each_plane(v, [&](int64_t p) {
    const Sums m = grad_sums_of<kGate>(g + p * v.s, x + p * v.s, v.s, center[p], relu, p);
    sum[p] = m.a;
    product[p] = m.b;
  });
}
void grad_sums_any(const ChannelsView& v, const void* g, const void* x, const double* center, double* sum,
                   double* product, const FusedRelu* relu) {
  dispatch_floating(v.dtype, [&]<class S>() {
    with_gate(relu, [&]<Gate kGate>() {
      grad_sums<kGate>(v, static_cast<const S*>(g), static_cast<const S*>(x), center, sum, product, relu);
    });
  });
}

// ---- The map.
enum class MapKind { x, g, gated_g, relu, sum_relu };  // what it reads or applies besides x

constexpr bool takes_g(MapKind kind) { return kind == MapKind::g || kind == MapKind::gated_g; }

// norm: of_x * (x - center) + offset; other: g or the residual; before: the input of the gate's relu.
template <MapKind kKind, class S>
HWY_INLINE RowVec<S> mapped(RowVec<S> norm, RowVec<S> of_g, RowVec<S> other, RowVec<S> before) {
  using V = RowVec<S>;
  if constexpr (kKind == MapKind::relu) return max(norm, V(0));
  if constexpr (kKind == MapKind::sum_relu) return max(rounded<S>(rounded<S>(norm) + other), V(0));
  if constexpr (kKind == MapKind::gated_g) other = gated<Gate::from_x, S>(other, before, {}, 0, 0);
  return takes_g(kKind) ? fma(of_g, other, norm) : norm;
}

// The coefficients of all channels, as PlaneAffine and FusedRelu have them.
template <class S>
struct ChannelMap {
  const C<S>*of_g, *of_x, *center, *offset, *gate_of_x, *gate_offset;
};
template <MapKind kKind, class S>
void map_plane(const S* other, const S* x, const ChannelMap<S>& c, int64_t n, S* out, bool stream) {
  using V = RowVec<S>;
  constexpr bool kAlone = kKind == MapKind::x || kKind == MapKind::relu, kGated = kKind == MapKind::gated_g;
  const V of_g(takes_g(kKind) ? *c.of_g : C<S>(0)), of_x(*c.of_x), center(*c.center), offset(*c.offset),
      gate_of_x(kGated ? *c.gate_of_x : C<S>(0)), gate_offset(kGated ? *c.gate_offset : C<S>(0));
  map_row(
      n, out,
      [&](int64_t i, int64_t m) HWY_ATTR {
        const V d = load_some(x + i, m) - center, norm = fma(of_x, d, offset);
        if constexpr (kAlone) return mapped<kKind, S>(norm, norm, norm, norm);
        return mapped<kKind, S>(norm, of_g, load_some(other + i, m), kGated ? fma(gate_of_x, d, gate_offset) : norm);
      },
      stream ? Ahead<S>::of(x, kAlone ? nullptr : other) : Ahead<S>());
}
// Four rows at a time, to load the coefficients once for all of them, is half as fast: memory wants whole lines in
// order.
template <MapKind kKind, class S>
void map_rows(const S* other, const S* x, const ChannelMap<S>& c, int64_t rows, int64_t width, S* out, bool stream) {
  using V = RowVec<S>;
  constexpr bool kAlone = kKind == MapKind::x || kKind == MapKind::relu, kGated = kKind == MapKind::gated_g;
  for (int64_t r = 0; r < rows; ++r, x += width, out += width, other += kAlone ? 0 : width) {
    map_row(
        width, out,
        [&](int64_t i, int64_t m) HWY_ATTR {
          const V d = load_some(x + i, m) - load_some(c.center + i, m);
          const V norm = fma(load_some(c.of_x + i, m), d, load_some(c.offset + i, m));
          if constexpr (kAlone) return mapped<kKind, S>(norm, norm, norm, norm);
          const V of_g = takes_g(kKind) ? load_some(c.of_g + i, m) : norm;
          const V before = kGated ? fma(load_some(c.gate_of_x + i, m), d, load_some(c.gate_offset + i, m)) : norm;
          return mapped<kKind, S>(norm, of_g, load_some(other + i, m), before);
        },
        stream ? Ahead<S>::of(x, kAlone ? nullptr : other) : Ahead<S>());
  }
}

template <MapKind kKind, class S>
void map_all(const ChannelsView& v, const S* other, const S* x, const ChannelMap<S>& c, S* out) {
  auto of = [&](int64_t plane) -> ChannelMap<S> {
    return {c.of_g + plane,   c.of_x + plane,      c.center + plane,
            c.offset + plane, c.gate_of_x + plane, c.gate_offset + plane};
  };
  const bool stream =
      streams_rows(out, v.n * v.s, v.c) && streams_rows(out, v.n * v.c, v.s) && out != x && out != other;
  if (!v.last) {
    return each_plane(v, [&](int64_t p) {
      const int64_t at = p * v.s;
      map_plane<kKind>(other ? other + at : other, x + at, of(p), v.s, out + at, stream);
      if (stream) end_stream();
    });
  }
  parallel_for(0, v.n * v.s, std::max<int64_t>(1, kGrain / v.c), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t image = begin / v.s, rows = std::min(end, (image + 1) * v.s) - begin, at = begin * v.c;
      map_rows<kKind>(other ? other + at : other, x + at, of(image * v.c), rows, v.c, out + at, stream);
      begin += rows;
    }
    if (stream) end_stream();
  });
}

void map_any(const ChannelsView& v, const void* other, const void* x, const PlaneAffine& m, void* out, MapKind kind,
             const FusedRelu* relu) {
  dispatch_floating(v.dtype, [&]<class S>() {
    const int64_t planes = v.n * v.c;
    const double* from[] = {
        m.of_g, m.of_x, m.center, m.offset, relu ? relu->of_x : nullptr, relu ? relu->offset : nullptr};
    Workspace<C<S>> table(6 * planes);
    for (int k = 0; k < 6; ++k) {
      for (int64_t p = 0; from[k] && p < planes; ++p) table[k * planes + p] = static_cast<C<S>>(from[k][p]);
    }
    const C<S>* t = table.data();
    const ChannelMap<S> map{t, t + planes, t + 2 * planes, t + 3 * planes, t + 4 * planes, t + 5 * planes};
    auto run = [&]<MapKind kKind>() {
      map_all<kKind>(v, static_cast<const S*>(other), static_cast<const S*>(x), map, static_cast<S*>(out));
    };
    switch (kind) {
      case MapKind::x:
        return run.template operator()<MapKind::x>();
      case MapKind::g:
        return run.template operator()<MapKind::g>();
      case MapKind::gated_g:
        return run.template operator()<MapKind::gated_g>();
      case MapKind::relu:
        return run.template operator()<MapKind::relu>();
      case MapKind::sum_relu:
        return run.template operator()<MapKind::sum_relu>();
    }
  });
}
void map_gradient_any(const ChannelsView& v, const void* g, const void* x, const PlaneAffine& m, void* out,
                      const FusedRelu* relu) {
  map_any(v, g, x, m, out, !g ? MapKind::x : relu ? MapKind::gated_g : MapKind::g, relu);
}
void map_relu_any(const ChannelsView& v, const void* x, const void* residual, const PlaneAffine& m, void* out) {
  map_any(v, residual, x, m, out, residual ? MapKind::sum_relu : MapKind::relu, nullptr);
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(moments_any);
HWY_EXPORT(grad_sums_any);
HWY_EXPORT(map_gradient_any);
HWY_EXPORT(map_relu_any);

void plane_moments(const ChannelsView& v, const void* x, double* mean, double* squares) {
  if (v.n * v.c > 0) HWY_DYNAMIC_DISPATCH(moments_any)(v, x, mean, squares);
}
void plane_grad_sums(const ChannelsView& v, const void* g, const void* x, const double* center, double* sum,
                     double* product, const FusedRelu* relu) {
  if (v.n * v.c > 0) HWY_DYNAMIC_DISPATCH(grad_sums_any)(v, g, x, center, sum, product, relu);
}
void apply_affine(const ChannelsView& v, const void* g, const void* x, const PlaneAffine& m, void* out,
                  const FusedRelu* relu) {
  if (v.n * v.c * v.s > 0) HWY_DYNAMIC_DISPATCH(map_gradient_any)(v, g, x, m, out, relu);
}
void apply_affine_relu(const ChannelsView& v, const void* x, const void* residual, const PlaneAffine& m, void* out) {
  if (v.n * v.c * v.s > 0) HWY_DYNAMIC_DISPATCH(map_relu_any)(v, x, residual, m, out);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
