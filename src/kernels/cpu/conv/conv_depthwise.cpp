// Depthwise convolution, direct sums in registers. Vectors run over channels (NHWC); NCHW is in
// conv_depthwise_nchw.cpp.
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/conv_depthwise.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/gemm/activate-inl.h"
#include "kernels/cpu/norm/row-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::Phase;
using detail::Window;

constexpr int64_t kGrain = 32 * 1024;
constexpr int kMany = 4;  // independent vectors of sums, to hide latency

// Positions [lo, hi) along x whose taps all lie inside the image.
struct Inner {
  int64_t lo, hi;
};
Inner inner_positions(const Window& w) {
  const int64_t last = (w.taps[2] - 1) * w.tap_step[2], low = std::min<int64_t>(0, last),
                high = std::max<int64_t>(0, last);
  const int64_t first = w.base[2] + low, end = w.size[2] - w.base[2] - high;  // x * step >= -first and < end
  const int64_t lo = first >= 0 ? 0 : (-first + w.step[2] - 1) / w.step[2];
  const int64_t hi = end <= 0 ? 0 : (end + w.step[2] - 1) / w.step[2];
  return {std::min(lo, w.count[2]), std::clamp(hi, std::min(lo, w.count[2]), w.count[2])};
}

// A kernel row over one output row: its input row and the number of its first tap.
template <class T>
struct TapRow {
  const T* from;
  int64_t tap;
};
// The kernel rows that lie inside the image. `line` values lie between input rows.
template <class T>
int64_t tap_rows(const Window& w, const T* image, int64_t z, int64_t y, int64_t line, TapRow<T>* out) {
  int64_t count = 0;
  for (int64_t tz = 0; tz < w.taps[0]; ++tz) {
    const int64_t sz = z * w.step[0] + w.base[0] + tz * w.tap_step[0];
    if (sz < 0 || sz >= w.size[0]) continue;
    for (int64_t ty = 0; ty < w.taps[1]; ++ty) {
      const int64_t sy = y * w.step[1] + w.base[1] + ty * w.tap_step[1];
      if (sy < 0 || sy >= w.size[1]) continue;
      out[count++] = {image + (sz * w.size[1] + sy) * line, (tz * w.taps[1] + ty) * w.taps[2]};
    }
  }
  return count;
}

// What all rows of a call share.
template <class T>
struct Depthwise {
  using A = accumulate_t<T>;
  const Phase& phase;
  int64_t channels, row;  // row: values between the filters of two taps, NHWC
  const A* filters;       // from arrange_filters()
  const A* bias;          // or null
  const T* residual;      // or null
  Activation activation;
  T* y;
  const int64_t* y_size;

  bool plain() const { return !residual && activation == Activation::none; }
  // The output pixel at position (z, y, 0) within a sample.
  int64_t place(int64_t z, int64_t r) const {
    const int64_t line = (phase.start[0] + z * phase.step[0]) * y_size[1] + phase.start[1] + r * phase.step[1];
    return line * y_size[2] + phase.start[2];
  }
};

template <class A>
HWY_NOINLINE Vec<A> activate_apart(Activation activation, Vec<A> v) {
  return activate(activation, v);
}
template <class T>
HWY_NOINLINE void finish_more(const Depthwise<T>& d, RowVec<T> v, int64_t at, int64_t count) {
  if (d.residual) v += load_some(d.residual + at, count);
  store_some(activate_apart(d.activation, v), d.y + at, count);
}
template <class T>
inline void finish(const Depthwise<T>& d, RowVec<T> v, RowVec<T> bias, int64_t at, int64_t count) {
  v += bias;
  d.plain() ? store_some(v, d.y + at, count) : finish_more(d, v, at, count);
}

// Writes four adjacent positions, two vectors of channels.
template <class T>
HWY_INLINE void put_four(const Depthwise<T>& d, const accumulate_t<T>* sums, int64_t c, int64_t at) {
  using V = RowVec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const V bias0 = d.bias ? V::load(d.bias + c) : V(0), bias1 = d.bias ? V::load(d.bias + c + kLanes) : V(0);
  const int64_t next = d.phase.step[2] * d.channels;
  if (d.plain()) {
    T* to = d.y + at;
    for (int64_t i = 0; i < 4; ++i, to += next, sums += 2 * kLanes) {
      store_vec(V::load(sums) + bias0, to);
      store_vec(V::load(sums + kLanes) + bias1, to + kLanes);
    }
    return;
  }
  for (int64_t i = 0; i < 4; ++i, at += next, sums += 2 * kLanes) {
    finish_more(d, V::load(sums) + bias0, at, kLanes);
    finish_more(d, V::load(sums + kLanes) + bias1, at + kLanes, kLanes);
  }
}

// Their sums where all taps are inside; kTaps of a kernel row, 0: any number. Accumulators are separate variables: GCC
// keeps arrays of them on the stack.
template <int kTaps, class T>
void four_pixels(const Depthwise<T>& d, const TapRow<T>* lines, int64_t row_count, int64_t source, int64_t c,
                 int64_t at) {
  using V = RowVec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const Window& w = d.phase.window;
  const int64_t step = w.step[2] * d.channels, tap_step = w.tap_step[2] * d.channels;
  V a0(0), a1(0), b0(0), b1(0), c0(0), c1(0), e0(0), e1(0);
  for (int64_t l = 0; l < row_count; ++l) {
    const T* x = lines[l].from + source * d.channels + c;
    const auto* f = d.filters + lines[l].tap * d.row + c;
    const int64_t taps = kTaps ? kTaps : w.taps[2];
    for (int64_t t = 0; t < taps; ++t, x += tap_step, f += d.row) {
      const V f0 = V::load(f), f1 = V::load(f + kLanes);
      a0 = fma(load_vec(x), f0, a0);
      a1 = fma(load_vec(x + kLanes), f1, a1);
      b0 = fma(load_vec(x + step), f0, b0);
      b1 = fma(load_vec(x + step + kLanes), f1, b1);
      c0 = fma(load_vec(x + 2 * step), f0, c0);
      c1 = fma(load_vec(x + 2 * step + kLanes), f1, c1);
      e0 = fma(load_vec(x + 3 * step), f0, e0);
      e1 = fma(load_vec(x + 3 * step + kLanes), f1, e1);
    }
  }
  // Through memory: calls while the sums are in registers would make GCC keep them on the stack in the loop.
  accumulate_t<T> sums[8 * V::kLanes];
  a0.store(sums), a1.store(sums + kLanes);
  b0.store(sums + 2 * kLanes), b1.store(sums + 3 * kLanes);
  c0.store(sums + 4 * kLanes), c1.store(sums + 5 * kLanes);
  e0.store(sums + 6 * kLanes), e1.store(sums + 7 * kLanes);
  put_four(d, sums, c, at);
}

// The same for kTaps adjacent taps, forwards or backwards: each pixel is loaded and converted once. 3, 5 and 7 taps of
// bf16 take 0.83, 0.85 and 0.7 of the time, 7 of f32 0.93; fewer of f32 gain nothing.
template <int kTaps, class T>
void four_near(const Depthwise<T>& d, const TapRow<T>* lines, int64_t row_count, int64_t source, int64_t c,
               int64_t at) {
  using V = RowVec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const bool forwards = d.phase.window.tap_step[2] == 1;
  const int64_t next = forwards ? d.channels : -d.channels, first = forwards ? source : source + 3;
  V s[4][2] = {{V(0), V(0)}, {V(0), V(0)}, {V(0), V(0)}, {V(0), V(0)}};
  for (int64_t l = 0; l < row_count; ++l) {
    const T* x = lines[l].from + first * d.channels + c;
    const auto* filter = d.filters + lines[l].tap * d.row + c;
    V f[kTaps][2];
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t)
      f[t][0] = V::load(filter + t * d.row), f[t][1] = V::load(filter + t * d.row + kLanes);
#pragma GCC unroll 16
    for (int j = 0; j < kTaps + 3; ++j, x += next) {
      const V v0 = load_vec(x), v1 = load_vec(x + kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (j < i || j >= i + kTaps) continue;
        s[i][0] = fma(v0, f[j - i][0], s[i][0]);
        s[i][1] = fma(v1, f[j - i][1], s[i][1]);
      }
    }
  }
  accumulate_t<T> sums[8 * V::kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    accumulate_t<T>* to = sums + 2 * (forwards ? i : 3 - i) * kLanes;
    s[i][0].store(to), s[i][1].store(to + kLanes);
  }
  put_four(d, sums, c, at);
}
template <class T>
using FourPixels = void (*)(const Depthwise<T>&, const TapRow<T>*, int64_t, int64_t, int64_t, int64_t);
template <class T>
FourPixels<T> four_pixels_of(const Window& w) {
  const bool near = w.step[2] == 1 && std::abs(w.tap_step[2]) == 1;
  if constexpr (sizeof(T) == 2) {
    if (near && w.taps[2] == 3) return four_near<3, T>;
    if (near && w.taps[2] == 5) return four_near<5, T>;
  }
  if (near && w.taps[2] == 7) return four_near<7, T>;
  return w.taps[2] == 3 ? four_pixels<3, T> : w.taps[2] == 5 ? four_pixels<5, T> : four_pixels<0, T>;
}

// One position, kVectors vectors of channels or part of one, taps [t0, t1) of each kernel row.
template <int kVectors, class T>
inline void one_pixel(const Depthwise<T>& d, const TapRow<T>* lines, int64_t row_count, int64_t source, int64_t t0,
                      int64_t t1, int64_t c, int64_t at) {
  using V = RowVec<T>;
  constexpr int64_t kLanes = V::kLanes;
  const Window& w = d.phase.window;
  const int64_t count = d.channels - c;
  V s[kVectors];
#pragma GCC unroll 4
  for (V& v : s) v = V(0);
  for (int64_t l = 0; l < row_count; ++l) {
    for (int64_t t = t0; t < t1; ++t) {
      const T* x = lines[l].from + (source + t * w.tap_step[2]) * d.channels + c;
      const auto* f = d.filters + (lines[l].tap + t) * d.row + c;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        s[v] = fma(kVectors == 1 ? load_some(x, count) : load_vec(x + v * kLanes), V::load(f + v * kLanes), s[v]);
      }
    }
  }
  accumulate_t<T> sums[kVectors][V::kLanes];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) s[v].store(sums[v]);
  for (int64_t v = 0, k = 0; v < kVectors; ++v, k += kLanes) {
    finish(d, V::load(sums[v]), d.bias ? V::load(d.bias + c + k) : V(0), at + k, count - k);
  }
}

// The taps of position x that lie inside along x.
inline Inner taps_inside(const Window& w, int64_t x) {
  Inner taps{w.taps[2], 0};
  for (int64_t t = 0; t < w.taps[2]; ++t) {
    const int64_t s = x * w.step[2] + w.base[2] + t * w.tap_step[2];
    if (s < 0 || s >= w.size[2]) continue;
    taps.lo = std::min(taps.lo, t);
    taps.hi = t + 1;
  }
  return taps;
}

template <class T>
void row_of_pixels(const Depthwise<T>& d, const TapRow<T>* lines, int64_t count, Inner inner, int64_t at) {
  constexpr int64_t kLanes = RowVec<T>::kLanes;
  const Window& w = d.phase.window;
  const int64_t next = d.phase.step[2] * d.channels;
  for (int64_t x = 0; x < w.count[2];) {
    const int64_t source = x * w.step[2] + w.base[2];
    const bool four = x >= inner.lo && x + 4 <= inner.hi;
    int64_t c = 0;
    if (four) {
      const FourPixels<T> run = four_pixels_of<T>(w);
      for (; c + 2 * kLanes <= d.channels; c += 2 * kLanes) run(d, lines, count, source, c, at + x * next + c);
    }
    for (int64_t i = 0; i < (four ? 4 : 1); ++i) {
      const Inner taps = taps_inside(w, x + i);
      const int64_t from = source + i * w.step[2], to = at + (x + i) * next;
      int64_t k = c;
      for (; k + kMany * kLanes <= d.channels; k += kMany * kLanes) {
        one_pixel<kMany>(d, lines, count, from, taps.lo, taps.hi, k, to + k);
      }
      for (; k < d.channels; k += kLanes) one_pixel<1>(d, lines, count, from, taps.lo, taps.hi, k, to + k);
    }
    x += four ? 4 : 1;
  }
}

template <class T>
void depthwise_pixels(const Depthwise<T>& d, int64_t n, const T* x) {
  const Window& w = d.phase.window;
  const int64_t lines = w.count[0] * w.count[1], taps = w.tap_count(),
                spatial = d.y_size[0] * d.y_size[1] * d.y_size[2];
  const Inner inner = inner_positions(w);
  const int64_t cost = std::max<int64_t>(1, w.count[2] * d.channels * std::max<int64_t>(1, taps));
  parallel_for(0, n * lines, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    Workspace<TapRow<T>> tap(std::max<int64_t>(1, w.taps[0] * w.taps[1]));
    for (int64_t l = begin; l < end; ++l) {
      const int64_t sample = l / lines, z = l % lines / w.count[1], r = l % w.count[1];
      const T* image = x + sample * w.source() * d.channels;
      const int64_t count = tap_rows(w, image, z, r, w.size[2] * d.channels, tap.data());
      row_of_pixels(d, tap.data(), count, inner, (sample * spatial + d.place(z, r)) * d.channels);
    }
  });
}

template <class T>
void depthwise_typed(const Phase& p, const ConvCall& c, int64_t channels, const T* x, const accumulate_t<T>* filters,
                     T* y, const int64_t* y_size) {
  using A = accumulate_t<T>;
  const int64_t row = detail::filter_row(channels);
  Workspace<A> bias(c.bias ? row : 0);
  if (c.bias) {
    std::fill_n(bias.data(), row, A(0));
    std::copy_n(static_cast<const T*>(c.bias), channels, bias.data());
  }
  const Depthwise<T> d{p, channels, row, filters, bias.data(), static_cast<const T*>(c.residual), c.activation,
                       y, y_size};
  depthwise_pixels(d, c.n, x);
}

void depthwise_any(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* filters, void* y,
                   const int64_t* y_size) {
  dispatch_floating(c.dtype, [&]<class T>() {
    depthwise_typed(p, c, channels, static_cast<const T*>(x), static_cast<const accumulate_t<T>*>(filters),
                    static_cast<T*>(y), y_size);
  });
}

// ---- Gradient of the filters.

// The positions along x for which tap t lies inside.
inline Inner positions_inside(const Window& w, int64_t t) {
  const int64_t at = w.base[2] + t * w.tap_step[2], step = w.step[2];
  const int64_t lo = std::min(w.count[2], at >= 0 ? 0 : (-at + step - 1) / step);
  return {lo, at >= w.size[2] ? lo : std::clamp((w.size[2] - at + step - 1) / step, lo, w.count[2])};
}

// sums[tap * row + channel] += the sum over one output row, which is computed separately first: chains are shorter.
template <class T>
void row_of_filters(const Window& w, const TapRow<T>* lines, int64_t row_count, int64_t channels, int64_t row,
                    const T* dy, accumulate_t<T>* sums) {
  using V = RowVec<T>;
  constexpr int64_t kLanes = V::kLanes;
  for (int64_t l = 0; l < row_count; ++l) {
    for (int64_t t = 0; t < w.taps[2]; ++t) {
      const Inner in = positions_inside(w, t);
      const T* x = lines[l].from + (w.base[2] + t * w.tap_step[2]) * channels;
      accumulate_t<T>* to = sums + (lines[l].tap + t) * row;
      int64_t c = 0;
      for (; c + 4 * kLanes <= channels; c += 4 * kLanes) {
        V s0(0), s1(0), s2(0), s3(0);
        for (int64_t j = in.lo; j < in.hi; ++j) {
          const T *a = dy + j * channels + c, *b = x + j * w.step[2] * channels + c;
          s0 = fma(load_vec(a), load_vec(b), s0);
          s1 = fma(load_vec(a + kLanes), load_vec(b + kLanes), s1);
          s2 = fma(load_vec(a + 2 * kLanes), load_vec(b + 2 * kLanes), s2);
          s3 = fma(load_vec(a + 3 * kLanes), load_vec(b + 3 * kLanes), s3);
        }
        (V::load(to + c) + s0).store(to + c);
        (V::load(to + c + kLanes) + s1).store(to + c + kLanes);
        (V::load(to + c + 2 * kLanes) + s2).store(to + c + 2 * kLanes);
        (V::load(to + c + 3 * kLanes) + s3).store(to + c + 3 * kLanes);
      }
      for (; c < channels; c += kLanes) {
        V sum(0);
        for (int64_t j = in.lo; j < in.hi; ++j) {
          sum = fma(load_some(dy + j * channels + c, channels - c),
                    load_some(x + j * w.step[2] * channels + c, channels - c), sum);
        }
        (V::load(to + c) + sum).store(to + c);
      }
    }
  }
}

template <class T>
void filter_gradient(const Window& w, int64_t n, int64_t channels, const T* x, const T* dy, T* dw) {
  using A = accumulate_t<T>;
  const int64_t lines = n * w.count[0] * w.count[1], taps = w.tap_count(), row = (channels + 15) / 16 * 16;
  // Partial sums over fixed ranges of rows, added in order.
  const int64_t parts =
      std::clamp<int64_t>(std::min(lines, lines * w.count[2] * channels * taps / (4 * kGrain)), 1, 32);
  Workspace<A> sums(parts * taps * row);
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    Workspace<TapRow<T>> tap(w.taps[0] * w.taps[1]);
    std::fill_n(sums.data() + begin * taps * row, (end - begin) * taps * row, A(0));
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t l = lines * part / parts; l < lines * (part + 1) / parts; ++l) {
        const int64_t r = l % w.count[1], z = l / w.count[1] % w.count[0], sample = l / (w.count[1] * w.count[0]);
        const T* image = x + sample * w.source() * channels;
        const int64_t count = tap_rows(w, image, z, r, w.size[2] * channels, tap.data());
        row_of_filters(w, tap.data(), count, channels, row, dy + l * w.count[2] * channels,
                       sums.data() + part * taps * row);
      }
    }
  });
  for (int64_t i = 0; i < channels; ++i) {
    for (int64_t t = 0; t < taps; ++t) {
      A sum = 0;
      for (int64_t part = 0; part < parts; ++part) sum += sums[(part * taps + t) * row + i];
      dw[i * taps + t] = static_cast<T>(sum);
    }
  }
}

void depthwise_weight_any(const ConvCall& c, const void* dy, void* dw) {
  const Window w = detail::forward_window(c);
  dispatch_floating(c.dtype, [&]<class T>() {
    filter_gradient(w, c.n, c.c_in, static_cast<const T*>(c.x), static_cast<const T*>(dy), static_cast<T*>(dw));
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(depthwise_any);
HWY_EXPORT(depthwise_weight_any);

int64_t filter_bytes(const ConvCall& c, int64_t channels, int64_t taps) {
  const int64_t size = c.dtype == DType::f64 ? 8 : 4;
  if (!c.channels_last) return size == static_cast<int64_t>(size_of(c.dtype)) ? 0 : channels * taps * size;
  return taps * filter_row(channels) * size;
}

void arrange_filters(const ConvCall& c, int64_t channels, int64_t taps, const void* w, void* out) {
  dispatch_floating(c.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const T* from = static_cast<const T*>(w);
    A* to = static_cast<A*>(out);
    if (!c.channels_last) return std::copy_n(from, channels * taps, to), void();
    const int64_t row = filter_row(channels);
    for (int64_t t = 0; t < taps; ++t, to += row) {
      for (int64_t i = 0; i < channels; ++i) to[i] = static_cast<A>(from[i * taps + t]);
      std::fill(to + channels, to + row, A(0));
    }
  });
}

void depthwise(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* w, void* y,
               const int64_t y_size[3]) {
  const int64_t taps = p.window.tap_count();
  const Workspace<char> own(c.packed ? 0 : filter_bytes(c, channels, taps));
  if (own.data()) arrange_filters(c, channels, taps, w, own.data());
  const void* filters = c.packed ? c.packed->filters->data() : own.data() ? own.data() : w;
  if (c.channels_last) return HWY_DYNAMIC_DISPATCH(depthwise_any)(p, c, channels, x, filters, y, y_size);
  depthwise_nchw(p, c, channels, x, filters, y, y_size);
}

void depthwise_weight(const ConvCall& c, const void* dy, void* dw) {
  c.channels_last ? HWY_DYNAMIC_DISPATCH(depthwise_weight_any)(c, dy, dw) : depthwise_nchw_weight(c, dy, dw);
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
