#include "ops/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "core/describe.h"
#include "kernels/cpu/philox.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/random_common.h"
#include "ops/view.h"
#include "runtime/context.h"
#include "runtime/parallel.h"

namespace deft {

namespace {

constexpr int64_t kGrain = 4096;  // Philox blocks of four numbers per lane

// Calls write(i, value) for all i < n with values made four at a time by make(words) -> std::array<V, 4>.
template <class Make, class Write>
void for_each_draw(PhiloxState draw, int64_t n, Make make, Write write) {
  parallel_for(0, (n + 3) / 4, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      auto values = make(philox(draw, static_cast<uint64_t>(b)));
      int64_t left = std::min<int64_t>(4, n - b * 4);
      for (int64_t j = 0; j < left; ++j) write(b * 4 + j, values[static_cast<size_t>(j)]);
    }
  });
}

// a * b + c with both roundings, whatever the compiler and its target: a fused multiply-add would give other numbers
// than those of another device.
double multiply_add(double a, double b, double c) {
#if defined(__clang__)
#pragma clang fp contract(off)
  return a * b + c;
#elif __has_builtin(__builtin_assoc_barrier)
  return __builtin_assoc_barrier(a * b) + c;
#else
  return a * b + c;
#endif
}

std::array<double, 4> uniform4(const std::array<uint32_t, 4>& w) {
  return {uniform_from_bits(w[0]), uniform_from_bits(w[1]), uniform_from_bits(w[2]), uniform_from_bits(w[3])};
}

// Box-Muller in double, so that a backend whose log and cos differ in the last bit still rounds to the same float.
std::array<double, 4> normal4(const std::array<uint32_t, 4>& w) {
  std::array<double, 4> z;
  for (size_t i = 0; i < 4; i += 2) {
    double u = (static_cast<double>(w[i]) + 0.5) * 0x1p-32;
    double angle = 2 * std::numbers::pi * (static_cast<double>(w[i + 1]) + 0.5) * 0x1p-32;
    double radius = std::sqrt(-2 * std::log(u));
    z[i] = radius * std::cos(angle);
    z[i + 1] = radius * std::sin(angle);
  }
  return z;
}

template <class T, class V>
T rounded(V v) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
    return T(static_cast<float>(v));
  else
    return static_cast<T>(v);
}

}  // namespace

Meta UniformFill::infer(const Meta& x, const Params& p) {
  DEFT_CHECK(std::isfinite(p.low) && std::isfinite(p.high) && p.low <= p.high, ValueError,
             "uniform_: needs finite low <= high, found {} and {}", p.low, p.high);
  return x;
}
void UniformFill::cpu(KernelCall& c) {
  const Params& p = c.params<UniformFill>();
  fill_row_major(c.out(), [&](const Tensor& out) {
    dispatch_floating(out.dtype(), [&]<class T>() {
      T* to = static_cast<T*>(out.data_ptr());
      // Rounding to a narrow type must not reach the open end.
      T last = rounded<T>(p.high);
      for_each_draw(p.draw, out.numel(), uniform4, [&](int64_t i, double u) {
        T v = rounded<T>(multiply_add(u, p.high - p.low, p.low));
        to[i] = v < last || p.low == p.high ? v : rounded<T>(p.low);
      });
    });
  });
}

Meta NormalFill::infer(const Meta& x, const Params& p) {
  DEFT_CHECK(p.std >= 0 && std::isfinite(p.mean), ValueError,
             "normal_: needs a finite mean and std >= 0, found {} and {}", p.mean, p.std);
  return x;
}
void NormalFill::cpu(KernelCall& c) {
  const Params& p = c.params<NormalFill>();
  fill_row_major(c.out(), [&](const Tensor& out) {
    dispatch_floating(out.dtype(), [&]<class T>() {
      T* to = static_cast<T*>(out.data_ptr());
      for_each_draw(p.draw, out.numel(), normal4,
                    [&](int64_t i, double z) { to[i] = rounded<T>(multiply_add(p.std, z, p.mean)); });
    });
  });
}

Meta RandintFill::infer(const Meta& x, const Params& p) {
  DEFT_CHECK(p.low < p.high, ValueError, "randint: needs low < high, found {} and {}", p.low, p.high);
  return x;
}
void RandintFill::cpu(KernelCall& c) {
  const Params& p = c.params<RandintFill>();
  uint64_t range = static_cast<uint64_t>(p.high) - static_cast<uint64_t>(p.low);
  fill_row_major(c.out(), [&](const Tensor& out) {
    dispatch_all(out.dtype(), [&]<class T>() {
      T* to = static_cast<T*>(out.data_ptr());
      parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          auto w = philox(p.draw, static_cast<uint64_t>(i));
          uint64_t bits = static_cast<uint64_t>(w[0]) << 32 | w[1];
          // The high word of a 128-bit product: unbiased to 2^-64 of the range.
          auto v = static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * range >> 64);
          to[i] = rounded<T>(static_cast<int64_t>(static_cast<uint64_t>(p.low) + v));
        }
      });
    });
  });
}

Meta Bernoulli::infer(const Meta& p, const Params&) { return Meta::dense(p.sizes, p.dtype, p.device); }
void Bernoulli::cpu(KernelCall& c) {
  Tensor p = as_dense(c.in());
  dispatch_floating(p.dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(p.data_ptr());
    T* to = static_cast<T*>(c.out().data_ptr());
    for (int64_t i = 0; i < p.numel(); ++i) {
      double v = static_cast<double>(from[i]);
      DEFT_CHECK(v >= 0 && v <= 1, ValueError, "bernoulli: probabilities lie in [0, 1], found {} at element {}", v, i);
    }
    for_each_draw(c.params<Bernoulli>().draw, p.numel(), uniform4,
                  [&](int64_t i, double u) { to[i] = rounded<T>(u < static_cast<double>(from[i]) ? 1 : 0); });
  });
}

namespace {

template <class T>
void drop_all(const cpu::Dropping& d, const T* from, int64_t n, T* to) {
  if (d.p >= 1) {
    std::fill_n(to, n, rounded<T>(0));
    return;
  }
  const double scale = d.scale();
  const uint32_t threshold = d.threshold();
  parallel_for(0, (n + 3) / 4, kGrain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlocks = 64;
    uint32_t words[4 * kBlocks];
    for (int64_t b = begin; b < end; b += kBlocks) {
      const int64_t blocks = std::min(kBlocks, end - b), count = std::min(4 * blocks, n - 4 * b);
      cpu::philox_words(d.draw, static_cast<uint64_t>(b), blocks, words);
      for (int64_t j = 0; j < count; ++j) {
        const T kept = rounded<T>(static_cast<double>(from[4 * b + j]) * scale);
        to[4 * b + j] = words[j] < threshold ? rounded<T>(0) : kept;
      }
    }
  });
}

}  // namespace

Meta Dropout::infer(const Meta& x, const Params& p) {
  DEFT_CHECK(p.p >= 0 && p.p <= 1, ValueError, "dropout: the probability lies in [0, 1], found {}", p.p);
  Meta m = Meta::dense(x.sizes, x.dtype, x.device);
  if (!x.contiguous && x.is_dense()) m.set_strides(x.strides);
  return m;
}
void Dropout::cpu(KernelCall& c) {
  const Params& p = c.params<Dropout>();
  Tensor x = as_dense(c.in());
  fill_row_major(c.out(), [&](const Tensor& out) {
    dispatch_floating(x.dtype(), [&]<class T>() {
      drop_all(cpu::Dropping{p.p, p.draw}, static_cast<const T*>(x.data_ptr()), x.numel(),
               static_cast<T*>(out.data_ptr()));
    });
  });
}
void Dropout::vjp(VjpContext& c) { c.grad_in(0) = call<Dropout>(c.node.site, c.params<Dropout>(), c.grad()); }

// --- functions -------------------------------------------------------------------------------------------------

namespace {

// Fills a tensor that nobody has seen yet: no recording, and its version stays 0.
template <class Op>
Tensor drawn(Tensor t, const typename Op::Params& params, bool requires_grad, const Site& site) {
  {
    ExecContext quiet = context();
    quiet.bits |= kGradOff;
    ContextGuard guard(quiet);
    call_inplace<Op>(site, params, t);
  }
  t.impl()->storage->version.store(0, std::memory_order_relaxed);
  if (requires_grad) t.requires_grad_(true, site);
  return t;
}

// Asking for gradients makes the tensor a normal one even inside inference_mode.
Tensor blank(IntList sizes, TensorOptions options, const Site& site) {
  Tensor t = empty(sizes, options, site);
  if (options.requires_grad) t.requires_grad_(false, site);
  return t;
}

}  // namespace

Tensor rand(IntList sizes, TensorOptions options, Site site) {
  return drawn<UniformFill>(blank(sizes, options, site), {0, 1, generator().next_draw()}, options.requires_grad, site);
}
Tensor randn(IntList sizes, TensorOptions options, Site site) {
  return drawn<NormalFill>(blank(sizes, options, site), {0, 1, generator().next_draw()}, options.requires_grad, site);
}
Tensor randint(int64_t low, int64_t high, IntList sizes, TensorOptions options, Site site) {
  return drawn<RandintFill>(blank(sizes, options, site), {low, high, generator().next_draw()}, options.requires_grad,
                            site);
}
Tensor rand_like(const Tensor& x, Site site) {
  return drawn<UniformFill>(empty_like(x, site), {0, 1, generator().next_draw()}, false, site);
}
Tensor randn_like(const Tensor& x, Site site) {
  return drawn<NormalFill>(empty_like(x, site), {0, 1, generator().next_draw()}, false, site);
}

Tensor randperm(int64_t n, Site site) {
  DEFT_CHECK(n >= 0, ValueError, "randperm: the length must not be negative, found {}", n);
  Tensor t = arange(0, n, 1, TensorOptions(DType::i64), site);
  PhiloxState draw = generator().next_draw();
  int64_t* p = t.data<int64_t>();
  for (int64_t i = n - 1; i > 0; --i) {  // Fisher-Yates
    auto w = philox(draw, static_cast<uint64_t>(i));
    uint64_t bits = static_cast<uint64_t>(w[0]) << 32 | w[1];
    auto j = static_cast<int64_t>(static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(i + 1) >> 64);
    std::swap(p[i], p[j]);
  }
  return t;
}

Tensor& uniform_(Tensor& x, double low, double high, Site site) {
  return call_inplace<UniformFill>(site, {low, high, generator().next_draw()}, x);
}
Tensor& normal_(Tensor& x, double mean, double std, Site site) {
  return call_inplace<NormalFill>(site, {mean, std, generator().next_draw()}, x);
}
Tensor bernoulli(const Tensor& p, Site site) { return call<Bernoulli>(site, {generator().next_draw()}, p); }

Tensor dropout(const Tensor& x, double p, bool training, Site site) {
  detail::check_defined(x, "dropout");
  DEFT_CHECK(p >= 0 && p <= 1, ValueError, "dropout: the probability lies in [0, 1], found {}", p);
  if (!training || p == 0) return x;
  return call<Dropout>(site, {p, generator().next_draw()}, x);
}

Tensor feature_dropout(const Tensor& x, double p, bool training, Site site) {
  detail::check_defined(x, "feature_dropout");
  DEFT_CHECK(x.dim() >= 2, ShapeError, "feature_dropout: needs N, C, spatial... dimensions, found {}",
             describe(x.meta()));
  if (!training || p == 0) return dropout(x, p, false, site);
  Shape mask_sizes = x.sizes();
  for (int i = 2; i < x.dim(); ++i) mask_sizes[i] = 1;
  Tensor mask = dropout(ones(mask_sizes, {x.dtype(), x.device()}, site), p, true, site);
  return x.mul(mask, site);
}

}  // namespace deft
