#include "kernels/cpu/norm/cross_entropy.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/cross_entropy.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/norm/row-inl.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kGrain = 8192;

template <class S>
using C = accumulate_t<S>;

// A typed call, and what its rows share. Row (o, k) is number o * inner + k and begins at o * n * inner +
// k.
template <class S>
struct Task {
  const CrossEntropyCall& c;
  const S *x, *weight;
  int64_t n, inner, rows;
  double spread, all_weights;  // smoothing / n, sum of the weights
  explicit Task(const CrossEntropyCall& call)
      : c(call),
        x(static_cast<const S*>(call.x)),
        weight(static_cast<const S*>(call.weight)),
        n(call.rows.n),
        inner(call.rows.inner),
        rows(call.rows.outer * inner),
        spread(call.smoothing / static_cast<double>(n)),
        all_weights(static_cast<double>(n)) {
    if (!weight || spread == 0) return;
    all_weights = 0;
    for (int64_t i = 0; i < n; ++i) all_weights += weight_of(i);
  }
  double weight_of(int64_t i) const { return weight ? static_cast<double>(static_cast<C<S>>(weight[i])) : 1; }
  int64_t begin(int64_t row) const { return row / inner * n * inner + row % inner; }
  double at(int64_t row, int64_t i) const { return static_cast<double>(static_cast<C<S>>(x[begin(row) + i * inner])); }
  bool ignored(int64_t row) const { return c.target[row] == c.ignore_index; }

  // `below` is sum(w * (largest - x)), wanted only with smoothing.
  double loss(int64_t row, double largest, double log_sum, double below) const {
    const int64_t t = c.target[row];
    const double loss = weight_of(t) * (log_sum + (largest - at(row, t)));
    if (spread == 0) return loss;
    return (1 - c.smoothing) * loss + spread * (all_weights * log_sum + below);
  }
  // The gradient of a row is of_exp * softmax(x) - spread * w, but at the target.
  double of_exp(int64_t row) const {
    return (1 - c.smoothing) * weight_of(c.target[row]) + (spread == 0 ? 0 : spread * all_weights);
  }
  double at_target(int64_t row, double largest, double log_sum) const {
    const int64_t t = c.target[row];
    const double p = std::exp(at(row, t) - largest - log_sum);
    return of_exp(row) * p - (1 - c.smoothing + spread) * weight_of(t);
  }
};

template <class S>
double sum_below(const Task<S>& t, const S* x, C<S> largest) {
  const RowVec<S> top(largest);
  return sum_row<C<S>, 1>(t.n, [&](int64_t i, int64_t m, LaneSums<C<S>, 1>& s) HWY_ATTR {
    const RowVec<S> v = top - load_some(x + i, m);
    s.of[0] = t.weight ? fma(v, load_some(t.weight + i, m), s.of[0]) : s.of[0] + v;
  })[0];
}
template <class S>
void forward_row(const Task<S>& t, int64_t row, double* loss, C<S>* largest, C<S>* log_sum) {
  const S* x = t.x + t.begin(row);
  *largest = max_of_row(x, t.n);
  const ExpBase<C<S>> base(*largest);
  const double sum = exp_row<C<S>>(
      t.n, base,
      [&](int64_t i, int64_t m) HWY_ATTR {
        __builtin_prefetch(x + t.n + i);
        return load_some(x + i, m);
      },
      [](int64_t, int64_t, RowVec<S>) {});
  const double log_of_sum = t.n == 1 ? 0 : base.log_of(sum);  // otherwise it is only the rounding of the base
  *log_sum = static_cast<C<S>>(log_of_sum);
  *loss = t.loss(row, static_cast<double>(*largest), log_of_sum, t.spread == 0 ? 0 : sum_below(t, x, *largest));
}
template <class S>
void backward_row(const Task<S>& t, int64_t row, C<S> largest, C<S> log_sum, double scale, S* dx) {
  using V = RowVec<S>;
  const S* x = t.x + t.begin(row);
  const ExpBase<C<S>> base(static_cast<double>(largest));  // not of their sum: it loses log_sum beside large logits
  const double share = std::exp2(base.rest) * std::exp(-static_cast<double>(log_sum));
  const V of_exp(t.of_exp(row) * scale * share), spread(t.spread * scale);
  auto exponent = [&](int64_t i, int64_t m) HWY_ATTR { return load_some(x + i, m); };
  if (t.spread == 0) {
    exp_row<C<S>>(t.n, base, exponent, [&](int64_t i, int64_t m, V e) HWY_ATTR { store_some(e * of_exp, dx + i, m); });
  } else {
    exp_row<C<S>>(t.n, base, exponent, [&](int64_t i, int64_t m, V e) HWY_ATTR {
      const V w = t.weight ? load_some(t.weight + i, m) : V(1);
      store_some(e * of_exp - spread * w, dx + i, m);
    });
  }
}

// inner > 1: as many neighbouring rows as a vector has lanes.
template <class S>
void forward_columns(const Task<S>& t, int64_t row, int64_t count, double* loss, C<S>* largest, C<S>* log_sum) {
  using V = RowVec<S>;
  const S* x = t.x + t.begin(row);
  V top = load_some(x, count);
  for (int64_t i = 1; i < t.n; ++i) top = max(top, load_some(x + i * t.inner, count));
  C<S> tops[V::kLanes], parts[V::kLanes], belows[V::kLanes];
  double sum[V::kLanes] = {}, below[V::kLanes] = {};
  top.store(tops);
  for (int64_t i = 0; i < t.n;) {
    V part(0), less(0);
    for (const int64_t end = std::min(t.n, i + 256); i < end; ++i) {
      const V d = load_some(x + i * t.inner, count) - top;
      part += exp_negative(d);
      if (t.spread != 0) less = fma(d, V(-t.weight_of(i)), less);
    }
    part.store(parts);
    less.store(belows);
    for (int64_t k = 0; k < count; ++k) {
      sum[k] += static_cast<double>(parts[k]);
      below[k] += static_cast<double>(belows[k]);
    }
  }
  for (int64_t k = 0; k < count; ++k) {
    const double log_of_sum = std::log(sum[k]);
    largest[k] = tops[k];
    log_sum[k] = static_cast<C<S>>(log_of_sum);
    loss[k] = t.ignored(row + k) ? 0 : t.loss(row + k, static_cast<double>(tops[k]), log_of_sum, below[k]);
  }
}
template <class S>
void backward_columns(const Task<S>& t, int64_t row, int64_t count, const C<S>* largest, const C<S>* log_sum,
                      const double* scale, S* dx) {
  using V = RowVec<S>;
  const S* x = t.x + t.begin(row);
  C<S> factor[V::kLanes] = {}, spread[V::kLanes] = {}, kept[V::kLanes] = {};
  for (int64_t k = 0; k < count; ++k) {
    if (t.ignored(row + k)) continue;
    factor[k] = static_cast<C<S>>(t.of_exp(row + k) * scale[k]);
    spread[k] = static_cast<C<S>>(t.spread * scale[k]);
    kept[k] = 1;
  }
  const V top = load_some(largest, count), log_total = load_some(log_sum, count);
  const V of_exp = V::load(factor), of_weight = V::load(spread), zero(0);
  const auto keep = V::load(kept) > zero;
  for (int64_t i = 0; i < t.n; ++i) {
    const V e = exp_negative(load_some(x + i * t.inner, count) - top - log_total);
    store_some(select(keep, e * of_exp - of_weight * V(t.weight_of(i)), zero), dx + i * t.inner, count);
  }
}

// Calls f(row, count) for one row at a time, or for the neighbours that share a vector.
template <class S, class F>
void each_row(const Task<S>& t, const F& f) {
  const int64_t lanes = t.inner == 1 ? 1 : static_cast<int64_t>(RowVec<S>::kLanes);
  const int64_t strips = (t.inner + lanes - 1) / lanes;
  const int64_t grain = std::max<int64_t>(1, kGrain / (t.n * lanes));
  parallel_for(0, t.rows / t.inner * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t column = k % strips * lanes;
      f(k / strips * t.inner + column, std::min(lanes, t.inner - column));
    }
  });
}

void forward_any(const CrossEntropyCall& c, double* loss, void* largest_and_log_sum) {
  dispatch_floating(c.rows.dtype, [&]<class S>() {
    const Task<S> t(c);
    C<S>*largest = static_cast<C<S>*>(largest_and_log_sum), *log_sum = largest + t.rows;
    each_row(t, [&](int64_t row, int64_t count) {
      if (t.inner > 1) return forward_columns(t, row, count, loss + row, largest + row, log_sum + row);
      if (!t.ignored(row)) return forward_row(t, row, loss + row, largest + row, log_sum + row);
      loss[row] = 0;
      largest[row] = log_sum[row] = 0;
    });
  });
}

void backward_any(const CrossEntropyCall& c, const void* largest_and_log_sum, const double* scale, bool one_scale,
                  void* dx) {
  dispatch_floating(c.rows.dtype, [&]<class S>() {
    const Task<S> t(c);
    const C<S>*largest = static_cast<const C<S>*>(largest_and_log_sum), *log_sum = largest + t.rows;
    S* to = static_cast<S*>(dx);
    each_row(t, [&](int64_t row, int64_t count) {
      double scales[RowVec<S>::kLanes] = {};
      for (int64_t k = 0; k < count; ++k) scales[k] = scale[one_scale ? 0 : row + k];
      if (t.inner > 1) {
        backward_columns(t, row, count, largest + row, log_sum + row, scales, to + t.begin(row));
      } else if (t.ignored(row)) {
        std::memset(to + t.begin(row), 0, static_cast<size_t>(t.n) * sizeof(S));
      } else {
        backward_row(t, row, largest[row], log_sum[row], scales[0], to + t.begin(row));
      }
      for (int64_t k = 0; k < count; ++k) {
        if (t.ignored(row + k)) continue;
        const double slope =
            t.at_target(row + k, static_cast<double>(largest[row + k]), static_cast<double>(log_sum[row + k]));
        to[t.begin(row + k) + c.target[row + k] * t.inner] = S(static_cast<C<S>>(scales[k] * slope));
      }
    });
  });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(forward_any);
HWY_EXPORT(backward_any);

void cross_entropy(const CrossEntropyCall& c, double* loss, void* largest_and_log_sum) {
  if (c.rows.outer * c.rows.n * c.rows.inner > 0) HWY_DYNAMIC_DISPATCH(forward_any)(c, loss, largest_and_log_sum);
}
void cross_entropy_backward(const CrossEntropyCall& c, const void* largest_and_log_sum, const double* scale,
                            bool one_scale, void* dx) {
  if (c.rows.outer * c.rows.n * c.rows.inner == 0) return;
  HWY_DYNAMIC_DISPATCH(backward_any)(c, largest_and_log_sum, scale, one_scale, dx);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
