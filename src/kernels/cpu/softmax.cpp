#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/rows.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

template <class S>
using C = accumulate_t<S>;

// ---- inner == 1: a row is contiguous.
template <class S>
inline C<S> row_max(const S* x, int64_t n) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  V top = load_some(x, n);
  for (int64_t i = kLanes; i < n; i += kLanes) top = max(top, load_some(x + i, n - i));
  C<S> lanes[V::kLanes];
  top.store(lanes);
  C<S> m = lanes[0];
  for (C<S> v : lanes) m = math::max(m, v);
  return m;
}

template <class S>
void softmax_row(const S* x, S* y, int64_t n) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const V top(row_max(x, n));
  constexpr bool kKeep = std::is_same_v<S, C<S>>;  // y has room for the exponentials
  const double sum = sum_row<C<S>>(n, [&](int64_t i, int64_t count) HWY_ATTR {
    const V e = exp(load_some(x + i, count) - top);
    if constexpr (kKeep) store_some(e, y + i, count);
    return e;
  });
  const V scale(1 / sum);
  for (int64_t i = 0; i < n; i += kLanes) {
    const V e = kKeep ? load_some(y + i, n - i) : exp(load_some(x + i, n - i) - top);
    store_some(e * scale, y + i, n - i);
  }
}
template <class S>
void log_softmax_row(const S* x, S* y, int64_t n) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const V top(row_max(x, n));
  const double sum =
      sum_row<C<S>>(n, [&](int64_t i, int64_t count) HWY_ATTR { return exp(load_some(x + i, count) - top); });
  const V log_sum(std::log(sum));
  for (int64_t i = 0; i < n; i += kLanes) store_some(load_some(x + i, n - i) - top - log_sum, y + i, n - i);
}
template <class S>
void softmax_grad_row(const S* g, const S* y, S* dx, int64_t n) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const V dot(sum_row<C<S>>(
      n, [&](int64_t i, int64_t count) HWY_ATTR { return load_some(g + i, count) * load_some(y + i, count); }));
  for (int64_t i = 0; i < n; i += kLanes) {
    store_some(load_some(y + i, n - i) * (load_some(g + i, n - i) - dot), dx + i, n - i);
  }
}
template <class S>
void log_softmax_grad_row(const S* g, const S* y, S* dx, int64_t n) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const V sum(sum_row<C<S>>(n, [&](int64_t i, int64_t count) HWY_ATTR { return load_some(g + i, count); }));
  for (int64_t i = 0; i < n; i += kLanes) {
    store_some(load_some(g + i, n - i) - exp(load_some(y + i, n - i)) * sum, dx + i, n - i);
  }
}

// ---- inner > 1: as many neighbouring rows as a vector has lanes, elements `step` apart. Sums are kept in two levels,
// so that they stay accurate for long rows.
template <class T>
struct ColumnSum {
  Vec<T> total, part;
  int64_t terms = 0;
  ColumnSum() : total(0), part(0) {}  // written out: GCC compiles an implicit one for the baseline target
  void add(Vec<T> v) {
    part += v;
    if (++terms % 256 == 0) {
      total += part;
      part = Vec<T>(0);
    }
  }
  Vec<T> value() const { return total + part; }
};

template <class S>
void softmax_columns(const S* x, S* y, int64_t n, int64_t step, int64_t count, bool log_result) {
  using V = RowVec<S>;
  V top = load_some(x, count);
  for (int64_t i = 1; i < n; ++i) top = max(top, load_some(x + i * step, count));
  ColumnSum<C<S>> sum;
  for (int64_t i = 0; i < n; ++i) sum.add(exp(load_some(x + i * step, count) - top));
  const V scale = V(1) / sum.value(), log_sum = log(sum.value());
  for (int64_t i = 0; i < n; ++i) {
    const V d = load_some(x + i * step, count) - top;
    store_some(log_result ? d - log_sum : exp(d) * scale, y + i * step, count);
  }
}
template <class S>
void softmax_grad_columns(const S* g, const S* y, S* dx, int64_t n, int64_t step, int64_t count, bool log_result) {
  using V = RowVec<S>;
  ColumnSum<C<S>> sum;
  for (int64_t i = 0; i < n; ++i) {
    const V a = load_some(g + i * step, count);
    sum.add(log_result ? a : a * load_some(y + i * step, count));
  }
  const V s = sum.value();
  for (int64_t i = 0; i < n; ++i) {
    const V a = load_some(g + i * step, count), b = load_some(y + i * step, count);
    store_some(log_result ? a - exp(b) * s : b * (a - s), dx + i * step, count);
  }
}

// g is null in the forward direction, where y is the output.
template <class S>
void run_typed(const RowsView& v, const S* g, const S* x, S* out, bool log_result) {
  const int64_t lanes = v.inner == 1 ? 1 : static_cast<int64_t>(RowVec<S>::kLanes);
  const int64_t strips = (v.inner + lanes - 1) / lanes;
  const int64_t grain = std::max<int64_t>(1, 4096 / (v.n * lanes));  // an exp is about ten operations
  parallel_for(0, v.outer * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t column = k % strips * lanes, at = k / strips * v.n * v.inner + column;
      const int64_t count = std::min(lanes, v.inner - column);
      if (v.inner > 1) {
        g ? softmax_grad_columns(g + at, x + at, out + at, v.n, v.inner, count, log_result)
          : softmax_columns(x + at, out + at, v.n, v.inner, count, log_result);
      } else if (g) {
        log_result ? log_softmax_grad_row(g + at, x + at, out + at, v.n)
                   : softmax_grad_row(g + at, x + at, out + at, v.n);
      } else {
        log_result ? log_softmax_row(x + at, out + at, v.n) : softmax_row(x + at, out + at, v.n);
      }
    }
  });
}

void softmax_any(const RowsView& v, const void* g, const void* x, void* out, bool log_result) {
  dispatch_floating(v.dtype, [&]<class S>() {
    run_typed(v, static_cast<const S*>(g), static_cast<const S*>(x), static_cast<S*>(out), log_result);
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
