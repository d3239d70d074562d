// What an optimizer does to its numbers, written once for the vectors of the CPU and for the GPU. A rule is called with
// `at`, which loads and stores a few neighbouring elements, and `i`, the first of them; C is a constant that converts
// to what `at` loads. Nothing here is left to contraction: fma is written where it is meant.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/math.h"
#include "kernels/cpu/elementwise/optimizer.h"

#ifdef __CUDACC__
#define DEFT_RULE __device__ __forceinline__
#else
#define DEFT_RULE DEFT_HD
#endif

namespace deft::optimizer_rules {

// The gradient as the updates see it.
template <class C>
struct Gradient {
  C scale, decay;
  bool decayed;
  DEFT_HD Gradient(const cpu::OptimizerOptions& o, double weight_decay)
      : scale(o.maximize ? -o.grad_scale : o.grad_scale), decay(weight_decay), decayed(weight_decay != 0) {}
  template <class At, class V>
  DEFT_RULE V operator()(const At& at, int64_t i, const V& p) const {
    const V g = at.g(i) * scale;
    return decayed ? fma(decay, p, g) : g;
  }
};

template <class C>
struct Sgd {
  Gradient<C> gradient;
  C lr, momentum, rest;
  bool has_momentum, nesterov, first;
  DEFT_HD explicit Sgd(const cpu::SgdOptions& o)
      : gradient(o, o.weight_decay),
        lr(-o.lr),
        momentum(o.momentum),
        rest(1 - o.dampening),
        has_momentum(o.momentum != 0),
        nesterov(o.nesterov),
        first(o.first) {}
  template <class At>
  DEFT_RULE void operator()(const At& at, int64_t i) const {
    const auto p = at.p(i);
    auto g = gradient(at, i, p);
    if (has_momentum) {
      const auto buffer = first ? g : fma(momentum, at.s(0, i), rest * g);
      at.set(0, i, buffer);
      g = nesterov ? fma(momentum, buffer, g) : buffer;
    }
    at.set_param(i, fma(lr, g, p));
  }
};

// The moments of Adam and LAMB.
template <class C>
struct Moments {
  C rest1, beta2, rest2;
  DEFT_HD Moments(double b1, double b2) : rest1(1 - b1), beta2(b2), rest2(1 - b2) {}
  template <class V>
  DEFT_RULE V first(const V& m, const V& g) const {
    return fma(rest1, g - m, m);
  }
  template <class V>
  DEFT_RULE V second(const V& v, const V& g) const {
    return fma(beta2, v, rest2 * g * g);
  }
};

template <class C>
struct Adam {
  Gradient<C> gradient;
  Moments<C> moments;
  C step, shrink, root, eps;
  bool decoupled, amsgrad;
  DEFT_HD explicit Adam(const cpu::AdamOptions& o)
      : gradient(o, o.decoupled ? 0 : o.weight_decay),
        moments(o.beta1, o.beta2),
        step(-o.lr / (1 - std::pow(o.beta1, static_cast<double>(o.step)))),
        shrink(1 - o.lr * o.weight_decay),
        root(1 / std::sqrt(1 - std::pow(o.beta2, static_cast<double>(o.step)))),
        eps(o.eps),
        decoupled(o.decoupled),
        amsgrad(o.amsgrad) {}
  template <class At>
  DEFT_RULE void operator()(const At& at, int64_t i) const {
    auto p = at.p(i);
    const auto g = gradient(at, i, p);
    if (decoupled) p = p * shrink;
    const auto m = moments.first(at.s(0, i), g);
    auto v = moments.second(at.s(1, i), g);
    at.set(0, i, m);
    at.set(1, i, v);
    if (amsgrad) {
      v = max(at.s(2, i), v);
      at.set(2, i, v);
    }
    at.set_param(i, fma(step, m / fma(sqrt(v), root, eps), p));
  }
};

template <class C>
struct Rmsprop {
  Gradient<C> gradient;
  C lr, alpha, rest, eps, momentum;
  bool centered, has_momentum;
  DEFT_HD explicit Rmsprop(const cpu::RmspropOptions& o)
      : gradient(o, o.weight_decay),
        lr(-o.lr),
        alpha(o.alpha),
        rest(1 - o.alpha),
        eps(o.eps),
        momentum(o.momentum),
        centered(o.centered),
        has_momentum(o.momentum != 0) {}
  template <class At>
  DEFT_RULE void operator()(const At& at, int64_t i) const {
    const auto p = at.p(i), g = gradient(at, i, p);
    auto square = fma(alpha, at.s(0, i), rest * g * g);
    at.set(0, i, square);
    if (centered) {
      const auto before = at.s(2, i), mean = fma(rest, g - before, before);
      at.set(2, i, mean);
      // Without FMA instructions the square of the mean overflows where `square` did: inf - inf.
      square = infinite_or(square, fma(-mean, mean, square));
    }
    auto step = g / (sqrt(square) + eps);
    if (has_momentum) {
      step = fma(momentum, at.s(1, i), step);
      at.set(1, i, step);
    }
    at.set_param(i, fma(lr, step, p));
  }
};

template <class C>
struct Adagrad {
  Gradient<C> gradient;
  C lr, eps;
  DEFT_HD explicit Adagrad(const cpu::AdagradOptions& o)
      : gradient(o, o.weight_decay), lr(-o.lr / (1 + static_cast<double>(o.step - 1) * o.lr_decay)), eps(o.eps) {}
  template <class At>
  DEFT_RULE void operator()(const At& at, int64_t i) const {
    const auto p = at.p(i), g = gradient(at, i, p), sum = fma(g, g, at.s(0, i));
    at.set(0, i, sum);
    at.set_param(i, fma(lr, g / (sqrt(sum) + eps), p));
  }
};

// LAMB: the moments and both norms first, then the step. The update is computed twice rather than stored.
template <class C>
struct Lamb {
  Gradient<C> gradient;
  Moments<C> moments;
  C correct1, correct2, eps, decay;
  DEFT_HD explicit Lamb(const cpu::LambOptions& o)
      : gradient(o, 0),
        moments(o.beta1, o.beta2),
        correct1(1 / (1 - std::pow(o.beta1, static_cast<double>(o.step)))),
        correct2(1 / (1 - std::pow(o.beta2, static_cast<double>(o.step)))),
        eps(o.eps),
        decay(o.weight_decay) {}
  template <class V>
  DEFT_RULE V update(const V& p, const V& m, const V& v) const {
    return fma(decay, p, m * correct1 / (sqrt(v * correct2) + eps));
  }
  // Writes the moments, returns the update.
  template <class At, class V>
  DEFT_RULE V advance(const At& at, int64_t i, const V& p) const {
    const V g = gradient(at, i, p), m = moments.first(at.s(0, i), g), v = moments.second(at.s(1, i), g);
    at.set(0, i, m);
    at.set(1, i, v);
    return update(p, m, v);
  }
};
template <class C>
struct LambStep {
  Lamb<C> lamb;
  C lr;
  template <class At>
  DEFT_RULE void operator()(const At& at, int64_t i) const {
    const auto p = at.p(i);
    at.set_param(i, fma(lr, lamb.update(p, at.s(0, i), at.s(1, i)), p));
  }
};
// From the sums of squares of the parameters and of the update.
DEFT_HD double lamb_ratio(double params, double updates) {
  return params != 0 && updates != 0 ? std::sqrt(params) / std::sqrt(updates) : 1;
}

}  // namespace deft::optimizer_rules
#undef DEFT_RULE
