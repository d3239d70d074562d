#include "kernels/cpu/norm/pair_loss.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm/pair_loss.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/norm/row-inl.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kPiece = 32768;  // elements; sums are cut here whatever the number of threads

template <class V>
struct Squared {
  explicit Squared(const PairLossCall&) {}
  V loss(V x, V t) const { return (x - t) * (x - t); }
  V slope(V x, V t) const { return (x - t) + (x - t); }
};
template <class V>
struct Absolute {
  explicit Absolute(const PairLossCall&) {}
  V loss(V x, V t) const { return abs(x - t); }
  V slope(V x, V t) const { return select(x > t, V(1), select(x < t, V(-1), V(0))); }  // 0 at NaN
};
template <class V>
struct Huber {
  V width, half, scale, end;
  explicit Huber(const PairLossCall& c) : width(c.width), half(0.5 * c.width), scale(c.scale), end(c.width * c.scale) {}
  V loss(V x, V t) const {
    const V d = abs(x - t);
    return select(d <= width, d * d * (scale * V(0.5)), (d - half) * end);
  }
  V slope(V x, V t) const {
    const V d = x - t;
    return select(abs(d) > width, sign(d) * end, d * scale);
  }
};
template <class V>
struct Logistic {
  explicit Logistic(const PairLossCall&) {}
  // max(x, 0) - x t, but infinite where x is: not inf - inf.
  V loss(V x, V t) const { return select(x > V(0), (V(1) - t) * x, -(x * t)) + log1p(exp(-abs(x))); }
  V slope(V x, V t) const { return sigmoid(x) - t; }
};

template <class S, class F>
double sum_of(const S* x, const S* t, int64_t n, const F& f) {
  return sum_row<accumulate_t<S>, 1>(n, [&](int64_t i, int64_t m, LaneSums<accumulate_t<S>, 1>& s) HWY_ATTR {
    s.of[0] += f.loss(load_some(x + i, m), load_some(t + i, m));
  })[0];
}

template <class S, class F>
void write_slopes(const S* x, const S* t, int64_t n, const F& f, double g, S* dx, bool streamed) {
  const RowVec<S> scale(g);
  const auto slope = [&](int64_t i, int64_t m)
                         HWY_ATTR { return f.slope(load_some(x + i, m), load_some(t + i, m)) * scale; };
  map_row(n, dx, slope, streamed ? Ahead<S>::of(x, t) : Ahead<S>());
  if (streamed) end_stream();
}

template <class F>
void each_piece(int64_t n, const F& f) {
  parallel_for(0, (n + kPiece - 1) / kPiece, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) f(k, k * kPiece, std::min(kPiece, n - k * kPiece));
  });
}

// Calls run with the formula of the call.
template <class S, class Run>
void with_formula(const PairLossCall& c, const Run& run) {
  using V = RowVec<S>;
  switch (c.kind) {
    case PairLossKind::squared:
      return run(Squared<V>(c));
    case PairLossKind::absolute:
      return run(Absolute<V>(c));
    case PairLossKind::huber:
      return run(Huber<V>(c));
    case PairLossKind::logistic:
      return run(Logistic<V>(c));
  }
}

double forward_any(const PairLossCall& c) {
  Workspace<double> sums((c.n + kPiece - 1) / kPiece);
  dispatch_floating(c.dtype, [&]<class S>() {
    const S *x = static_cast<const S*>(c.x), *t = static_cast<const S*>(c.target);
    with_formula<S>(c, [&](const auto& formula) {
      each_piece(c.n, [&](int64_t k, int64_t at, int64_t n) { sums[k] = sum_of(x + at, t + at, n, formula); });
    });
  });
  double sum = 0;
  for (int64_t k = 0; k * kPiece < c.n; ++k) sum += sums[k];
  return sum;
}

void backward_any(const PairLossCall& c, double g, void* dx) {
  dispatch_floating(c.dtype, [&]<class S>() {
    const S *x = static_cast<const S*>(c.x), *t = static_cast<const S*>(c.target);
    S* to = static_cast<S*>(dx);
    const bool streamed = streams_rows(to, (c.n + kPiece - 1) / kPiece, kPiece);
    with_formula<S>(c, [&](const auto& formula) {
      each_piece(
          c.n, [&](int64_t, int64_t at, int64_t n) { write_slopes(x + at, t + at, n, formula, g, to + at, streamed); });
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

double pair_loss(const PairLossCall& c) { return c.n ? HWY_DYNAMIC_DISPATCH(forward_any)(c) : 0; }
void pair_loss_backward(const PairLossCall& c, double g, void* dx) {
  if (c.n) HWY_DYNAMIC_DISPATCH(backward_any)(c, g, dx);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
