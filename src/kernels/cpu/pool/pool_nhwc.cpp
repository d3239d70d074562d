#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/pool_nhwc.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/norm/row-inl.h"
#include "kernels/cpu/pool/pool-inl.h"
#include "kernels/cpu/pool/pool_internal.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

// Every position of the result is a fold over positions of the other side: its taps. Taps are folded in groups of kTaps
// for a strip of channels; between two groups the partial result is in memory.
constexpr int64_t kStrip = 256;
constexpr int64_t kTaps = 16;
constexpr int64_t kGroupsPerRun = kPoolRun / kTaps;
static_assert(kPoolRun % kTaps == 0);

template <class T>
struct Tap {
  int64_t at;  // first element of the strip at this position
  union {
    PoolIndex<T> position;
    T scale;  // of the average's gradient
  };
};

// m elements from p. The last vector of a strip may read on into what follows, which is dropped later; at the end of
// the tensor there is nothing to read.
template <class S>
inline RowVec<S> load_before(const S* p, int64_t m, const S* end) {
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  return m >= kLanes || end - p >= kLanes ? load_vec(p) : load_some(p, m);
}

template <class S, bool kPositions>
struct MaxForward {
  using T = accumulate_t<S>;
  using V = Vec<T>;
  struct State {
    V value;
    PoolIndices<T> where;
  };
  const S *x, *end;
  S* y;
  int64_t* indices;
  T values[kStrip];
  PoolIndex<T> positions[kStrip];

  void begin(State& s, int64_t group, const Tap<T>& first, int64_t, int64_t c, int64_t) const {
    if (group == 0) {
      s = {V(-std::numeric_limits<T>::infinity()), PoolIndices<T>(first.position)};
    } else {
      s.value = V::load(values + c);
      if constexpr (kPositions) s.where = PoolIndices<T>::load(positions + c);
    }
  }
  template <size_t n>
  void add(State (&s)[n], const Tap<T>& t, int64_t c, int64_t m) const {
    const S* from = x + t.at + c;
    const PoolIndices<T> at(t.position);
    for (size_t k = 0; k < n; ++k) {
      take_larger<kPositions>(load_before(from + k * V::kLanes, m, end), at, s[k].value, s[k].where);
    }
  }
  void pause(const State& s, int64_t, int64_t c) {
    s.value.store(values + c);
    if constexpr (kPositions) s.where.store(positions + c);
  }
  void finish(const State& s, int64_t, int64_t to, int64_t, int64_t m) const {
    store_some(s.value, y + to, m);
    if constexpr (kPositions) s.where.store_some(indices + to, m);
  }
  void finish_empty(int64_t to, int64_t n) const {
    std::fill_n(y + to, n, S(-std::numeric_limits<float>::infinity()));
    if constexpr (kPositions) std::fill_n(indices + to, n, int64_t{-1});
  }
};

template <class S>
struct AvgForward {
  using T = accumulate_t<S>;
  using V = Vec<T>;
  struct State {
    V sum;
  };
  const S *x, *end;
  S* y;
  T divisor;
  T sums[kStrip];
  double totals[kStrip];  // of whole runs

  void begin(State& s, int64_t group, const Tap<T>&, int64_t, int64_t c, int64_t) const {
    s.sum = group % kGroupsPerRun == 0 ? V(0) : V::load(sums + c);
  }
  template <size_t n>
  void add(State (&s)[n], const Tap<T>& t, int64_t c, int64_t m) const {
    const S* from = x + t.at + c;
    for (size_t k = 0; k < n; ++k) s[k].sum += load_before(from + k * V::kLanes, m, end);
  }
  void pause(const State& s, int64_t group, int64_t c) {
    s.sum.store(sums + c);
    if ((group + 1) % kGroupsPerRun != 0) return;
    for (size_t i = static_cast<size_t>(c); i < static_cast<size_t>(c) + V::kLanes; ++i) {
      totals[i] = (group + 1 == kGroupsPerRun ? 0 : totals[i]) + static_cast<double>(sums[i]);
    }
  }
  void finish(State s, int64_t group, int64_t to, int64_t c, int64_t m) {
    if (group >= kGroupsPerRun) {
      s.sum.store(sums + c);
      for (int64_t i = c; i < c + m; ++i) sums[i] = static_cast<T>(totals[i] + static_cast<double>(sums[i]));
      s.sum = V::load(sums + c);
    }
    store_some(s.sum / V(divisor), y + to, m);
  }
  void finish_empty(int64_t to, int64_t n) const { std::fill_n(y + to, n, S(0.0f)); }
};

// A sum over the windows that hold an input.
template <class S>
struct GradientSum {
  using T = accumulate_t<S>;
  using V = Vec<T>;
  struct State {
    V sum;
  };
  const S *dy, *end;
  S* dx;
  T sums[kStrip];

  void begin(State& s, int64_t group, const Tap<T>&, int64_t, int64_t c, int64_t) const {
    s.sum = group == 0 ? V(0) : V::load(sums + c);
  }
  void pause(const State& s, int64_t, int64_t c) { s.sum.store(sums + c); }
  void finish(const State& s, int64_t, int64_t to, int64_t, int64_t m) const { store_some(s.sum, dx + to, m); }
  void finish_empty(int64_t to, int64_t n) const { std::fill_n(dx + to, n, S(0.0f)); }
};
template <class S>
struct MaxBackward : GradientSum<S> {
  using typename GradientSum<S>::T;
  const int64_t *indices, *indices_end;
  PoolIndex<T> position;

  template <size_t n>
  void add(auto(&s)[n], const Tap<T>& t, int64_t c, int64_t m) const {
    const S* from = this->dy + t.at + c;
    const int64_t* at = indices + t.at + c;
    const PoolIndices<T> here(position);
    for (size_t k = 0; k < n; ++k) {
      const auto where = PoolIndices<T>::load_some(at + k * Vec<T>::kLanes, m, indices_end);
      s[k].sum += keep_where(where == here, load_before(from + k * Vec<T>::kLanes, m, this->end));
    }
  }
};
template <class S>
struct AvgBackward : GradientSum<S> {
  using typename GradientSum<S>::T;

  template <size_t n>
  void add(auto(&s)[n], const Tap<T>& t, int64_t c, int64_t m) const {
    const S* from = this->dy + t.at + c;
    const Vec<T> scale(t.scale);
    for (size_t k = 0; k < n; ++k)
      s[k].sum = fma(load_before(from + k * Vec<T>::kLanes, m, this->end), scale, s[k].sum);
  }
};

// The reverse, where no input is in two windows: a window writes the results of its inputs.
template <class S>
struct GradientSpread {
  using T = accumulate_t<S>;
  using V = Vec<T>;
  const S *dy, *end;
  S* dx;

  void pause(const auto&, int64_t, int64_t) const {}
  void finish(const auto&, int64_t, int64_t, int64_t, int64_t) const {}
  void finish_empty(int64_t, int64_t) const {}
};
template <class S>
struct MaxSpread : GradientSpread<S> {
  using typename GradientSpread<S>::T;
  using typename GradientSpread<S>::V;
  struct State {
    V dy;
    PoolIndices<T> where;
  };
  const int64_t *indices, *indices_end;

  void begin(State& s, int64_t, const Tap<T>&, int64_t from, int64_t, int64_t m) const {
    s.dy = load_before(this->dy + from, m, this->end);
    s.where = PoolIndices<T>::load_some(indices + from, m, indices_end);
  }
  template <size_t n>
  void add(State (&s)[n], const Tap<T>& t, int64_t c, int64_t m) const {
    const PoolIndices<T> here(t.position);
    S* to = this->dx + t.at + c;
    for (size_t k = 0; k < n; ++k) store_some(keep_where(s[k].where == here, s[k].dy), to + k * V::kLanes, m);
  }
};
template <class S>
struct AvgSpread : GradientSpread<S> {
  using typename GradientSpread<S>::T;
  using typename GradientSpread<S>::V;
  struct State {
    V dy;
  };
  T scale;

  void begin(State& s, int64_t, const Tap<T>&, int64_t from, int64_t, int64_t m) const {
    s.dy = load_before(this->dy + from, m, this->end) * V(scale);
  }
  template <size_t n>
  void add(State (&s)[n], const Tap<T>& t, int64_t c, int64_t m) const {
    S* to = this->dx + t.at + c;
    for (size_t k = 0; k < n; ++k) store_some(s[k].dy, to + k * V::kLanes, m);
  }
};

// One group of taps over n channels; `last`: the result goes to element `to` and on.
template <class Op, class T>
DEFT_FLATTEN HWY_NOINLINE void fold_group(Op& op, const Tap<T>* taps, int64_t count, int64_t group, bool last,
                                          int64_t to, int64_t n) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  auto step = [&]<int kVectors>(std::integral_constant<int, kVectors>, int64_t c, int64_t m) HWY_ATTR {
    typename Op::State s[kVectors];
    for (int k = 0; k < kVectors; ++k) op.begin(s[k], group, taps[0], to + c + k * kLanes, c + k * kLanes, m);
    for (int64_t t = 0; t < count; ++t) op.add(s, taps[t], c, m);
    for (int k = 0; k < kVectors; ++k) {
      const int64_t at = c + k * kLanes;
      last ? op.finish(s[k], group, to + at, at, m) : op.pause(s[k], group, at);
    }
  };
  int64_t c = 0;
  for (; c + 4 * kLanes <= n; c += 4 * kLanes) step(std::integral_constant<int, 4>(), c, kLanes);
  for (; c + kLanes <= n; c += kLanes) step(std::integral_constant<int, 1>(), c, kLanes);
  if (c < n) step(std::integral_constant<int, 1>(), c, n - c);
}

// A grid of positions and, for each, the taps on the other side.
struct Grid {
  const PoolPlan& p;
  bool outputs;  // positions are windows, or else inputs
  PoolSpans spans;
  Grid(const PoolPlan& plan, bool of_outputs) : p(plan), outputs(of_outputs), spans(plan.axis[2], of_outputs) {}
  int64_t size(int d) const { return outputs ? p.axis[d].out : p.axis[d].in; }
  int64_t other(int d) const { return outputs ? p.axis[d].in : p.axis[d].out; }
  PoolSpan span(int d, int64_t i) const { return outputs ? p.axis[d].window(i) : p.axis[d].covering(i); }
};

// All positions of a line. make_tap(position in the other plane) makes a Tap
// without its element; start(op, position) comes before the taps of a position.
template <class Op, class MakeTap, class Start>
void fold_line(const Grid& g, Op& op, int64_t line, int64_t channel, int64_t n, const MakeTap& make_tap,
               const Start& start) {
  using T = typename Op::T;
  const int64_t inner = g.p.inner, width = g.size(2);
  const int64_t image = line / (g.size(0) * g.size(1)), z = line / g.size(1) % g.size(0), y = line % g.size(1);
  const int64_t base = image * g.other(0) * g.other(1) * g.other(2) * inner + channel;
  const PoolSpan zs = g.span(0, z), ys = g.span(1, y);
  Tap<T> taps[kTaps];
  for (int64_t x = 0; x < width; ++x) {
    const int64_t to = (line * width + x) * inner + channel;
    const PoolSpan& xs = g.spans[x];
    start(op, (z * g.size(1) + y) * width + x);
    int64_t count = 0, group = 0;
    for (int64_t k = zs.begin; k < zs.end; k += zs.step) {
      for (int64_t j = ys.begin; j < ys.end; j += ys.step) {
        const int64_t row = (k * g.other(1) + j) * g.other(2);
        for (int64_t i = xs.begin; i < xs.end; i += xs.step) {
          if (count == kTaps) {
            fold_group(op, taps, count, group++, false, to, n);
            count = 0;
          }
          taps[count] = make_tap(row + i);
          taps[count++].at = base + (row + i) * inner;
        }
      }
    }
    count ? fold_group(op, taps, count, group, true, to, n) : op.finish_empty(to, n);
  }
}

// In parallel over lines and strips of channels.
template <class Op, class MakeTap, class Start>
void fold_lines(const Grid& g, const Op& op, const MakeTap& make_tap, const Start& start) {
  const int64_t lines = g.p.outer * g.size(0) * g.size(1), inner = g.p.inner;
  const int64_t cost = g.size(2) * (g.outputs ? g.p.window_cost() : g.p.covering_cost());
  // Few long lines, as of a global average: more strips, so that all threads have some.
  const int64_t widest = lines < 64 && cost * inner > 4 * kPoolGrain ? 64 : kStrip;
  const int64_t strips = (inner + widest - 1) / widest, width = (inner + strips - 1) / strips;
  parallel_for(0, lines * strips, std::max<int64_t>(1, kPoolGrain / (cost * width)), [&](int64_t begin, int64_t end) {
    Op own = op;
    for (int64_t u = begin; u < end; ++u) {
      const int64_t channel = u % strips * width;
      fold_line(g, own, u / strips, channel, std::min(width, inner - channel), make_tap, start);
    }
  });
}

// No input is in two windows, and none lies between two.
bool is_partition(const PoolPlan& p) {
  return std::all_of(p.axis, p.axis + 3,
                     [](const PoolAxis& a) { return !a.adaptive && a.dilation == 1 && a.kernel == a.stride; });
}
// Zeros where no window reaches, at the ends of the axes.
template <class S>
void clear_rest(const PoolPlan& p, S* dx) {
  int64_t reached[3];
  for (int d = 0; d < 3; ++d) reached[d] = std::min(p.axis[d].in, p.axis[d].out * p.axis[d].stride - p.axis[d].pad);
  const int64_t rows = p.axis[1].in, planes = p.axis[0].in, width = p.axis[2].in;
  if (reached[0] == planes && reached[1] == rows && reached[2] == width) return;
  for (int64_t l = 0; l < p.outer * planes * rows; ++l) {
    const bool inside = l / rows % planes < reached[0] && l % rows < reached[1];
    const int64_t first = inside ? reached[2] : 0;
    std::fill_n(dx + (l * width + first) * p.inner, (width - first) * p.inner, S(0.0f));
  }
}

// Of all windows of a plane.
template <class T>
void fill_divisors(const PoolPlan& p, T* to) {
  for (int64_t z = 0; z < p.axis[0].out; ++z) {
    for (int64_t y = 0; y < p.axis[1].out; ++y) {
      const int64_t of_line = p.of_line(z, y);
      for (int64_t x = 0; x < p.axis[2].out; ++x) *to++ = static_cast<T>(of_line * p.of_column(x));
    }
  }
}

template <class S, bool kPositions>
void max_windows(const PoolPlan& p, const S* x, S* y, int64_t* indices) {
  using T = accumulate_t<S>;
  MaxForward<S, kPositions> op;
  op.x = x;
  op.end = op.x + p.outer * p.in * p.inner;
  op.y = y;
  op.indices = indices;
  auto tap = [](int64_t i) { return Tap<T>{0, {.position = static_cast<PoolIndex<T>>(i)}}; };
  fold_lines(Grid(p, true), op, tap, [](auto&, int64_t) {});
}
void max_forward_any(const PoolPlan& p, DType t, const void* x, void* y, int64_t* indices) {
  dispatch_floating(t, [&]<class S>() {
    (indices ? max_windows<S, true> : max_windows<S, false>)(p, static_cast<const S*>(x), static_cast<S*>(y), indices);
  });
}

void max_backward_any(const PoolPlan& p, DType t, const void* dy, const int64_t* indices, void* dx) {
  dispatch_floating(t, [&]<class S>() {
    using T = accumulate_t<S>;
    const int64_t size = p.outer * p.out * p.inner;
    auto fill = [&](auto& op) {
      op.dy = static_cast<const S*>(dy);
      op.end = op.dy + size;
      op.dx = static_cast<S*>(dx);
      op.indices = indices;
      op.indices_end = indices + size;
    };
    auto tap = [](int64_t i) { return Tap<T>{0, {.position = static_cast<PoolIndex<T>>(i)}}; };
    if (is_partition(p)) {
      MaxSpread<S> op;
      fill(op);
      clear_rest(p, op.dx);
      return fold_lines(Grid(p, true), op, tap, [](auto&, int64_t) {});
    }
    MaxBackward<S> op;
    fill(op);
    fold_lines(Grid(p, false), op, tap, [](auto& o, int64_t i) { o.position = static_cast<PoolIndex<T>>(i); });
  });
}

void avg_forward_any(const PoolPlan& p, DType t, const void* x, void* y) {
  dispatch_floating(t, [&]<class S>() {
    using T = accumulate_t<S>;
    Workspace<T> divisors(p.out);
    fill_divisors(p, divisors.data());
    AvgForward<S> op;
    op.x = static_cast<const S*>(x);
    op.end = op.x + p.outer * p.in * p.inner;
    op.y = static_cast<S*>(y);
    auto tap = [](int64_t) { return Tap<T>{0, {.scale = 0}}; };
    fold_lines(Grid(p, true), op, tap, [&](auto& o, int64_t i) { o.divisor = divisors[i]; });
  });
}

void avg_backward_any(const PoolPlan& p, DType t, const void* dy, void* dx) {
  dispatch_floating(t, [&]<class S>() {
    using T = accumulate_t<S>;
    Workspace<T> scales(p.out);
    fill_divisors(p, scales.data());
    for (int64_t i = 0; i < p.out; ++i) scales[i] = 1 / scales[i];
    auto fill = [&](auto& op) {
      op.dy = static_cast<const S*>(dy);
      op.end = op.dy + p.outer * p.out * p.inner;
      op.dx = static_cast<S*>(dx);
    };
    if (is_partition(p)) {
      AvgSpread<S> op;
      fill(op);
      clear_rest(p, op.dx);
      auto tap = [](int64_t) { return Tap<T>{0, {.scale = 0}}; };
      return fold_lines(Grid(p, true), op, tap, [&](auto& o, int64_t i) { o.scale = scales[i]; });
    }
    AvgBackward<S> op;
    fill(op);
    auto tap = [&](int64_t o) { return Tap<T>{0, {.scale = scales[o]}}; };
    fold_lines(Grid(p, false), op, tap, [](auto&, int64_t) {});
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

void max_forward_nhwc(const PoolPlan& p, DType t, const void* x, void* y, int64_t* indices) {
  HWY_DYNAMIC_DISPATCH(max_forward_any)(p, t, x, y, indices);
}
void max_backward_nhwc(const PoolPlan& p, DType t, const void* dy, const int64_t* indices, void* dx) {
  HWY_DYNAMIC_DISPATCH(max_backward_any)(p, t, dy, indices, dx);
}
void avg_forward_nhwc(const PoolPlan& p, DType t, const void* x, void* y) {
  HWY_DYNAMIC_DISPATCH(avg_forward_any)(p, t, x, y);
}
void avg_backward_nhwc(const PoolPlan& p, DType t, const void* dy, void* dx) {
  HWY_DYNAMIC_DISPATCH(avg_backward_any)(p, t, dy, dx);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
