#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/pool_nchw.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/gemm/gemm_internal.h"
#include "kernels/cpu/norm/row-inl.h"
#include "kernels/cpu/pool/pool-inl.h"
#include "kernels/cpu/pool/pool_internal.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kBand = 8192;      // elements of a plane whose gradient is made at a time, to stay in L1
constexpr int64_t kLongWindow = 16;  // a window's row this long is summed with vectors along it

// The rows of the input that the windows of one line of outputs hold.
class Line {
 public:
  Line(const PoolPlan& p, int64_t l)
      : plane(l / (p.axis[0].out * p.axis[1].out)),
        z(l / p.axis[1].out % p.axis[0].out),
        y(l % p.axis[1].out),
        p_(p),
        rows_(p.axis[0].largest_window() * p.axis[1].largest_window()),
        positions_(p.axis[0].largest_window() * p.axis[1].largest_window()) {
    fill();
  }
  void advance() {
    if (++y == p_.axis[1].out) y = 0, ++z;
    if (z == p_.axis[0].out) z = 0, ++plane;
    fill();
  }
  int64_t row(int64_t k) const { return rows_[k]; }  // its first element in the plane
  // A second copy: otherwise a compiler that keeps it in a vector would move it from there to the address.
  int64_t position(int64_t k) const { return positions_[k]; }
  int64_t plane, z, y, count;

 private:
  void fill() {
    const PoolSpan zs = p_.axis[0].window(z), ys = p_.axis[1].window(y);
    count = 0;
    for (int64_t k = zs.begin; k < zs.end; k += zs.step) {
      for (int64_t j = ys.begin; j < ys.end; j += ys.step) {
        rows_[count] = positions_[count] = (k * p_.axis[1].in + j) * p_.axis[2].in;
        ++count;
      }
    }
  }
  const PoolPlan& p_;
  Workspace<int64_t> rows_, positions_;
};
struct NoScratch {
  explicit NoScratch(const PoolAxis&) {}
};
// f(line, its number, scratch of the thread)
template <class Scratch, class F>
void each_line(const PoolPlan& p, const F& f) {
  const int64_t grain = std::max<int64_t>(1, kPoolGrain / (p.axis[2].out * p.window_cost()));
  parallel_for(0, p.outer * p.axis[0].out * p.axis[1].out, grain, [&](int64_t begin, int64_t end) {
    Line line(p, begin);
    const Scratch scratch(p.axis[2]);
    for (int64_t l = begin; l < end; ++l, line.advance()) f(line, l, scratch);
  });
}

// ---- Maximum.
template <class S, bool kPositions>
struct MaxLine {
  using T = accumulate_t<S>;
  using V = Vec<T>;
  using I = PoolIndices<T>;
  static constexpr int64_t kLanes = V::kLanes;
  const PoolAxis& a;
  const PoolSpans& windows;
  const Line& line;
  PoolSpan inside;             // windows to take as vectors: they lie inside the row
  const PoolIndex<T>* starts;  // of the windows of a vector
  const S* x;                  // the plane
  S* y;                        // the line
  int64_t* indices;

  void one(int64_t o) const {
    const PoolSpan& xs = windows[o];
    int64_t where = line.count && xs.begin < xs.end ? line.row(0) + xs.begin : -1;
    T best = where < 0 ? -std::numeric_limits<T>::infinity() : static_cast<T>(x[where]);
    for (int64_t r = 0; r < line.count; ++r) {
      for (int64_t i = line.row(r) + xs.begin; i < line.row(r) + xs.end; i += xs.step) {
        const T v = detail::widen(x[i]);
        if (v <= best) [[likely]]
          continue;
        if (v > best || v != v) best = v, where = i;
      }
    }
    y[o] = where < 0 ? S(-std::numeric_limits<float>::infinity()) : x[where];
    if constexpr (kPositions) indices[o] = where;
  }
  // n vectors of windows that lie inside the row, side by side because each comparison waits for the one before.
  // Positions are counted from the start of a window until the end.
  template <int kStride, int kKernel, size_t n>
  void vectors(int64_t o) const {
    const int64_t start = o * a.stride - a.pad, kernel = kKernel ? kKernel : a.kernel, step = kLanes * a.stride;
    const I next(static_cast<PoolIndex<T>>(a.dilation));
    V best[n], v[n], odd[n];
    I where[n];
    for (size_t j = 0; j < n; ++j) {
      best[j] = V(-std::numeric_limits<T>::infinity());
      where[j] = I(static_cast<PoolIndex<T>>(line.row(0)));
    }
    for (int64_t r = 0; r < line.count; ++r) {
      const S* from = x + line.row(r) + start;
      I at(static_cast<PoolIndex<T>>(line.position(r)));
      auto take = [&](const V* values) HWY_ATTR {
        for (size_t j = 0; j < n; ++j) take_larger<kPositions>(values[j], at, best[j], where[j]);
        if constexpr (kPositions) at.raw = hn::Add(at.raw, next.raw);
      };
      if constexpr (kStride == 2) {
        int64_t k = 0;
        for (; k + 2 <= kernel; k += 2) {
          for (size_t j = 0; j < n; ++j) load_pairs(from + k + j * 2 * kLanes, v[j], odd[j]);
          take(v);
          take(odd);
        }
        if (k == kernel) continue;
        for (size_t j = 0; j < n; ++j) load_pairs(from + k - 1 + j * 2 * kLanes, v[j], odd[j]);  // not behind the end
        take(odd);
      } else {
        for (int64_t k = 0; k < kernel; ++k, from += a.dilation) {
          for (size_t j = 0; j < n; ++j) v[j] = load_steps<kStride>(from + static_cast<int64_t>(j) * step);
          take(v);
        }
      }
    }
    for (size_t j = 0; j < n; ++j) {
      const auto first = static_cast<PoolIndex<T>>(start + static_cast<int64_t>(j) * step);
      store_vec(best[j], y + o + j * kLanes);
      if constexpr (!kPositions) continue;
      where[j].raw = hn::Add(where[j].raw, hn::Add(I::load(starts).raw, I(first).raw));
      where[j].store_some(indices + o + j * kLanes, kLanes);
    }
  }
  template <int kStride>
  V load_steps(const S* from) const {
    if constexpr (kStride == 1) {
      return load_vec(from);
    } else {
      S lanes[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) lanes[i] = from[i * a.stride];
      return load_vec(lanes);
    }
  }
  template <int kStride, int kKernel>
  DEFT_FLATTEN HWY_NOINLINE void run() const {
    const int64_t begin = line.count ? inside.begin : a.out, end = line.count ? inside.end : a.out;
    for (int64_t o = 0; o < begin; ++o) one(o);
    int64_t o = begin;
    for (; o + 4 * kLanes <= end; o += 4 * kLanes) vectors<kStride, kKernel, 4>(o);
    for (; o + 2 * kLanes <= end; o += 2 * kLanes) vectors<kStride, kKernel, 2>(o);
    for (; o + kLanes <= end; o += kLanes) vectors<kStride, kKernel, 1>(o);
    if (o < end) vectors<kStride, kKernel, 1>(end - kLanes);  // some for the second time
    for (o = end; o < a.out; ++o) one(o);
  }
  void run_any() const {
    if (a.stride == 1) return a.kernel == 3 ? run<1, 3>() : run<1, 0>();
    if (a.stride != 2 || a.dilation != 1 || a.kernel == 1) return run<0, 0>();
    a.kernel == 2 ? run<2, 2>() : a.kernel == 3 ? run<2, 3>() : run<2, 0>();
  }
};

// The windows that lie inside the row, if they fill a vector.
PoolSpan inside_row(const PoolAxis& a, int64_t lanes) {
  const int64_t room = a.in + a.pad - (a.kernel - 1) * a.dilation - 1;
  const int64_t begin = (a.pad + a.stride - 1) / a.stride, end = room < 0 ? 0 : std::min(a.out, room / a.stride + 1);
  return a.adaptive || end - begin < lanes ? PoolSpan{a.out, a.out, 1} : PoolSpan{begin, end, 1};
}

template <class S, bool kPositions>
void max_lines(const PoolPlan& p, const S* x, S* y, int64_t* indices) {
  using Max = MaxLine<S, kPositions>;
  using Index = PoolIndex<accumulate_t<S>>;
  const PoolAxis& a = p.axis[2];
  const PoolSpans windows(a, true);
  const PoolSpan inside = inside_row(a, Max::kLanes);
  Index starts[Max::kLanes];
  for (int64_t i = 0; i < Max::kLanes; ++i) starts[i] = static_cast<Index>(i * a.stride);
  each_line<NoScratch>(p, [&](const Line& line, int64_t l, NoScratch) {
    int64_t* positions = kPositions ? indices + l * a.out : nullptr;
    Max{a, windows, line, inside, starts, x + line.plane * p.in, y + l * a.out, positions}.run_any();
  });
}
void max_forward_any(const PoolPlan& p, DType t, const void* x, void* y, int64_t* indices) {
  dispatch_floating(t, [&]<class S>() {
    (indices ? max_lines<S, true> : max_lines<S, false>)(p, static_cast<const S*>(x), static_cast<S*>(y), indices);
  });
}

// ---- Gradients are made in bands: some neighbouring rows (y) of one z of a plane.
struct Band {
  int64_t plane, z, begin, end;  // rows
  PoolSpan zs, ys;               // windows that may hold any of them
};
struct Bands {
  const PoolPlan& p;
  int64_t rows, count, of_plane;
  explicit Bands(const PoolPlan& plan)
      : p(plan),
        rows(std::clamp<int64_t>(kBand / p.axis[2].in, 1, p.axis[1].in)),
        count((p.axis[1].in + rows - 1) / rows),
        of_plane(count * p.axis[0].in) {}
  Band at(int64_t u) const {
    const PoolAxis& y = p.axis[1];
    const int64_t z = u / count % p.axis[0].in, begin = u % count * rows, end = std::min(y.in, begin + rows);
    const PoolSpan ys{y.covering(begin).begin, y.covering(end - 1).end, 1};
    return {u / of_plane, z, begin, end, p.axis[0].covering(z), ys};
  }
  // f(band, what make_scratch() gave to the thread).
  template <class Make, class F>
  void each(const Make& make_scratch, const F& f) const {
    const int64_t grain = std::max<int64_t>(1, kPoolGrain / (rows * p.axis[2].in));
    parallel_for(0, p.outer * of_plane, grain, [&](int64_t from, int64_t to) {
      auto scratch = make_scratch();
      for (int64_t u = from; u < to; ++u) f(at(u), scratch);
    });
  }
};

// Adds the gradients of n outputs to the sums of a band, whose first element in the plane is `base`.
template <class S>
inline void scatter(const S* dy, const int64_t* indices, int64_t n, int64_t base, int64_t size, accumulate_t<S>* sums) {
  for (int64_t o = 0; o < n; ++o) {
    const auto at = static_cast<uint64_t>(indices[o] - base);
    if (at < static_cast<uint64_t>(size)) sums[at] += detail::widen(dy[o]);
  }
}

void max_backward_any(const PoolPlan& p, DType t, const void* dy, const int64_t* indices, void* dx) {
  const int64_t width = p.axis[2].in, out = p.axis[2].out;
  const Bands bands(p);
  dispatch_floating(t, [&]<class S>() {
    using T = accumulate_t<S>;
    constexpr bool kInPlace = std::is_same_v<S, T>;
    auto make_sums = [&] { return Workspace<T>(kInPlace ? 0 : bands.rows * width); };
    bands.each(make_sums, [&](const Band& b, const Workspace<T>& scratch) {
      const int64_t base = (b.z * p.axis[1].in + b.begin) * width, size = (b.end - b.begin) * width;
      S* to = static_cast<S*>(dx) + b.plane * p.in + base;
      T* sums = scratch.data();
      if constexpr (kInPlace) sums = to;
      std::fill_n(sums, size, T(0));
      for (int64_t k = b.zs.begin; k < b.zs.end; ++k) {
        const int64_t first = b.plane * p.out + (k * p.axis[1].out + b.ys.begin) * out;
        scatter(static_cast<const S*>(dy) + first, indices + first, (b.ys.end - b.ys.begin) * out, base, size, sums);
      }
      if constexpr (!kInPlace) {
        map_row(size, to, [&](int64_t i, int64_t m) HWY_ATTR { return load_some(sums + i, m); });
      }
    });
  });
}

// ---- Average. The rows of a line of windows are summed first, into one row with room for the padding; then this row
// along the windows.
template <int kCount, class S, class Out>
inline void sum_some_rows(const S* const* rows, int64_t some, int64_t n, Out* to) {
  const int64_t count = kCount ? kCount : some;
  map_row(n, to, [&](int64_t i, int64_t m) HWY_ATTR {
    RowVec<S> v = load_some(rows[0] + i, m);
    for (int64_t k = 1; k < count; ++k) v += load_some(rows[k] + i, m);
    return v;
  });
}
template <class S, class Out>
DEFT_FLATTEN void sum_rows(const S* const* rows, int64_t count, int64_t n, Out* to) {
  switch (count) {
    case 0:
      std::fill_n(to, n, Out(0.0f));
      break;
    case 1:
      sum_some_rows<1>(rows, count, n, to);
      break;
    case 2:
      sum_some_rows<2>(rows, count, n, to);
      break;
    case 3:
      sum_some_rows<3>(rows, count, n, to);
      break;
    default:
      sum_some_rows<0>(rows, count, n, to);
  }
}

template <class T>
struct PaddedRow {
  static constexpr int64_t kLanes = Vec<T>::kLanes;
  const PoolAxis& a;
  int64_t used;  // elements of the input that some window may hold
  Workspace<T> data;
  explicit PaddedRow(const PoolAxis& axis)
      : a(axis),
        used(a.adaptive ? a.in : std::clamp<int64_t>((a.out - 1) * a.stride + a.kernel - a.pad, 0, a.in)),
        data(size(axis)) {
    std::fill_n(data.data(), size(axis), T(0));
  }
  static int64_t size(const PoolAxis& a) {
    return std::max(a.in + a.pad, (a.out + 4 * kLanes) * (a.adaptive ? 1 : a.stride) + a.kernel) + 4 * kLanes;
  }
  T* row() const { return data.data() + a.pad; }

  // Sums over windows o .. o + kLanes - 1, of which n count.
  template <int kStride>
  Vec<T> windows(const PoolSpans& spans, int64_t o, int64_t n) const {
    Vec<T> sum(0), even, odd;
    const T* from = data.data() + o * kStride;
    if constexpr (kStride == 1) {
      for (int64_t k = 0; k < a.kernel; ++k) sum += Vec<T>::load(from + k);
    } else if constexpr (kStride == 2) {
      for (int64_t k = 0; k < a.kernel; k += 2) {
        load_pairs(from + k, even, odd);
        sum += k + 1 < a.kernel ? even + odd : even;
      }
    } else {
      T lanes[kLanes] = {};
      for (int64_t k = 0; k < n; ++k) {
        for (int64_t i = spans[o + k].begin; i < spans[o + k].end; ++i) lanes[k] += row()[i];
      }
      sum = Vec<T>::load(lanes);
    }
    return sum;
  }
};
// The factors of the divisors by output column, and ones behind them.
template <class T>
void fill_columns(const PoolPlan& p, T* columns) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  for (int64_t o = 0; o < p.axis[2].out + kLanes; ++o) {
    columns[o] = o < p.axis[2].out ? static_cast<T>(p.of_column(o)) : T(1);
  }
}

template <int kStride, class S>
DEFT_FLATTEN void average_windows(const PoolPlan& p, const PoolSpans& windows, const PaddedRow<accumulate_t<S>>& sums,
                                  const accumulate_t<S>* columns, accumulate_t<S> of_line, S* y) {
  using V = RowVec<S>;
  const V factor(of_line);
  const int64_t out = p.axis[2].out;
  for (int64_t o = 0; o < out; o += V::kLanes) {
    const int64_t n = std::min<int64_t>(V::kLanes, out - o);
    store_some(sums.template windows<kStride>(windows, o, n) / (factor * V::load(columns + o)), y + o, n);
  }
}
// Large windows, one after the other, their rows added in f64.
template <class S>
void average_large_windows(const PoolPlan& p, const PoolSpans& windows, const Line& l, const S* x, S* y) {
  using T = accumulate_t<S>;
  for (int64_t o = 0; o < p.axis[2].out; ++o) {
    double total = 0;
    for (int64_t r = 0; r < l.count; ++r) {
      const S* from = x + l.row(r) + windows[o].begin;
      total += sum_row<T, 1>(windows[o].count(), [&](int64_t i, int64_t m, LaneSums<T, 1>& s)
                                                     HWY_ATTR { s.of[0] += load_some(from + i, m); })[0];
    }
    y[o] = static_cast<S>(static_cast<T>(total / static_cast<double>(p.of_line(l.z, l.y) * p.of_column(o))));
  }
}

template <class S>
void average_small_windows(const PoolPlan& p, const PoolSpans& windows, const PaddedRow<accumulate_t<S>>& sums,
                           const accumulate_t<S>* columns, const Line& l, const S* x, S* y) {
  const PoolAxis& a = p.axis[2];
  const S* rows[kPoolRun];
  for (int64_t r = 0; r < l.count; ++r) rows[r] = x + l.row(r);
  sum_rows(rows, l.count, sums.used, sums.row());
  const auto of_line = static_cast<accumulate_t<S>>(p.of_line(l.z, l.y));
  if (a.adaptive || a.stride > 2) {
    average_windows<0>(p, windows, sums, columns, of_line, y);
  } else if (a.stride == 1) {
    average_windows<1>(p, windows, sums, columns, of_line, y);
  } else {
    average_windows<2>(p, windows, sums, columns, of_line, y);
  }
}

void avg_forward_any(const PoolPlan& p, DType t, const void* x, void* y) {
  const PoolSpans windows(p.axis[2], true);
  dispatch_floating(t, [&]<class S>() {
    using T = accumulate_t<S>;
    Workspace<T> columns(p.axis[2].out + Vec<T>::kLanes);
    fill_columns(p, columns.data());
    const bool large = p.window_cost() > kPoolRun || p.axis[2].largest_window() >= kLongWindow;
    each_line<PaddedRow<T>>(p, [&](const Line& line, int64_t l, const PaddedRow<T>& sums) {
      const S* plane = static_cast<const S*>(x) + line.plane * p.in;
      S* to = static_cast<S*>(y) + l * p.axis[2].out;
      large ? average_large_windows(p, windows, line, plane, to)
            : average_small_windows(p, windows, sums, columns.data(), line, plane, to);
    });
  });
}

// The gradients of the lines of outputs that a band needs, divided and spread along the last axis.
template <class T>
class SpreadLines {
  using V = Vec<T>;
  static constexpr int64_t kLanes = V::kLanes;

 public:
  SpreadLines(const PoolPlan& p, const PoolSpans& windows, const T* columns, int64_t most)
      : p_(p),
        a_(p.axis[2]),
        windows_(windows),
        columns_(columns),
        past_((a_.kernel - 1) / a_.stride),
        length_(std::max(a_.in + a_.pad, 2 * (a_.out + past_)) + 2 * kLanes),
        scaled_(a_.out + 2 * past_ + 2 * kLanes),
        lines_(most * length_),
        rows(most) {}

  template <class S>
  void fill(const Band& b, const S* dy) {
    b_ = b;
    for (int64_t z = b_.zs.begin; z < b_.zs.end; ++z) {
      for (int64_t y = b_.ys.begin; y < b_.ys.end; ++y) {
        divide(dy + (z * p_.axis[1].out + y) * a_.out, static_cast<T>(p_.of_line(z, y)));
        a_.adaptive || a_.stride > 2 ? spread(line(z, y)) : spread_vectors(line(z, y) - a_.pad);
      }
    }
  }
  T* line(int64_t z, int64_t y) const {
    const int64_t ny = b_.ys.end - b_.ys.begin;
    return lines_.data() + ((z - b_.zs.begin) * ny + y - b_.ys.begin) * length_ + a_.pad;
  }

 private:
  // With zeros before and after.
  template <class S>
  void divide(const S* dy, T of_line) {
    T* to = scaled_.data() + past_;
    const V factor(of_line);
    std::fill_n(scaled_.data(), past_, T(0));
    map_row(a_.out, to,
            [&](int64_t i, int64_t m) HWY_ATTR { return load_some(dy + i, m) / (factor * V::load(columns_ + i)); });
    std::fill_n(to + a_.out, past_ + 2 * kLanes, T(0));
  }
  void spread_vectors(T* to) {
    const T* from = scaled_.data() + past_;
    int64_t o = 0;
    for (; o < a_.out + past_; o += kLanes) {
      V even(0), odd(0);
      for (int64_t k = past_; k >= 0; --k) even += V::load(from + o - k);  // of windows that began before, first
      if (a_.stride == 1) {
        even.store(to + o);
        continue;
      }
      for (int64_t k = a_.kernel / 2 - 1; k >= 0; --k) odd += V::load(from + o - k);
      hn::StoreInterleaved2(even.raw, odd.raw, typename V::D(), to + 2 * o);
    }
    const int64_t done = a_.stride * o;
    if (done < a_.in + a_.pad) std::fill_n(to + done, a_.in + a_.pad - done, T(0));
  }
  void spread(T* to) {
    std::fill_n(to, a_.in, T(0));
    for (int64_t o = 0; o < a_.out; ++o) {
      for (int64_t i = windows_[o].begin; i < windows_[o].end; ++i) to[i] += scaled_[past_ + o];
    }
  }

  const PoolPlan& p_;
  const PoolAxis& a_;
  const PoolSpans& windows_;
  const T* columns_;
  Band b_;
  int64_t past_, length_;
  Workspace<T> scaled_, lines_;

 public:
  Workspace<const T*> rows;  // for the user
};

void avg_backward_any(const PoolPlan& p, DType t, const void* dy, void* dx) {
  const PoolSpans windows(p.axis[2], true);
  const Bands bands(p);
  const int64_t width = p.axis[2].in;
  int64_t most = 0;
  for (int64_t u = 0; u < bands.of_plane; ++u) most = std::max(most, bands.at(u).zs.count() * bands.at(u).ys.count());
  dispatch_floating(t, [&]<class S>() {
    using T = accumulate_t<S>;
    Workspace<T> columns(p.axis[2].out + Vec<T>::kLanes);
    fill_columns(p, columns.data());
    auto make_lines = [&] { return SpreadLines<T>(p, windows, columns.data(), most); };
    bands.each(make_lines, [&](const Band& b, SpreadLines<T>& lines) {
      lines.fill(b, static_cast<const S*>(dy) + b.plane * p.out);
      for (int64_t r = b.begin; r < b.end; ++r) {
        const PoolSpan ys = p.axis[1].covering(r);
        int64_t count = 0;
        for (int64_t k = b.zs.begin; k < b.zs.end; ++k) {
          for (int64_t j = ys.begin; j < ys.end; ++j) lines.rows[count++] = lines.line(k, j);
        }
        sum_rows(lines.rows.data(), count, width,
                 static_cast<S*>(dx) + b.plane * p.in + (b.z * p.axis[1].in + r) * width);
      }
    });
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(max_forward_any);
HWY_EXPORT(max_backward_any);
HWY_EXPORT(avg_forward_any);
HWY_EXPORT(avg_backward_any);

void max_forward_nchw(const PoolPlan& p, DType t, const void* x, void* y, int64_t* indices) {
  HWY_DYNAMIC_DISPATCH(max_forward_any)(p, t, x, y, indices);
}
void max_backward_nchw(const PoolPlan& p, DType t, const void* dy, const int64_t* indices, void* dx) {
  HWY_DYNAMIC_DISPATCH(max_backward_any)(p, t, dy, indices, dx);
}
void avg_forward_nchw(const PoolPlan& p, DType t, const void* x, void* y) {
  HWY_DYNAMIC_DISPATCH(avg_forward_any)(p, t, x, y);
}
void avg_backward_nchw(const PoolPlan& p, DType t, const void* dy, void* dx) {
  HWY_DYNAMIC_DISPATCH(avg_backward_any)(p, t, dy, dx);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
