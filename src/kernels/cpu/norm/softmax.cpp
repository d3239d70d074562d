#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/softmax.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/norm/row-inl.h"
#include "kernels/cpu/norm/softmax_norm.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kGrain = 8192;  // elements of a range of parallel_for, at about one cycle each

template <class S>
using C = accumulate_t<S>;

// ---- inner == 1: rows are contiguous. The loop that takes the exponentials of a row also writes the result of the row
// before and finds the largest element of the row after, so that memory is read and written all the time. The
// operations on an element are the same wherever its row is.
template <class S, bool kLog>
struct SoftmaxRows {
  using T = C<S>;
  using V = RowVec<S>;
  static constexpr bool kKeep = !kLog && std::is_same_v<S, T>;  // y has room for the exponentials
  int64_t n;
  bool stream;
  Workspace<T> room;
  SoftmaxRows(int64_t length, bool streamed)
      : n(length), stream(streamed), room(kLog || (kKeep && !streamed) ? 0 : 2 * n) {}

  // Computes the result of a row: `from` are its exponentials, or the row itself for the logarithm.
  struct Rest {
    const std::conditional_t<kLog, S, T>* from;
    S* y;
    V top, factor;  // the logarithm of the sum, or one over the sum
    V at(int64_t i, int64_t m) const {
      const V v = load_some(from + i, m);
      return kLog ? v - top - factor : v * factor;
    }
  };

  // Rows of one element, which the rounding of a sum and its inverse would spoil: 1, or the logarithm 0.
  static void run_ones(const S* x, S* y, int64_t rows) {
    map_row(rows, y, [&](int64_t i, int64_t m) HWY_ATTR {
      const V v = load_some(x + i, m);
      return v - v + V(kLog ? 0 : 1);  // NaN for what is not finite
    });
  }
  [[gnu::noinline]] DEFT_FLATTEN void run(const S* x, S* y, int64_t rows) {
    if (n == 1) return run_ones(x, y, rows);
    T largest = max_of_row(x, n);
    Rest before{nullptr, nullptr, V(0), V(0)};
    for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
      const S* next = r + 1 < rows ? x + n : x;
      T* e = room.data() + (r % 2) * n;
      if (kKeep && !stream) e = reinterpret_cast<T*>(y);
      const Ahead<S> ahead = stream ? Ahead<S>::of(next) : Ahead<S>();
      const ExpBase<T> base(largest);
      V top = load_some(next, n);
      auto load = [&](int64_t i, int64_t m) HWY_ATTR {
        top = V(hn::Max(top.raw, load_some(next + i, m).raw));
        return load_some(x + i, m);
      };
      auto keep = [&](int64_t i, int64_t m, V v) HWY_ATTR {
        if constexpr (!kLog) store_some(v, e + i, m);
      };
      auto keep_and_write = [&](int64_t i, int64_t m, V v) HWY_ATTR {
        keep(i, m, v);
        if (ahead && m == V::kLanes) {
          ahead.fetch(i, m);
          stream_vec(before.at(i, m), before.y + i);
        } else {
          store_some(before.at(i, m), before.y + i, m);
        }
      };
      const double sum = r == 0 ? exp_row<T>(n, base, load, keep) : exp_row<T>(n, base, load, keep_and_write);
      if constexpr (kLog) {
        before = {x, y, V(largest), V(base.log_of(sum))};
      } else {
        before = {e, y, V(0), V(1 / sum)};
      }
      largest = hn::GetLane(hn::MaxOfLanes(typename V::D(), top.raw));
    }
    map_row(n, before.y, [&](int64_t i, int64_t m) HWY_ATTR { return before.at(i, m); });
  }
};

template <class S>
C<S> dot_row(const S* g, const S* y, int64_t n) {
  return static_cast<C<S>>(sum_row<C<S>, 1>(n, [&](int64_t i, int64_t m, LaneSums<C<S>, 1>& s) HWY_ATTR {
    s.of[0] = fma(load_some(g + i, m), load_some(y + i, m), s.of[0]);
  })[0]);
}
template <class S>
void softmax_grad_rows(const S* g, const S* y, S* dx, int64_t n, int64_t rows, bool stream) {
  using V = RowVec<S>;
  C<S> next = dot_row(g, y, n);
  for (int64_t r = 0; r < rows; ++r, g += n, y += n, dx += n) {
    const V dot(next);
    const Ahead<S> ahead = stream ? Ahead<S>::of(g + n, y + n) : Ahead<S>();
    if (r + 1 < rows) next = dot_row(g + n, y + n, n);
    map_row(
        n, dx, [&](int64_t i, int64_t m) HWY_ATTR { return load_some(y + i, m) * (load_some(g + i, m) - dot); }, ahead);
  }
}
template <class S>
C<S> total_row(const S* g, int64_t n) {
  return static_cast<C<S>>(sum_row<C<S>, 1>(
      n, [&](int64_t i, int64_t m, LaneSums<C<S>, 1>& s) HWY_ATTR { s.of[0] += load_some(g + i, m); })[0]);
}
template <class S>
void log_softmax_grad_rows(const S* g, const S* y, S* dx, int64_t n, int64_t rows, bool stream) {
  using V = RowVec<S>;
  C<S> next = total_row(g, n);
  for (int64_t r = 0; r < rows; ++r, g += n, y += n, dx += n) {
    const V total(next);
    if (r + 1 < rows) next = total_row(g + n, n);
    const Ahead<S> ahead = stream ? Ahead<S>::of(g + n, y) : Ahead<S>();
    exp_row<C<S>>(
        n, ExpBase<C<S>>(0), [&](int64_t i, int64_t m) HWY_ATTR { return load_some(y + i, m); },
        [&](int64_t i, int64_t m, V v) HWY_ATTR {
          const V d = load_some(g + i, m) - v * total;
          if (!ahead || m < static_cast<int64_t>(V::kLanes)) return store_some(d, dx + i, m);
          ahead.fetch(i, m);
          stream_vec(d, dx + i);
        });
  }
}

// ---- inner > 1: kVectors vectors of neighbouring rows, elements `step` apart; `count` of the last vector count. Sums
// are kept in two levels, so that they stay accurate for long rows.
template <class T, int kVectors>
struct ColumnSums {
  Vec<T> total[kVectors], part[kVectors];
  ColumnSums() {  // written out: GCC compiles an implicit one for the baseline target
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) total[k] = part[k] = Vec<T>(0);
  }
  void end_part() {
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) total[k] += part[k], part[k] = Vec<T>(0);
  }
};
constexpr int64_t kPartTerms = 256;

// Calls f(row, k, vector) for the rows of a column strip.
template <int kVectors, class S, class F>
HWY_INLINE void for_strip(const S* x, int64_t begin, int64_t end, int64_t step, int64_t count, F f) {
  constexpr int64_t kLanes = RowVec<S>::kLanes;
  for (int64_t i = begin; i < end; ++i) {
#pragma GCC unroll 4
    for (int k = 0; k < kVectors; ++k) {
      const S* from = x + i * step + k * kLanes;
      f(i, k, kVectors == 1 ? load_some(from, count) : load_vec(from));
    }
  }
}

template <int kVectors, class S>
void softmax_columns(const S* x, S* y, int64_t n, int64_t step, int64_t count, bool log_result) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  V top[kVectors];
  for_strip<kVectors>(x, 0, 1, step, count, [&](int64_t, int k, V v) HWY_ATTR { top[k] = v; });
  for_strip<kVectors>(x, 1, n, step, count, [&](int64_t, int k, V v) HWY_ATTR { top[k] = max(top[k], v); });
  ColumnSums<C<S>, kVectors> sum;
  for (int64_t i = 0; i < n; i += kPartTerms) {
    for_strip<kVectors>(x, i, std::min(n, i + kPartTerms), step, count,
                        [&](int64_t, int k, V v) HWY_ATTR { sum.part[k] += exp(v - top[k]); });
    sum.end_part();
  }
  V scale[kVectors];
  for (int k = 0; k < kVectors; ++k) scale[k] = log_result ? log(sum.total[k]) : V(1) / sum.total[k];
  for_strip<kVectors>(x, 0, n, step, count, [&](int64_t i, int k, V v) HWY_ATTR {
    const V d = v - top[k], r = log_result ? d - scale[k] : exp(d) * scale[k];
    S* to = y + i * step + k * kLanes;
    kVectors == 1 ? store_some(r, to, count) : store_vec(r, to);
  });
}
template <int kVectors, class S>
void softmax_grad_columns(const S* g, const S* y, S* dx, int64_t n, int64_t step, int64_t count, bool log_result) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const auto load = [&](const S* from) HWY_ATTR { return kVectors == 1 ? load_some(from, count) : load_vec(from); };
  ColumnSums<C<S>, kVectors> sum;
  for (int64_t i = 0; i < n; i += kPartTerms) {
    for_strip<kVectors>(g, i, std::min(n, i + kPartTerms), step, count, [&](int64_t row, int k, V a) HWY_ATTR {
      sum.part[k] += log_result ? a : a * load(y + row * step + k * kLanes);
    });
    sum.end_part();
  }
  for_strip<kVectors>(g, 0, n, step, count, [&](int64_t i, int k, V a) HWY_ATTR {
    const V b = load(y + i * step + k * kLanes);
    const V r = log_result ? a - exp(b) * sum.total[k] : b * (a - sum.total[k]);
    S* to = dx + i * step + k * kLanes;
    kVectors == 1 ? store_some(r, to, count) : store_vec(r, to);
  });
}

// g is null in the forward direction, where y is the output.
template <class S>
void run_rows_typed(const RowsView& v, const S* g, const S* x, S* out, bool log_result) {
  const bool stream = streams_rows(out, v.outer, v.n) && out != x && out != g;
  parallel_for(0, v.outer, std::max<int64_t>(1, kGrain / v.n), [&](int64_t begin, int64_t end) {
    const int64_t at = begin * v.n, rows = end - begin;
    if (g) {
      log_result ? log_softmax_grad_rows(g + at, x + at, out + at, v.n, rows, stream)
                 : softmax_grad_rows(g + at, x + at, out + at, v.n, rows, stream);
    } else {
      log_result ? SoftmaxRows<S, true>(v.n, stream).run(x + at, out + at, rows)
                 : SoftmaxRows<S, false>(v.n, stream).run(x + at, out + at, rows);
    }
    if (stream) end_stream();
  });
}
template <class S>
void run_columns_typed(const RowsView& v, const S* g, const S* x, S* out, bool log_result) {
  constexpr int64_t kLanes = RowVec<S>::kLanes, kWide = 4 * kLanes;
  const int64_t strips = (v.inner + kWide - 1) / kWide;
  parallel_for(0, v.outer * strips, std::max<int64_t>(1, kGrain / (v.n * kWide)), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % strips * kWide, last = std::min(v.inner, first + kWide);
      const int64_t at = k / strips * v.n * v.inner;
      if (last - first == kWide) {
        g ? softmax_grad_columns<4>(g + at + first, x + at + first, out + at + first, v.n, v.inner, kLanes, log_result)
          : softmax_columns<4>(x + at + first, out + at + first, v.n, v.inner, kLanes, log_result);
        continue;
      }
      for (int64_t c = first; c < last; c += kLanes) {
        const int64_t count = std::min(kLanes, last - c);
        g ? softmax_grad_columns<1>(g + at + c, x + at + c, out + at + c, v.n, v.inner, count, log_result)
          : softmax_columns<1>(x + at + c, out + at + c, v.n, v.inner, count, log_result);
      }
    }
  });
}

void softmax_any(const RowsView& v, const void* g, const void* x, void* out, bool log_result) {
  dispatch_floating(v.dtype, [&]<class S>() {
    const S *gs = static_cast<const S*>(g), *xs = static_cast<const S*>(x);
    S* to = static_cast<S*>(out);
    v.inner == 1 ? run_rows_typed(v, gs, xs, to, log_result) : run_columns_typed(v, gs, xs, to, log_result);
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(softmax_any);

namespace {
void run_rows(const RowsView& v, const void* g, const void* x, void* out, bool log_result) {
  if (v.outer == 0 || v.n == 0 || v.inner == 0) return;
  HWY_DYNAMIC_DISPATCH(softmax_any)(v, g, x, out, log_result);
}
}  // namespace

void softmax(const RowsView& v, const void* x, void* y) { run_rows(v, nullptr, x, y, false); }
void log_softmax(const RowsView& v, const void* x, void* y) { run_rows(v, nullptr, x, y, true); }
void softmax_backward(const RowsView& v, const void* g, const void* y, void* dx) { run_rows(v, g, y, dx, false); }
void log_softmax_backward(const RowsView& v, const void* g, const void* y, void* dx) { run_rows(v, g, y, dx, true); }

}  // namespace deft::cpu
#endif  // HWY_ONCE
