// One filter per channel, channels first: direct sums in registers, vectors run over positions.
//
// Note [Padded bands]: some output lines at a time, what they read of a plane is copied to lines with zeros around
// the image, rows and columns sorted by their residue modulo the step. There each tap lies at one distance from every
// position, and positions of a line, and lines, follow each other: all of them are one run of vectors. What a run finds
// between two lines is left out when the results are written.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv_depthwise_planes.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/activate-inl.h"
#include "kernels/cpu/conv_internal.h"
#include "kernels/cpu/pool-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::Phase;
using detail::Window;

constexpr int64_t kGrain = 32 * 1024;      // multiply-adds that pay for a lane
constexpr int64_t kBandBytes = 64 * 1024;  // of a copy
constexpr int64_t kFarBytes = 4 << 20;     // x: what is not in a cache
// Vectors of positions whose sums stay in registers.
constexpr int kVectors = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;
constexpr int kFew = kVectors / 2;  // of the last tile, where they are enough

// Where things lie in the copy of a band.
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
  // From a position to its tap t.
  int64_t distance(int64_t t) const {
    const Window& w = window;
    const int64_t y = t / w.taps[2] % w.taps[1] * w.tap_step[1] - low[1], x = t % w.taps[2] * w.tap_step[2] - low[2];
    return t / (w.taps[2] * w.taps[1]) * plane + (y % w.step[1] * w.step[2] + x % w.step[2]) * residue +
           y / w.step[1] * line + x / w.step[2];
  }
  const Window& window;
  int64_t low[3], reach[3];
  int64_t count, rows;  // bands of a plane; output lines of each
  int64_t line, residue, plane;
};

// to[i] = from[i * step]
template <class T>
inline void copy_values(const T* from, int64_t step, int64_t count, accumulate_t<T>* to) {
  using V = RowVec<T>;
  constexpr int64_t kLanes = V::kLanes;
  int64_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= count; i += kLanes) load_vec(from + i).store(to + i);
    if (i < count && i > 0) load_vec(from + count - kLanes).store(to + count - kLanes), i = count;
  } else if (step == 2) {
    for (; i + kLanes < count; i += kLanes) {
      V even, odd;
      load_pairs(from + 2 * i, even, odd);
      even.store(to + i);
    }
  }
  for (; i < count; ++i) to[i] = static_cast<accumulate_t<T>>(from[i * step]);
}

// Memory that is brought near while tiles are summed, some bytes for each tile.
struct Ahead {
  Ahead(const void* first, int64_t bytes, int64_t tiles)
      : at(static_cast<const char*>(first)), end(at + bytes), some(bytes / std::max<int64_t>(1, tiles) + 64) {}
  template <int kWrite>
  void fetch() {
    for (const char* to = std::min(end, at + some); at < to; at += 64) __builtin_prefetch(at, kWrite);
  }
  const char *at, *end;
  int64_t some;
};

template <class T>
class DepthwisePlanes {
 public:
  using A = accumulate_t<T>;
  using V = RowVec<T>;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kBeyond = kVectors * kLanes;  // the last tile of a run reads and writes up to here

  DepthwisePlanes(const Phase& phase, const ConvCall& c, int64_t channels, const void* x, const void* filters, void* y,
                  const int64_t* y_size)
      : p_(phase),
        w_(phase.window),
        c_(c),
        channels_(channels),
        x_(static_cast<const T*>(x)),
        filters_(static_cast<const A*>(filters)),
        y_(static_cast<T*>(y)),
        y_size_(y_size),
        band_(w_, sizeof(A)),
        taps_(w_.tap_count()),
        spatial_(y_size[0] * y_size[1] * y_size[2]),
        dense_(phase.dense() && y_size[2] == w_.count[2]),
        distances_(std::max<int64_t>(1, taps_)) {
    for (int64_t t = 0; t < taps_; ++t) distances_[t] = band_.distance(t);
  }

  void run() const {
    const int64_t items = c_.n * channels_ * w_.count[0] * band_.count;
    const int64_t cost = std::max<int64_t>(1, band_.rows * w_.count[2] * taps_);
    parallel_for(0, items, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) { run(begin, end); });
  }

 private:
  void run(int64_t begin, int64_t end) const {
    const int64_t size = w_.taps[0] * band_.plane + kBeyond, run = band_.rows * band_.line + kBeyond;
    const Workspace<A> copy(size), sums(run), lines(run);
    std::fill_n(copy.data(), size, A(0));
    const auto plane_bytes = w_.source() * static_cast<int64_t>(sizeof(T));
    const bool far = c_.n * channels_ * plane_bytes > kFarBytes;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % band_.count * band_.rows, rows = std::min(band_.rows, w_.count[1] - row);
      const int64_t z = i / band_.count % w_.count[0], image = i / (band_.count * w_.count[0]);
      if (rows <= 0) continue;
      const T* x = x_ + image * w_.source();
      fill(x, z, row, rows, copy.data());
      // Far from each other, lines are runs of their own.
      const int64_t together = band_.line - w_.count[2] < kLanes ? rows : 1;
      const int64_t length = (together - 1) * band_.line + w_.count[2], tiles = length * rows / (together * kBeyond);
      const bool whole = far && band_.count == 1 && w_.count[0] == 1;
      // One plane follows the other, mostly.
      Ahead read(x + w_.source(), whole && i + 1 < end ? plane_bytes : 0, tiles);
      Ahead written(y_ + image * spatial_, whole && dense_ ? spatial_ * static_cast<int64_t>(sizeof(T)) : 0, tiles);
      const A* filter = filters_ + image % channels_ * taps_;
      for (int64_t r = 0; r < rows; r += together) {
        sum_run(copy.data() + r * band_.line, filter, length, sums.data() + r * band_.line, read, written);
      }
      put(sums.data(), image, z, row, rows, lines.data());
    }
  }

  // What output lines [row, row + rows) read. Zeros beside the lines are there already.
  void fill(const T* x, int64_t z, int64_t row, int64_t rows, A* to) const {
    const int64_t read = (rows - 1) * w_.step[1] + band_.reach[1] + 1, step = w_.step[2];
    for (int64_t t = 0; t < w_.taps[0]; ++t, to += band_.plane) {
      const int64_t from_z = z * w_.step[0] + w_.base[0] + t * w_.tap_step[0];
      for (int64_t r = 0; r < read; ++r) {
        const int64_t from_y = row * w_.step[1] + w_.base[1] + band_.low[1] + r;
        const bool inside = from_z >= 0 && from_z < w_.size[0] && from_y >= 0 && from_y < w_.size[1];
        const T* from = x + (inside ? (from_z * w_.size[1] + from_y) * w_.size[2] : 0);
        A* line = to + r % w_.step[1] * step * band_.residue + r / w_.step[1] * band_.line;
        for (int64_t q = 0; q < step; ++q, line += band_.residue) {
          const int64_t first = w_.base[2] + band_.low[2] + q;  // line[i] is from[first + i * step]
          const auto steps = [&](int64_t distance) {
            return distance <= 0 ? 0 : step == 1 ? distance : (distance + step - 1) / step;
          };
          const int64_t lo = std::min(steps(-first), band_.line);
          const int64_t hi = std::clamp(steps(w_.size[2] - first), lo, band_.line);
          if (inside) {
            copy_values(from + first + lo * step, step, hi - lo, line + lo);
          } else {
            std::fill(line + lo, line + hi, A(0));
          }
        }
      }
    }
  }

  void sum_run(const A* x, const A* filter, int64_t count, A* sums, Ahead& read, Ahead& written) const {
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
      for (int64_t r = 0; r < rows; ++r) put_line(sums + r * band_.line, w_.count[2], place(row + r), bias);
      return;
    }
    if (rows > 1 && band_.line > w_.count[2]) {
      // A vector goes beyond its line: the next one comes later.
      for (int64_t r = 0; r < rows; ++r) {
        const A* from = sums + r * band_.line;
        A* to = lines + r * w_.count[2];
        for (int64_t i = 0; i < w_.count[2]; i += kLanes) V::load(from + i).store(to + i);
      }
      sums = lines;
    }
    put_values(sums, rows * w_.count[2], place(row), bias);
  }
  void put_line(const A* sums, int64_t count, int64_t at, A bias) const {
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
  const Window& w_;
  const ConvCall& c_;
  int64_t channels_;
  const T* x_;
  const A* filters_;
  T* y_;
  const int64_t* y_size_;
  Band band_;
  int64_t taps_, spatial_;
  bool dense_;  // lines follow each other in y
  Workspace<int64_t> distances_;
};

void depthwise_planes_any(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* filters,
                          void* y, const int64_t* y_size) {
  dispatch_floating(c.dtype, [&]<class T>() { DepthwisePlanes<T>(p, c, channels, x, filters, y, y_size).run(); });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(depthwise_planes_any);

void depthwise_planes(const Phase& p, const ConvCall& c, int64_t channels, const void* x, const void* filters, void* y,
                      const int64_t* y_size) {
  HWY_DYNAMIC_DISPATCH(depthwise_planes_any)(p, c, channels, x, filters, y, y_size);
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
