#include "ops/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/check.h"
#include "core/describe.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/elementwise/philox.h"
#include "kernels/cpu/elementwise/random_values.h"
#include "ops/creation.h"
#include "ops/dense.h"
#include "ops/random_common.h"
#include "ops/view.h"
#include "runtime/context.h"
#include "runtime/parallel.h"

namespace deft {

namespace {

constexpr int64_t kPhiloxGrain = 4096;  // Philox blocks of four words per thread
constexpr int64_t kBlocks = 256;        // Philox blocks at a time: the words stay in the first cache
constexpr int64_t kRun = 4 * kBlocks;

// Calls use(first, count, words) for runs of the elements [0, n), where each element has one word.
template <class Use>
void for_each_run(PhiloxState draw, int64_t n, Use use) {
  parallel_for(0, (n + 3) / 4, kPhiloxGrain, [&](int64_t begin, int64_t end) {
    uint32_t words[kRun];
    for (int64_t b = begin; b < end; b += kBlocks) {
      const int64_t blocks = std::min(kBlocks, end - b);
      cpu::philox_words(draw, static_cast<uint64_t>(b), blocks, words);
      use(4 * b, std::min(4 * blocks, n - 4 * b), words);
    }
  });
}

template <class T, class V>
T rounded(V v) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>)
    return T(static_cast<float>(v));
  else
    return static_cast<T>(v);
}

// A number below `range` from two words: the high word of a 128-bit product, unbiased to 2^-64 of the range.
uint64_t below(uint64_t range, const uint32_t* words) {
  const uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * range >> 64);
}

// Rounding to a narrow type must not reach the open end: values that would are set to low.
template <class T>
void uniform_run(const UniformFill::Params& p, const uint32_t* words, int64_t count, T* to) {
  using Value = std::conditional_t<sizeof(T) == 2, float, T>;
  constexpr Value kNone = std::numeric_limits<Value>::infinity();
  const Value end = p.low == p.high ? kNone : static_cast<Value>(rounded<T>(p.high));
  if constexpr (sizeof(T) == 2) {
    const size_t n = static_cast<size_t>(count);
    float values[kRun];
    cpu::uniform_values(words, count, p.low, p.high, kNone, values);
    cpu::convert(values, DType::f32, to, dtype_of<T>, n);
    cpu::convert(to, dtype_of<T>, values, DType::f32, n);
    for (int64_t i = 0; i < count; ++i) {
      if (!(values[i] < end)) to[i] = rounded<T>(p.low);
    }
  } else {
    cpu::uniform_values(words, count, p.low, p.high, end, to);
  }
}

template <class T>
void normal_run(const NormalFill::Params& p, const uint32_t* words, int64_t count, T* to) {
  if constexpr (sizeof(T) == 2) {
    float values[kRun];
    cpu::normal_values(words, count, p.mean, p.std, values);
    cpu::convert(values, DType::f32, to, dtype_of<T>, static_cast<size_t>(count));
  } else {
    cpu::normal_values(words, count, p.mean, p.std, to);
  }
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
      for_each_run(p.draw, out.numel(), [&](int64_t first, int64_t count, const uint32_t* words) {
        uniform_run(p, words, count, to + first);
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
      for_each_run(p.draw, out.numel(), [&](int64_t first, int64_t count, const uint32_t* words) {
        normal_run(p, words, count, to + first);
      });
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
      parallel_for(0, out.numel(), kPhiloxGrain, [&](int64_t begin, int64_t end) {
        uint32_t words[kRun];
        for (int64_t i = begin; i < end; i += kBlocks) {
          const int64_t count = std::min(kBlocks, end - i);
          cpu::philox_words(p.draw, static_cast<uint64_t>(i), count, words);
          for (int64_t j = 0; j < count; ++j) {
            const uint64_t v = static_cast<uint64_t>(p.low) + below(range, words + 4 * j);
            to[i + j] = rounded<T>(static_cast<int64_t>(v));
          }
        }
      });
    });
  });
}

Meta RandpermFill::infer(const Meta& x, const Params&) {
  DEFT_CHECK(x.rank() == 1, ShapeError, "randperm: fills a vector, found {}", describe(x));
  return x;
}

namespace {

// Fisher-Yates, with the places of many swaps known before the first of them.
void permute(PhiloxState draw, int64_t n, int64_t* p) {
  std::iota(p, p + n, int64_t{0});
  uint32_t words[kRun];
  int64_t others[kBlocks];
  for (int64_t end = n; end > 1;) {
    const int64_t begin = std::max<int64_t>(1, end - kBlocks);
    cpu::philox_words(draw, static_cast<uint64_t>(begin), end - begin, words);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = i - begin;
      others[k] = static_cast<int64_t>(below(static_cast<uint64_t>(i + 1), words + 4 * k));
      __builtin_prefetch(p + others[k], 1);
    }
    for (int64_t i = end - 1; i >= begin; --i) std::swap(p[i], p[others[i - begin]]);
    end = begin;
  }
}

}  // namespace

void RandpermFill::cpu(KernelCall& c) {
  fill_row_major(c.out(), [&](const Tensor& out) {
    permute(c.params<RandpermFill>().draw, out.numel(), static_cast<int64_t*>(out.data_ptr()));
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
    for_each_run(c.params<Bernoulli>().draw, p.numel(), [&](int64_t first, int64_t count, const uint32_t* words) {
      for (int64_t i = 0; i < count; ++i) {
        const double u = uniform_from_bits(words[i]);
        to[first + i] = rounded<T>(u < static_cast<double>(from[first + i]) ? 1 : 0);
      }
    });
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
  for_each_run(d.draw, n, [&](int64_t first, int64_t count, const uint32_t* words) {
    for (int64_t i = 0; i < count; ++i) {
      const T kept = rounded<T>(static_cast<double>(from[first + i]) * scale);
      to[first + i] = words[i] < threshold ? rounded<T>(0) : kept;
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

// Fills a tensor that was just allocated: no recording, and its version stays 0.
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
  return drawn<RandpermFill>(empty({n}, DType::i64, site), {generator().next_draw()}, false, site);
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
