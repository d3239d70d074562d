#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/layer_norm.cpp"
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

constexpr int64_t kNormGrain = 8192;
// Rows whose parameter gradients are summed together. A fixed number, so that threads do not change the result.
constexpr int64_t kRowGroup = 64;

template <class S>
using C = accumulate_t<S>;

template <class S>
struct Moments {
  C<S> mean, rstd;
};

// The squares of a row leave the range of f32 long before its numbers do: such rows, and those with infinities and NaN,
// are summed again in f64.
template <class S, bool kLayer>
HWY_NOINLINE Moments<S> wide_moments(const S* x, int64_t n, double eps) {
  const double count = static_cast<double>(n);
  double mean = 0, squares = 0;
  for (int64_t i = 0; kLayer && i < n; ++i) mean += static_cast<double>(static_cast<C<S>>(x[i])) / count;
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(static_cast<C<S>>(x[i])) - mean;
    squares += d * d;
  }
  return {static_cast<C<S>>(mean), static_cast<C<S>>(1 / std::sqrt(squares / count + eps))};
}

template <class S, bool kLayer, class Map = NoMap>
Moments<S> norm_moments(const S* x, int64_t n, double eps, const Map& also = {}) {
  const double count = static_cast<double>(n);
  if constexpr (kLayer) {
    const RowMoments m = moments_of_row<true>(x, n, also);
    if (!std::isfinite(m.squares)) [[unlikely]]
      return wide_moments<S, kLayer>(x, n, eps);
    return {static_cast<C<S>>(m.mean), static_cast<C<S>>(1 / std::sqrt(m.squares / count + eps))};
  } else {
    auto add = [&](int64_t i, int64_t m, LaneSums<C<S>, 1>& s) HWY_ATTR {
      const RowVec<S> v = load_some(x + i, m);
      s.of[0] = fma(v, v, s.of[0]);
    };
    const auto [squares] = sum_row<C<S>, 1>(n, add, also);
    if (!std::isfinite(squares)) [[unlikely]]
      return wide_moments<S, kLayer>(x, n, eps);
    return {C<S>(0), static_cast<C<S>>(1 / std::sqrt(squares / count + eps))};
  }
}

// A row is written in the loop that sums the next one, so that memory is read and written at the same time. (Two rows
// at a time, which share the loads of gamma and beta, take half as long again; one more row between the sums and the
// result gains nothing, nor does prefetching. The loop is bound by its 20 loads and stores and 20 operations a cache
// line: it takes 9.8 cycles a line in assembly, 9 without the overhead per row, and 8 from L1; a copy takes 6.4.)
template <class S, bool kLayer, bool kGamma, bool kBeta>
void forward_rows(const NormCall& c, int64_t begin, int64_t end) {
  using V = RowVec<S>;
  const S *gamma = static_cast<const S*>(c.gamma), *beta = static_cast<const S*>(c.beta);
  const int64_t n = c.n;
  const S* x = static_cast<const S*>(c.x) + begin * n;
  S* y = static_cast<S*>(c.y) + begin * n;
  const bool stream = streams_rows(static_cast<const S*>(c.y), c.rows, n) && c.x != c.y;
  Moments<S> next = norm_moments<S, kLayer>(x, n, c.eps);
  for (int64_t row = begin; row < end; ++row, x += n, y += n) {
    if (kLayer && c.mean) static_cast<C<S>*>(c.mean)[row] = next.mean;
    if (c.rstd) static_cast<C<S>*>(c.rstd)[row] = next.rstd;
    const V mean(next.mean), rstd(next.rstd);
    auto normal = [&](int64_t i, int64_t m) HWY_ATTR {
      V v = load_some(x + i, m);
      if constexpr (kLayer) v -= mean;
      v *= rstd;
      if constexpr (kGamma && kBeta) return fma(v, load_some(gamma + i, m), load_some(beta + i, m));
      if constexpr (kGamma) v *= load_some(gamma + i, m);
      if constexpr (kBeta) v += load_some(beta + i, m);
      return v;
    };
    if (row + 1 < end) {
      const Ahead<S> ahead = stream ? Ahead<S>::of(x + n) : Ahead<S>();
      next = norm_moments<S, kLayer>(x + n, n, c.eps, RowMap<S, decltype(normal)>{y, normal, ahead});
    } else {
      map_row(n, y, normal);
    }
  }
  if (stream) end_stream();
}
template <class S, bool kLayer>
void forward(const NormCall& c, int64_t begin, int64_t end) {
  if (c.gamma) {
    kLayer&& c.beta ? forward_rows<S, kLayer, true, kLayer>(c, begin, end)
                    : forward_rows<S, kLayer, true, false>(c, begin, end);
  } else {
    kLayer&& c.beta ? forward_rows<S, kLayer, false, kLayer>(c, begin, end)
                    : forward_rows<S, kLayer, false, false>(c, begin, end);
  }
}

// A row of the backward pass. With h = g * gamma and normal = (x - mean) * rstd,
// dx = rstd * (h - mean(h) - normal * mean(h * normal)); rms_norm has no mean(h).
template <class S>
struct BackwardRow {
  const S *g, *x;
  C<S> mean, rstd, slope, offset;
};

// Adds a row to the gradients of the parameters and finds the means.
template <class S, bool kLayer, bool kGamma, bool kParams, class Map = NoMap>
void sum_backward_row(BackwardRow<S>& r, const S* gamma, C<S>* dgamma, C<S>* dbeta, int64_t n, const Map& also = {}) {
  using V = RowVec<S>;
  const V mean(r.mean), rstd(r.rstd);
  auto add = [&](int64_t i, int64_t m, LaneSums<C<S>, 2>& s) HWY_ATTR {
    V g = load_some(r.g + i, m), normal = load_some(r.x + i, m);
    if constexpr (kLayer) normal -= mean;
    normal *= rstd;
    if constexpr (kParams) {
      store_some(fma(g, normal, load_some(dgamma + i, m)), dgamma + i, m);
      if constexpr (kLayer) store_some(g + load_some(dbeta + i, m), dbeta + i, m);
    }
    if constexpr (kGamma) g *= load_some(gamma + i, m);
    s.of[0] = fma(g, normal, s.of[0]);
    if constexpr (kLayer) s.of[1] += g;
  };
  const auto sums = sum_row<C<S>, 2>(n, add, also);
  r.slope = static_cast<C<S>>(sums[0] / static_cast<double>(n));
  r.offset = static_cast<C<S>>(sums[1] / static_cast<double>(n));
}

// Rows of one group. As in forward_rows(), a row is written in the loop that sums the next one.
template <class S, bool kLayer, bool kGamma, bool kParams>
void backward_rows(const NormBackwardCall& c, int64_t begin, int64_t end, C<S>* dgamma, C<S>* dbeta) {
  using V = RowVec<S>;
  const S* gamma = static_cast<const S*>(c.gamma);
  const int64_t n = c.n;
  auto row_at = [&](int64_t k) {
    return BackwardRow<S>{static_cast<const S*>(c.g) + k * n,
                          static_cast<const S*>(c.x) + k * n,
                          kLayer ? static_cast<const C<S>*>(c.mean)[k] : C<S>(0),
                          static_cast<const C<S>*>(c.rstd)[k],
                          0,
                          0};
  };
  const bool stream = c.dx && streams_rows(static_cast<const S*>(c.dx), c.rows, n) && c.dx != c.g && c.dx != c.x;
  BackwardRow<S> next = row_at(begin);
  sum_backward_row<S, kLayer, kGamma, kParams>(next, gamma, dgamma, dbeta, n);
  for (int64_t k = begin; k < end; ++k) {
    const BackwardRow<S> r = next;
    // rstd once inside and once outside: its square leaves the range of f32.
    const V mean(r.mean), rstd(r.rstd), of_x(-r.rstd * r.slope), offset(-r.rstd * r.offset);
    auto dx = [&](int64_t i, int64_t m) HWY_ATTR {
      V g = load_some(r.g + i, m), x = load_some(r.x + i, m);
      if constexpr (kLayer) x -= mean;
      if constexpr (kGamma) g *= load_some(gamma + i, m);
      return fma(fma(x, of_x, g), rstd, offset);
    };
    S* to = static_cast<S*>(c.dx) + (c.dx ? k * n : 0);
    if (k + 1 < end) {
      next = row_at(k + 1);
      const Ahead<S> ahead = stream ? Ahead<S>::of(next.g, next.x) : Ahead<S>();
      c.dx ? sum_backward_row<S, kLayer, kGamma, kParams>(next, gamma, dgamma, dbeta, n,
                                                          RowMap<S, decltype(dx)>{to, dx, ahead})
           : sum_backward_row<S, kLayer, kGamma, kParams>(next, gamma, dgamma, dbeta, n);
    } else if (c.dx) {
      map_row(n, to, dx);
    }
  }
  if (stream) end_stream();
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
  const bool params = c.dgamma || c.dbeta;
  const int64_t groups = (c.rows + kRowGroup - 1) / kRowGroup;
  Workspace<C<S>> dgamma(params ? groups * c.n : 0), dbeta(params && kLayer ? groups * c.n : 0);
  parallel_for(0, groups, std::max<int64_t>(1, kNormGrain / (kRowGroup * c.n)), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k * kRowGroup, last = std::min(c.rows, first + kRowGroup);
      C<S>* dg = params ? dgamma.data() + k * c.n : nullptr;
      C<S>* db = params && kLayer ? dbeta.data() + k * c.n : nullptr;
      if (dg) std::fill_n(dg, c.n, C<S>(0));
      if (db) std::fill_n(db, c.n, C<S>(0));
      if (params) {
        c.gamma ? backward_rows<S, kLayer, true, true>(c, first, last, dg, db)
                : backward_rows<S, kLayer, false, true>(c, first, last, dg, db);
      } else {
        c.gamma ? backward_rows<S, kLayer, true, false>(c, first, last, dg, db)
                : backward_rows<S, kLayer, false, false>(c, first, last, dg, db);
      }
    }
  });
  if (c.dgamma) sum_groups(dgamma.data(), groups, c.n, static_cast<S*>(c.dgamma));
  if (c.dbeta && kLayer) sum_groups(dbeta.data(), groups, c.n, static_cast<S*>(c.dbeta));
}

void norm_forward(const NormCall& c, bool layer) {
  dispatch_floating(c.dtype, [&]<class S>() {
    parallel_for(0, c.rows, std::max<int64_t>(1, kNormGrain / c.n), [&](int64_t begin, int64_t end) {
      layer ? forward<S, true>(c, begin, end) : forward<S, false>(c, begin, end);
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
