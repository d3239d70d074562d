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
// result, and within a piece blocks of rows that are short enough for f32.
constexpr int64_t kStrip = 128;
constexpr int64_t kPiece = 1024;
constexpr int64_t kBlock = 64;

template <class S>
using C = accumulate_t<S>;

struct Sums {
  double a, b;
};

// ---- Planes in one piece.
template <class S>
Sums moments_of(const S* x, int64_t n) {
  using V = RowVec<S>;
  const double count = static_cast<double>(n);
  const C<S> rough =
      static_cast<C<S>>(sum_row<C<S>>(n, [&](int64_t i, int64_t m) HWY_ATTR { return load_some(x + i, m); }) / count);
  const V center(rough);
  const double sum = sum_row<C<S>>(n, [&](int64_t i, int64_t m) HWY_ATTR { return load_some(x + i, m) - center; });
  const double squares = sum_row<C<S>>(n, [&](int64_t i, int64_t m) HWY_ATTR {
    const V d = load_some(x + i, m) - center;
    return d * d;
  });
  const double shift = sum / count, rest = squares - shift * sum;
  return {static_cast<double>(rough) + shift, rest > 0 || rest != rest ? rest : 0};
}
template <class S>
Sums grad_sums_of(const S* g, const S* x, int64_t n, double center) {
  const RowVec<S> mean(static_cast<C<S>>(center));
  return {sum_row<C<S>>(n, [&](int64_t i, int64_t m) HWY_ATTR { return load_some(g + i, m); }),
          sum_row<C<S>>(
              n, [&](int64_t i, int64_t m) HWY_ATTR { return load_some(g + i, m) * (load_some(x + i, m) - mean); })};
}

// ---- Channels last: all channels of a strip at once, row after row.
struct Tile {
  int64_t rows, width, stride;
};
template <class S, class F>
void add_rows_into(const Tile& t, C<S>* sum, const F& term) {
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  std::fill_n(sum, kStrip, C<S>(0));
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int64_t i = 0; i < t.width; i += kLanes) {
      const RowVec<S> v = term(r * t.stride + i, i, t.width - i);
      store_some(v + load_some(sum + i, t.width - i), sum + i, t.width - i);
    }
  }
}

void merge_moments(Sums& to, double n_to, const Sums& part, double n_part) {
  const double n = n_to + n_part, delta = part.a - to.a;
  to.a += delta * (n_part / n);
  to.b += part.b + delta * delta * (n_to * (n_part / n));
}

template <class S>
void moments_of_tile(const S* x, Tile t, Sums* out) {
  const int64_t rows = t.rows;
  C<S> mean[kStrip], sum[kStrip], squares[kStrip];
  for (int64_t done = 0; done < rows; done += kBlock, x += kBlock * t.stride) {
    t.rows = std::min(kBlock, rows - done);
    const double count = static_cast<double>(t.rows);
    add_rows_into<S>(t, mean, [&](int64_t at, int64_t, int64_t m) HWY_ATTR { return load_some(x + at, m); });
    for (int64_t i = 0; i < t.width; ++i) mean[i] = static_cast<C<S>>(static_cast<double>(mean[i]) / count);
    auto deviation = [&](int64_t at, int64_t i, int64_t m)
                         HWY_ATTR { return load_some(x + at, m) - load_some(mean + i, m); };
    add_rows_into<S>(t, sum, deviation);
    add_rows_into<S>(t, squares, [&](int64_t at, int64_t i, int64_t m) HWY_ATTR {
      const RowVec<S> d = deviation(at, i, m);
      return d * d;
    });
    for (int64_t i = 0; i < t.width; ++i) {
      const double shift = static_cast<double>(sum[i]) / count;
      const double rest = static_cast<double>(squares[i]) - shift * static_cast<double>(sum[i]);
      const Sums part{static_cast<double>(mean[i]) + shift, rest > 0 || rest != rest ? rest : 0};
      if (done == 0)
        out[i] = part;
      else
        merge_moments(out[i], static_cast<double>(done), part, count);
    }
  }
}
template <class S>
void grad_sums_of_tile(const S* g, const S* x, const double* center, Tile t, Sums* out) {
  const int64_t rows = t.rows;
  C<S> mean[kStrip], sum[kStrip], product[kStrip];
  for (int64_t i = 0; i < t.width; ++i) mean[i] = static_cast<C<S>>(center[i]);
  std::fill_n(out, t.width, Sums{0, 0});
  for (int64_t done = 0; done < rows; done += kBlock, x += kBlock * t.stride, g += kBlock * t.stride) {
    t.rows = std::min(kBlock, rows - done);
    add_rows_into<S>(t, sum, [&](int64_t at, int64_t, int64_t m) HWY_ATTR { return load_some(g + at, m); });
    add_rows_into<S>(t, product, [&](int64_t at, int64_t i, int64_t m) HWY_ATTR {
      return load_some(g + at, m) * (load_some(x + at, m) - load_some(mean + i, m));
    });
    for (int64_t i = 0; i < t.width; ++i) {
      out[i].a += static_cast<double>(sum[i]);
      out[i].b += static_cast<double>(product[i]);
    }
  }
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
      const Sums m = moments_of(xs + p * v.s, v.s);
      mean[p] = m.a;
      squares[p] = m.b;
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
template <class S>
void map_plane(const S* g, const S* x, const PlaneMap& m, int64_t plane, int64_t n, S* out) {
  using V = RowVec<S>;
  const V of_g(g ? static_cast<C<S>>(m.of_g[plane]) : C<S>(0)), of_x(static_cast<C<S>>(m.of_x[plane]));
  const V center(static_cast<C<S>>(m.center[plane])), offset(static_cast<C<S>>(m.offset[plane]));
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(V::kLanes)) {
    V v = fma(of_x, load_some(x + i, n - i) - center, offset);
    if (g) v = fma(of_g, load_some(g + i, n - i), v);
    store_some(v, out + i, n - i);
  }
}
template <class S>
void map_rows(const S* g, const S* x, const C<S>* of_g, const C<S>* of_x, const C<S>* center, const C<S>* offset,
              int64_t rows, int64_t width, S* out) {
  using V = RowVec<S>;
  for (int64_t r = 0; r < rows; ++r, x += width, out += width, g = g ? g + width : g) {
    for (int64_t i = 0; i < width; i += static_cast<int64_t>(V::kLanes)) {
      const int64_t m = width - i;
      V v = fma(load_some(of_x + i, m), load_some(x + i, m) - load_some(center + i, m), load_some(offset + i, m));
      if (g) v = fma(load_some(of_g + i, m), load_some(g + i, m), v);
      store_some(v, out + i, m);
    }
  }
}

void map_any(const ChannelsView& v, const void* g, const void* x, const PlaneMap& m, void* out) {
  dispatch_floating(v.dtype, [&]<class S>() {
    const S *gs = static_cast<const S*>(g), *xs = static_cast<const S*>(x);
    S* to = static_cast<S*>(out);
    if (!v.last) {
      each_plane(v, [&](int64_t p) {
        const int64_t at = p * v.s;
        map_plane(gs ? gs + at : gs, xs + at, m, p, v.s, to + at);
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
        map_rows(gs ? gs + at : gs, xs + at, t, t + planes, t + 2 * planes, t + 3 * planes, rows, v.c, to + at);
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
