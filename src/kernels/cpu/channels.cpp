#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/channels.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/channels.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kGrain = 16384;
// Channels-last data is summed in tiles: strips of channels, pieces of rows of a fixed size that share one partial
// result, and within a piece blocks of rows that are short enough for f32. Rows are taken four at a time, so that what
// belongs to the channels is loaded and stored once for all of them.
constexpr int64_t kStrip = 512;
constexpr int64_t kPiece = 512;
constexpr int64_t kBlock = 64;
constexpr int64_t kTogether = 4;

template <class S>
using C = accumulate_t<S>;

struct Sums {
  double a, b;
};

// ---- Planes in one piece.
template <class S>
Sums grad_sums_of(const S* g, const S* x, int64_t n, double center) {
  const RowVec<S> mean(static_cast<C<S>>(center));
  const auto [sum, product] = sum_row<C<S>, 2>(n, [&](int64_t i, int64_t m, LaneSums<C<S>, 2>& s) HWY_ATTR {
    const RowVec<S> v = load_some(g + i, m);
    s.of[0] += v;
    s.of[1] = fma(v, load_some(x + i, m) - mean, s.of[1]);
  });
  return {sum, product};
}

// ---- Channels last: all channels of a strip at once, row after row.
struct Tile {
  int64_t rows, width, stride;
};
// Two sums for every channel of a strip, in f32 or f64: padded to whole vectors.
template <class S>
struct StripSums {
  C<S> a[kStrip], b[kStrip];
};

// Adds up to kTogether rows: add(at, i, count, a, b) adds to the sums of channels i .. i + count - 1 what element `at`
// of the tile and its neighbours give.
template <int kRows, class S, class F>
inline void add_rows(int64_t first, const Tile& t, StripSums<S>& sums, const F& add) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  auto step = [&](int64_t i, int64_t m) HWY_ATTR {
    V a = V::load(sums.a + i), b = V::load(sums.b + i);
    for (int64_t r = 0; r < kRows; ++r) add((first + r) * t.stride + i, i, m, a, b);
    a.store(sums.a + i);
    b.store(sums.b + i);
  };
  int64_t i = 0;
  for (; i + kLanes <= t.width; i += kLanes) step(i, kLanes);
  if (i < t.width) step(i, t.width - i);
}
// The sums over a tile, block after block.
template <class S, class F>
void sum_tile(const Tile& t, Sums* out, const F& add) {
  StripSums<S> sums;
  std::fill_n(out, t.width, Sums{0, 0});
  for (int64_t done = 0; done < t.rows;) {
    std::fill_n(sums.a, kStrip, C<S>(0));
    std::fill_n(sums.b, kStrip, C<S>(0));
    const int64_t end = std::min(done + kBlock, t.rows);
    for (; done + kTogether <= end; done += kTogether) add_rows<kTogether, S>(done, t, sums, add);
    for (; done < end; ++done) add_rows<1, S>(done, t, sums, add);
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
  const int64_t few = std::min(t.rows, kTogether);
  std::fill_n(center, kStrip, C<S>(0));
  for (int64_t i = 0; i < t.width; ++i) {
    for (int64_t r = 0; r < few; ++r) center[i] += static_cast<C<S>>(x[r * t.stride + i]) / static_cast<C<S>>(few);
  }
  sum_tile<S>(t, out, add);
  auto far_off = [&](const Sums& s) { return s.a / count * s.a > 0.8 * s.b; };
  if (std::any_of(out, out + t.width, far_off)) {
    for (int64_t i = 0; i < t.width; ++i)
      center[i] = static_cast<C<S>>(static_cast<double>(center[i]) + out[i].a / count);
    sum_tile<S>(t, out, add);
  }
  for (int64_t i = 0; i < t.width; ++i) {
    const double shift = out[i].a / count, squares = out[i].b - shift * out[i].a;
    out[i] = {static_cast<double>(center[i]) + shift, squares > 0 || squares != squares ? squares : 0};
  }
}
template <class S>
void grad_sums_of_tile(const S* g, const S* x, const double* center, const Tile& t, Sums* out) {
  using V = RowVec<S>;
  C<S> mean[kStrip] = {};
  for (int64_t i = 0; i < t.width; ++i) mean[i] = static_cast<C<S>>(center[i]);
  sum_tile<S>(t, out, [&](int64_t at, int64_t i, int64_t m, V& a, V& b) HWY_ATTR {
    const V v = load_some(g + at, m);
    a += v;
    b = fma(v, load_some(x + at, m) - V::load(mean + i), b);
  });
}

// Runs tile(first element, first plane, Tile, out) on every piece and merges the pieces of a strip in order.
template <class RunTile, class Merge>
void reduce_last(const ChannelsView& v, double* a, double* b, const RunTile& run_tile, const Merge& merge) {
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
      return reduce_last(
          v, mean, squares, [&](int64_t at, int64_t, const Tile& t, Sums* out) { moments_of_tile(xs + at, t, out); },
          merge_moments);
    }
    each_plane(v, [&](int64_t p) {
      const RowMoments m = moments_of_row<false>(xs + p * v.s, v.s);
      mean[p] = m.mean;
      squares[p] = m.squares;
    });
  });
}

void grad_sums_any(const ChannelsView& v, const void* g, const void* x, const double* center, double* sum,
                   double* product) {
  dispatch_floating(v.dtype, [&]<class S>() {
    const S *gs = static_cast<const S*>(g), *xs = static_cast<const S*>(x);
    if (v.last) {
      return reduce_last(
          v, sum, product,
          [&](int64_t at, int64_t plane, const Tile& t, Sums* out) {
            grad_sums_of_tile(gs + at, xs + at, center + plane, t, out);
          },
          [](Sums& to, double, const Sums& part, double) { to.a += part.a, to.b += part.b; });
    }
    each_plane(v, [&](int64_t p) {
      const Sums m = grad_sums_of(gs + p * v.s, xs + p * v.s, v.s, center[p]);
      sum[p] = m.a;
      product[p] = m.b;
    });
  });
}

// ---- The map.
template <class S, bool kG>
void map_plane(const S* g, const S* x, const PlaneMap& m, int64_t plane, int64_t n, S* out) {
  using V = RowVec<S>;
  const V of_g(kG ? static_cast<C<S>>(m.of_g[plane]) : C<S>(0)), of_x(static_cast<C<S>>(m.of_x[plane]));
  const V center(static_cast<C<S>>(m.center[plane])), offset(static_cast<C<S>>(m.offset[plane]));
  map_row(n, out, [&](int64_t i, int64_t count) HWY_ATTR {
    const V v = fma(of_x, load_some(x + i, count) - center, offset);
    return kG ? fma(of_g, load_some(g + i, count), v) : v;
  });
}
// The coefficients of all channels, as PlaneMap has them.
template <class S>
struct ChannelMap {
  const C<S>*of_g, *of_x, *center, *offset;
};
// Four rows at a time, to load the coefficients once for all of them, is half as fast: memory wants whole lines in
// order.
template <bool kG, class S>
void map_rows(const S* g, const S* x, const ChannelMap<S>& c, int64_t rows, int64_t width, S* out) {
  using V = RowVec<S>;
  for (int64_t r = 0; r < rows; ++r, x += width, out += width, g += kG ? width : 0) {
    map_row(width, out, [&](int64_t i, int64_t m) HWY_ATTR {
      const V d = load_some(x + i, m) - load_some(c.center + i, m);
      const V v = fma(load_some(c.of_x + i, m), d, load_some(c.offset + i, m));
      return kG ? fma(load_some(c.of_g + i, m), load_some(g + i, m), v) : v;
    });
  }
}

void map_any(const ChannelsView& v, const void* g, const void* x, const PlaneMap& m, void* out) {
  dispatch_floating(v.dtype, [&]<class S>() {
    const S *gs = static_cast<const S*>(g), *xs = static_cast<const S*>(x);
    S* to = static_cast<S*>(out);
    if (!v.last) {
      each_plane(v, [&](int64_t p) {
        const int64_t at = p * v.s;
        gs ? map_plane<S, true>(gs + at, xs + at, m, p, v.s, to + at)
           : map_plane<S, false>(gs, xs + at, m, p, v.s, to + at);
      });
      return;
    }
    const int64_t planes = v.n * v.c;
    Workspace<C<S>> table(4 * planes);
    const double* from[4] = {m.of_g, m.of_x, m.center, m.offset};
    for (int k = 0; k < 4; ++k) {
      for (int64_t p = 0; from[k] && p < planes; ++p) table[k * planes + p] = static_cast<C<S>>(from[k][p]);
    }
    parallel_for(0, v.n * v.s, std::max<int64_t>(1, kGrain / v.c), [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t image = begin / v.s, rows = std::min(end, (image + 1) * v.s) - begin, at = begin * v.c;
        const C<S>* t = table.data() + image * v.c;
        const ChannelMap<S> map{t, t + planes, t + 2 * planes, t + 3 * planes};
        gs ? map_rows<true>(gs + at, xs + at, map, rows, v.c, to + at)
           : map_rows<false>(gs, xs + at, map, rows, v.c, to + at);
        begin += rows;
      }
    });
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(moments_any);
HWY_EXPORT(grad_sums_any);
HWY_EXPORT(map_any);

void plane_moments(const ChannelsView& v, const void* x, double* mean, double* squares) {
  if (v.n * v.c > 0) HWY_DYNAMIC_DISPATCH(moments_any)(v, x, mean, squares);
}
void plane_grad_sums(const ChannelsView& v, const void* g, const void* x, const double* center, double* sum,
                     double* product) {
  if (v.n * v.c > 0) HWY_DYNAMIC_DISPATCH(grad_sums_any)(v, g, x, center, sum, product);
}
void plane_map(const ChannelsView& v, const void* g, const void* x, const PlaneMap& m, void* out) {
  if (v.n * v.c * v.s > 0) HWY_DYNAMIC_DISPATCH(map_any)(v, g, x, m, out);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
