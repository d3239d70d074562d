// Depthwise convolution in NCHW: direct sums in registers, vectors run over positions.
//
// Note [Padded bands]: the input of some output rows at a time is copied to rows with zero padding, rows and columns
// sorted by their residue modulo the stride. There each tap has one distance from every position, and positions and
// rows are contiguous: all of them are one run of vectors. Results that fall between two rows are dropped when they are
// written.
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/conv_depthwise_nchw.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/conv/conv_internal.h"
#include "kernels/cpu/gemm/activate-inl.h"
#include "kernels/cpu/norm/row-inl.h"
#include "kernels/cpu/pool/pool-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::Phase;
using detail::ReadAhead;
using detail::Window;

constexpr int64_t kGrain = 32 * 1024;      // multiply-adds that pay for a thread
constexpr int64_t kBandBytes = 64 * 1024;  // of a copy
constexpr int64_t kFarBytes = 4 << 20;     // x larger than this is not in a cache
// Vectors of positions whose sums stay in registers.
constexpr int kVectors = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;
constexpr int kFew = kVectors / 2;  // vectors of the last tile, where they suffice

// The layout of the copy of a band.
struct Band {
  Band(const Window& w, int64_t bytes) : window(w) {
    for (int d = 0; d < 3; ++d) {
      const int64_t last = (w.taps[d] - 1) * w.tap_step[d];
      low[d] = std::min<int64_t>(0, last), reach[d] = std::abs(last);
    }
    line = w.count[2] + reach[2] / w.step[2];
    const int64_t row = std::max<int64_t>(1, w.taps[0]) * w.step[2] * line * w.step[1] * bytes;
    const int64_t most = std::max<int64_t>(1, kBandBytes / row - reach[1] / w.step[1]);
    count = (w.count[1] + most - 1) / most;
    rows = (w.count[1] + count - 1) / count;
    residue = (rows + reach[1] / w.step[1]) * line;
    plane = w.step[1] * w.step[2] * residue;
  }
  // The distance from a position to its tap t.
  int64_t distance(int64_t t) const {
    const Window& w = window;
    const int64_t y = t / w.taps[2] % w.taps[1] * w.tap_step[1] - low[1], x = t % w.taps[2] * w.tap_step[2] - low[2];
    return t / (w.taps[2] * w.taps[1]) * plane + (y % w.step[1] * w.step[2] + x % w.step[2]) * residue +
           y / w.step[1] * line + x / w.step[2];
  }
  const Window& window;
  int64_t low[3], reach[3];
  int64_t count, rows;  // bands of a plane; output rows of each
  int64_t line, residue, plane;
};

// The first SIMD lanes of v.
template <class A>
inline void store_first(Vec<A> v, int64_t count, A* to) {
  const typename Vec<A>::D d;
  hn::BlendedStore(v.raw, hn::FirstN(d, static_cast<size_t>(count)), d, to);
}

// to[i] = from[i * step], of which `room` values may be read; the last vector may write beyond `count`.
template <class T>
inline void copy_values(const T* from, int64_t room, int64_t step, int64_t count, accumulate_t<T>* to) {
  using V = RowVec<T>;
  constexpr int64_t kLanes = V::kLanes;
  int64_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= count; i += kLanes) load_vec(from + i).store(to + i);
    if (i < count && i + kLanes <= room) store_first(load_vec(from + i), count - i, to + i), i = count;
  } else if (step == 2) {
    for (; i < count && 2 * (i + kLanes) <= room; i += kLanes) {
      V even, odd;
      load_pairs(from + 2 * i, even, odd);
      i + kLanes <= count ? even.store(to + i) : store_first(even, count - i, to + i);
    }
  }
  for (; i < count; ++i) to[i] = static_cast<accumulate_t<T>>(from[i * step]);
}

// Copies of bands.
template <class T>
class NchwBands {
 public:
  using A = accumulate_t<T>;
  using V = RowVec<T>;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kBeyond = kVectors * kLanes;  // the last tile of a run reads and writes up to here

 protected:
  NchwBands(const Window& w, int64_t planes, const void* x)
      : w_(w),
        x_(static_cast<const T*>(x)),
        end_(x_ + planes * w.source()),
        band_(w, sizeof(A)),
        taps_(w.tap_count()),
        size_(w.taps[0] * band_.plane + kBeyond),
        distances_(std::max<int64_t>(1, taps_)) {
    for (int64_t t = 0; t < taps_; ++t) distances_[t] = band_.distance(t);
  }

  // Copies the input of output rows [row, row + rows) of a plane. Zeros beside the rows are there already.
  void fill(const T* x, int64_t z, int64_t row, int64_t rows, A* to) const {
    const int64_t first = row * w_.step[1] + w_.base[1] + band_.low[1],
                  read = (rows - 1) * w_.step[1] + band_.reach[1] + 1;
    for (int64_t t = 0; t < w_.taps[0]; ++t, to += band_.plane) {
      const int64_t from_z = z * w_.step[0] + w_.base[0] + t * w_.tap_step[0];
      const bool inside = from_z >= 0 && from_z < w_.size[0];
      for (int64_t q = 0; q < w_.step[2]; ++q) {
        fill_columns(inside ? x + from_z * w_.size[1] * w_.size[2] : nullptr, first, read, q, to + q * band_.residue);
      }
    }
  }

  const Window& w_;
  const T *x_, *end_;
  Band band_;
  int64_t taps_, size_;  // size_: of a copy
  Workspace<int64_t> distances_;

 private:
  // Copies columns of one residue, rows [first, first + count). Null: all of them are padding.
  void fill_columns(const T* x, int64_t first, int64_t count, int64_t residue, A* to) const {
    const int64_t step = w_.step[2], column = w_.base[2] + band_.low[2] + residue;  // to[i] is line[column + i * step]
    const auto steps = [&](int64_t distance) { return distance <= 0 ? 0 : (distance + step - 1) / step; };
    const int64_t lo = std::min(steps(-column), band_.line);
    const int64_t hi = std::clamp(steps(w_.size[2] - column), lo, band_.line);
    const int64_t next = step * band_.residue, back = w_.step[1] * next - band_.line;
    for (int64_t r = 0, y_residue = 0; r < count; ++r, to += next) {
      const int64_t y = first + r;
      if (x && y >= 0 && y < w_.size[1]) {
        const T* from = x + y * w_.size[2] + column + lo * step;
        copy_values(from, end_ - from, step, hi - lo, to + lo);
      } else {
        std::fill(to + lo, to + hi, A(0));
      }
      if (++y_residue == w_.step[1]) y_residue = 0, to -= back;
    }
  }
};

template <class T>
class DepthwiseNchw : NchwBands<T> {
  using Base = NchwBands<T>;
  using Base::w_, Base::x_, Base::band_, Base::taps_, Base::distances_, Base::kLanes, Base::kBeyond;
  using typename Base::A, typename Base::V;

 public:
  DepthwiseNchw(const Phase& phase, const ConvCall& c, int64_t channels, const void* x, const void* filters, void* y,
                const int64_t* y_size)
      : Base(phase.window, c.n * channels, x),
        p_(phase),
        c_(c),
        channels_(channels),
        filters_(static_cast<const A*>(filters)),
        y_(static_cast<T*>(y)),
        y_size_(y_size),
        spatial_(y_size[0] * y_size[1] * y_size[2]),
        dense_(phase.dense() && y_size[2] == w_.count[2]) {}

  void run() const {
    const int64_t items = c_.n * channels_ * w_.count[0] * band_.count;
    const int64_t cost = std::max<int64_t>(1, band_.rows * w_.count[2] * taps_);
    parallel_for(0, items, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) { run(begin, end); });
  }

 private:
  void run(int64_t begin, int64_t end) const {
    const int64_t run = band_.rows * band_.line + kBeyond;
    const Workspace<A> copy(this->size_), sums(run), lines(run);
    std::fill_n(copy.data(), this->size_, A(0));
    const auto plane_bytes = w_.source() * static_cast<int64_t>(sizeof(T));
    const bool far = c_.n * channels_ * plane_bytes > kFarBytes;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % band_.count * band_.rows, rows = std::min(band_.rows, w_.count[1] - row);
      const int64_t z = i / band_.count % w_.count[0], image = i / (band_.count * w_.count[0]);
      if (rows <= 0) continue;
      const T* x = x_ + image * w_.source();
      this->fill(x, z, row, rows, copy.data());
      // Rows far from each other are separate runs.
      const int64_t together = band_.line - w_.count[2] < kLanes ? rows : 1;
      const int64_t length = (together - 1) * band_.line + w_.count[2], tiles = length * rows / (together * kBeyond);
      const bool whole = far && band_.count == 1 && w_.count[0] == 1;
      // The next plane usually follows in memory.
      ReadAhead read(x + w_.source(), whole && i + 1 < end ? plane_bytes : 0, tiles);
      ReadAhead written(y_ + image * spatial_, whole && dense_ ? spatial_ * static_cast<int64_t>(sizeof(T)) : 0, tiles);
      const A* filter = filters_ + image % channels_ * taps_;
      for (int64_t r = 0; r < rows; r += together) {
        sum_run(copy.data() + r * band_.line, filter, length, sums.data() + r * band_.line, read, written);
      }
      put(sums.data(), image, z, row, rows, lines.data());
    }
  }

  void sum_run(const A* x, const A* filter, int64_t count, A* sums, ReadAhead& read, ReadAhead& written) const {
    int64_t i = 0;
    for (; i + kFew * kLanes < count; i += kVectors * kLanes) {
      read.fetch<0>(), written.fetch<1>();
      sum_vectors<kVectors>(x + i, filter, sums + i);
    }
    if (i < count) sum_vectors<kFew>(x + i, filter, sums + i);
  }
  template <int kMany>
  HWY_NOINLINE void sum_vectors(const A* x, const A* filter, A* sums) const {
    V s[kMany];
#pragma GCC unroll 4
    for (V& v : s) v = V(0);
    for (int64_t t = 0; t < taps_; ++t) {
      const A* from = x + distances_[t];
      const V f(filter[t]);
#pragma GCC unroll 4
      for (int j = 0; j < kMany; ++j) s[j] = fma(V::load(from + j * kLanes), f, s[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < kMany; ++j) s[j].store(sums + j * kLanes);
  }

  void put(const A* sums, int64_t image, int64_t z, int64_t row, int64_t rows, A* lines) const {
    const A bias = c_.bias ? static_cast<A>(static_cast<const T*>(c_.bias)[image % channels_]) : A(0);
    const auto place = [&](int64_t r) {
      const int64_t line = (p_.start[0] + z * p_.step[0]) * y_size_[1] + p_.start[1] + r * p_.step[1];
      return image * spatial_ + line * y_size_[2] + p_.start[2];
    };
    if (!dense_) {
      for (int64_t r = 0; r < rows; ++r) put_row(sums + r * band_.line, w_.count[2], place(row + r), bias);
      return;
    }
    if (rows > 1 && band_.line > w_.count[2]) {
      // A vector runs beyond its row: the next row overwrites that later.
      for (int64_t r = 0; r < rows; ++r) {
        const A* from = sums + r * band_.line;
        A* to = lines + r * w_.count[2];
        for (int64_t i = 0; i < w_.count[2]; i += kLanes) V::load(from + i).store(to + i);
      }
      sums = lines;
    }
    put_values(sums, rows * w_.count[2], place(row), bias);
  }
  void put_row(const A* sums, int64_t count, int64_t at, A bias) const {
    const int64_t step = p_.step[2];
    if (step == 1) return put_values(sums, count, at, bias);
    T* y = y_ + at;
    for (int64_t i = 0; i < count; ++i) y[i * step] = static_cast<T>(sums[i] + bias);
  }
  void put_values(const A* sums, int64_t count, int64_t at, A bias) const {
    if (c_.residual || c_.activation != Activation::none) return put_more(sums, count, at, bias);
    T* y = y_ + at;
    const V b(bias);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store_vec(V::load(sums + i) + b, y + i);
    if (i < count) store_some(V::load(sums + i) + b, y + i, count - i);
  }
  HWY_NOINLINE void put_more(const A* sums, int64_t count, int64_t at, A bias) const {
    T* y = y_ + at;
    const T* residual = c_.residual ? static_cast<const T*>(c_.residual) + at : nullptr;
    for (int64_t i = 0; i < count; i += kLanes) {
      V v = V::load(sums + i) + V(bias);
      if (residual) v += load_some(residual + i, count - i);
      store_some(activate(c_.activation, v), y + i, count - i);
    }
  }

  const Phase& p_;
  const ConvCall& c_;
  int64_t channels_;
  const A* filters_;
  T* y_;
  const int64_t* y_size_;
  int64_t spatial_;
  bool dense_;  // rows are contiguous in y
};

// Gradient of the filters: a vector of dy times the vector of x at the distance of each tap.
template <class T>
class FilterGradient : NchwBands<T> {
  using Base = NchwBands<T>;
  using Base::w_, Base::x_, Base::band_, Base::taps_, Base::distances_, Base::kLanes;
  using typename Base::A, typename Base::V;
  static constexpr int kTaps = 9;  // taps whose sums stay in registers

 public:
  FilterGradient(const Window& w, int64_t n, int64_t channels, const void* x, const void* dy)
      : Base(w, n * channels, x),
        n_(n),
        channels_(channels),
        dy_(static_cast<const T*>(dy)),
        dy_end_(dy_ + n * channels * w.positions()) {}

  void run(T* dw) const {
    const int64_t cost = std::max<int64_t>(1, n_ * w_.positions() * taps_);
    parallel_for(0, channels_, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
      const Workspace<A> copy(this->size_), sums(taps_ * kLanes);
      std::fill_n(copy.data(), this->size_, A(0));
      for (int64_t channel = begin; channel < end; ++channel) {
        std::fill_n(sums.data(), taps_ * kLanes, A(0));
        for (int64_t n = 0; n < n_; ++n) add_plane(n * channels_ + channel, copy.data(), sums.data());
        for (int64_t t = 0; t < taps_; ++t) {
          A sum = 0;
          for (int64_t i = 0; i < kLanes; ++i) sum += sums[t * kLanes + i];
          dw[channel * taps_ + t] = static_cast<T>(sum);
        }
      }
    });
  }

 private:
  void add_plane(int64_t plane, A* copy, A* sums) const {
    const T* dy = dy_ + plane * w_.positions();
    for (int64_t z = 0; z < w_.count[0]; ++z) {
      for (int64_t row = 0; row < w_.count[1]; row += band_.rows) {
        const int64_t rows = std::min(band_.rows, w_.count[1] - row);
        this->fill(x_ + plane * w_.source(), z, row, rows, copy);
        for (int64_t t = 0; t < taps_; t += kTaps) add_taps(copy, dy, rows, t, sums);
        dy += rows * w_.count[2];
      }
    }
  }

  // Taps from t0 on. The end of a row is masked in both operands: zero times infinity is not zero.
  HWY_NOINLINE void add_taps(const A* x, const T* dy, int64_t rows, int64_t t0, A* sums) const {
    const A* taps[kTaps];
    for (int64_t t = 0; t < kTaps; ++t) taps[t] = x + distances_[std::min(t0 + t, taps_ - 1)];
    V s[kTaps];
#pragma GCC unroll 16
    for (V& v : s) v = V(0);
    const int64_t width = w_.count[2], whole = width / kLanes * kLanes, rest = width - whole;
    const Mask<A> inside{hn::FirstN(typename V::D(), static_cast<size_t>(rest))};
    for (int64_t r = 0; r < rows; ++r, dy += width) {
      const int64_t line = r * band_.line;
      for (int64_t j = 0; j < whole; j += kLanes) {
        const V g = load_vec(dy + j);
#pragma GCC unroll 16
        for (int t = 0; t < kTaps; ++t) s[t] = fma(V::load(taps[t] + line + j), g, s[t]);
      }
      if (rest == 0) continue;
      const T* end = dy + whole;
      const V g = keep_where(inside, dy_end_ - end >= kLanes ? load_vec(end) : load_some(end, rest));
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t) s[t] = fma(keep_where(inside, V::load(taps[t] + line + whole)), g, s[t]);
    }
    A found[kTaps][V::kLanes];
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) s[t].store(found[t]);
    sums += t0 * kLanes;
    for (int64_t t = 0; t < std::min<int64_t>(kTaps, taps_ - t0); ++t, sums += kLanes) {
      (V::load(sums) + V::load(found[t])).store(sums);
    }
  }

  int64_t n_, channels_;
  const T *dy_, *dy_end_;
};

void depthwise_nchw_any(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* filters,
                        void* y, const int64_t* y_size) {
  dispatch_floating(c.dtype, [&]<class T>() { DepthwiseNchw<T>(p, c, channels, x, filters, y, y_size).run(); });
}

void depthwise_nchw_weight_any(const ConvCall& c, const void* dy, void* dw) {
  const Window w = detail::forward_window(c);
  dispatch_floating(c.dtype, [&]<class T>() { FilterGradient<T>(w, c.n, c.c_in, c.x, dy).run(static_cast<T*>(dw)); });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(depthwise_nchw_any);
HWY_EXPORT(depthwise_nchw_weight_any);

void depthwise_nchw(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* filters, void* y,
                    const int64_t* y_size) {
  HWY_DYNAMIC_DISPATCH(depthwise_nchw_any)(p, c, channels, x, filters, y, y_size);
}
void depthwise_nchw_weight(const ConvCall& c, const void* dy, void* dw) {
  HWY_DYNAMIC_DISPATCH(depthwise_nchw_weight_any)(c, dy, dw);
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
