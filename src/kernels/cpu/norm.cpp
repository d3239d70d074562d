#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kNormGrain = 8192;
// Rows whose parameter gradients are summed together. A fixed number, so that threads do not change the result.
constexpr int64_t kRowGroup = 64;

template <class S>
using C = accumulate_t<S>;

template <class S>
inline RowVec<S> load_or(const S* p, int64_t i, int64_t count, double missing) {
  return p ? load_some(p + i, count) : RowVec<S>(missing);
}

template <class S>
struct Moments {
  C<S> mean, rstd;
};

// Two passes; the second sums deviations from a rounded mean and mends both moments.
template <class S>
Moments<S> layer_moments(const S* x, int64_t n, double eps) {
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
  const double shift = sum / count, var = squares / count - shift * shift;
  return {static_cast<C<S>>(static_cast<double>(rough) + shift),
          static_cast<C<S>>(1 / std::sqrt((var > 0 || var != var ? var : 0) + eps))};
}
template <class S>
Moments<S> rms_moments(const S* x, int64_t n, double eps) {
  const double squares = sum_row<C<S>>(n, [&](int64_t i, int64_t m) HWY_ATTR {
    const RowVec<S> v = load_some(x + i, m);
    return v * v;
  });
  return {C<S>(0), static_cast<C<S>>(1 / std::sqrt(squares / static_cast<double>(n) + eps))};
}

template <class S, bool kLayer>
void forward_rows(const NormCall& c, int64_t begin, int64_t end) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const S *gamma = static_cast<const S*>(c.gamma), *beta = static_cast<const S*>(c.beta);
  for (int64_t row = begin; row < end; ++row) {
    const S* x = static_cast<const S*>(c.x) + row * c.n;
    S* y = static_cast<S*>(c.y) + row * c.n;
    const Moments<S> m = kLayer ? layer_moments(x, c.n, c.eps) : rms_moments(x, c.n, c.eps);
    if (kLayer && c.mean) static_cast<C<S>*>(c.mean)[row] = m.mean;
    if (c.rstd) static_cast<C<S>*>(c.rstd)[row] = m.rstd;
    const V mean(m.mean), rstd(m.rstd);
    for (int64_t i = 0; i < c.n; i += kLanes) {
      V v = load_some(x + i, c.n - i);
      if (kLayer) v -= mean;
      v = v * rstd * load_or(gamma, i, c.n - i, 1);
      if (kLayer && beta) v += load_some(beta + i, c.n - i);
      store_some(v, y + i, c.n - i);
    }
  }
}

// sums: dgamma then dbeta of a group of rows, in the compute type; null if not wanted.
template <class S, bool kLayer>
void backward_row(const NormBackwardCall& c, int64_t row, C<S>* dgamma, C<S>* dbeta) {
  using V = RowVec<S>;
  constexpr int64_t kLanes = V::kLanes;
  const S *g = static_cast<const S*>(c.g) + row * c.n, *x = static_cast<const S*>(c.x) + row * c.n;
  const S* gamma = static_cast<const S*>(c.gamma);
  const V mean(kLayer ? static_cast<const C<S>*>(c.mean)[row] : C<S>(0));
  const V rstd(static_cast<const C<S>*>(c.rstd)[row]);
  for (int64_t i = 0; (dgamma || dbeta) && i < c.n; i += kLanes) {
    const V gv = load_some(g + i, c.n - i);
    if (dgamma) {
      const V normal = (load_some(x + i, c.n - i) - mean) * rstd;
      store_some(fma(gv, normal, load_some(dgamma + i, c.n - i)), dgamma + i, c.n - i);
    }
    if (dbeta) store_some(gv + load_some(dbeta + i, c.n - i), dbeta + i, c.n - i);
  }
  if (!c.dx) return;
  S* dx = static_cast<S*>(c.dx) + row * c.n;
  const double count = static_cast<double>(c.n);
  const V slope(sum_row<C<S>>(c.n,
                              [&](int64_t i, int64_t m) HWY_ATTR {
                                return load_some(g + i, m) * load_or(gamma, i, m, 1) *
                                       ((load_some(x + i, m) - mean) * rstd);
                              }) /
                count);
  V offset(0);
  if (kLayer) {
    offset = V(sum_row<C<S>>(
                   c.n, [&](int64_t i, int64_t m) HWY_ATTR { return load_some(g + i, m) * load_or(gamma, i, m, 1); }) /
               count);
  }
  for (int64_t i = 0; i < c.n; i += kLanes) {
    const V normal = (load_some(x + i, c.n - i) - mean) * rstd;
    const V gv = load_some(g + i, c.n - i) * load_or(gamma, i, c.n - i, 1);
    store_some(rstd * (gv - offset - normal * slope), dx + i, c.n - i);
  }
}

// out[i] = sum over groups of partial[group * n + i].
template <class S>
void sum_groups(const C<S>* partial, int64_t groups, int64_t n, S* out) {
  constexpr int64_t kStrip = 128;
  parallel_for(0, (n + kStrip - 1) / kStrip, std::max<int64_t>(1, kNormGrain / (std::max<int64_t>(1, groups) * kStrip)),
               [&](int64_t begin, int64_t end) {
                 double sum[kStrip];
                 for (int64_t s = begin; s < end; ++s) {
                   const int64_t first = s * kStrip, width = std::min(kStrip, n - first);
                   std::fill_n(sum, kStrip, 0.0);
                   for (int64_t k = 0; k < groups; ++k) {
                     for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<double>(partial[k * n + first + i]);
                   }
                   for (int64_t i = 0; i < width; ++i) out[first + i] = S(static_cast<C<S>>(sum[i]));
                 }
               });
}

template <class S, bool kLayer>
void backward(const NormBackwardCall& c) {
  const int64_t groups = (c.rows + kRowGroup - 1) / kRowGroup;
  Workspace<C<S>> dgamma(c.dgamma ? groups * c.n : 0), dbeta(c.dbeta ? groups * c.n : 0);
  const int64_t grain = std::max<int64_t>(1, kNormGrain / (kRowGroup * c.n));
  parallel_for(0, groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      C<S>* dg = c.dgamma ? dgamma.data() + k * c.n : nullptr;
      C<S>* db = c.dbeta ? dbeta.data() + k * c.n : nullptr;
      if (dg) std::fill_n(dg, c.n, C<S>(0));
      if (db) std::fill_n(db, c.n, C<S>(0));
      for (int64_t row = k * kRowGroup; row < std::min(c.rows, (k + 1) * kRowGroup); ++row) {
        backward_row<S, kLayer>(c, row, dg, db);
      }
    }
  });
  if (c.dgamma) sum_groups(dgamma.data(), groups, c.n, static_cast<S*>(c.dgamma));
  if (c.dbeta) sum_groups(dbeta.data(), groups, c.n, static_cast<S*>(c.dbeta));
}

void norm_forward(const NormCall& c, bool layer) {
  dispatch_floating(c.dtype, [&]<class S>() {
    parallel_for(0, c.rows, std::max<int64_t>(1, kNormGrain / c.n), [&](int64_t begin, int64_t end) {
      layer ? forward_rows<S, true>(c, begin, end) : forward_rows<S, false>(c, begin, end);
    });
  });
}
void norm_backward(const NormBackwardCall& c, bool layer) {
  dispatch_floating(c.dtype, [&]<class S>() { layer ? backward<S, true>(c) : backward<S, false>(c); });
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_backward);

void layer_norm(const NormCall& c) {
  if (c.rows > 0 && c.n > 0) HWY_DYNAMIC_DISPATCH(norm_forward)(c, true);
}
void rms_norm(const NormCall& c) {
  if (c.rows > 0 && c.n > 0) HWY_DYNAMIC_DISPATCH(norm_forward)(c, false);
}
void layer_norm_backward(const NormBackwardCall& c) {
  if (c.n > 0) HWY_DYNAMIC_DISPATCH(norm_backward)(c, true);
}
void rms_norm_backward(const NormBackwardCall& c) {
  if (c.n > 0) HWY_DYNAMIC_DISPATCH(norm_backward)(c, false);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
