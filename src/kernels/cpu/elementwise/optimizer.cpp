#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise/optimizer.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "hwy/highway.h"
#include "kernels/cpu/elementwise/optimizer.h"
#include "kernels/cpu/elementwise/optimizer_rules.h"
#include "kernels/cpu/simd/simd-inl.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

// Four vectors go through a formula together: the dependency chain of one exceeds the CPU's out-of-order window.
using F = Vec<float>;
constexpr int kWide = 4;
constexpr int64_t kLanes = kWide * F::kLanes;
struct V {
  F f[kWide];
  static inline V load(const float* p) {
    return {F::load(p), F::load(p + F::kLanes), F::load(p + 2 * F::kLanes), F::load(p + 3 * F::kLanes)};
  }
  inline void store(float* p) const {
    for (int k = 0; k < kWide; ++k) f[k].store(p + k * F::kLanes);
  }
};
struct Constant {
  F f;
  explicit Constant(double x) : f(x) {}
  inline operator V() const { return {f, f, f, f}; }
};

inline V operator+(V a, V b) { return {a.f[0] + b.f[0], a.f[1] + b.f[1], a.f[2] + b.f[2], a.f[3] + b.f[3]}; }
inline V operator-(V a, V b) { return {a.f[0] - b.f[0], a.f[1] - b.f[1], a.f[2] - b.f[2], a.f[3] - b.f[3]}; }
inline V operator*(V a, V b) { return {a.f[0] * b.f[0], a.f[1] * b.f[1], a.f[2] * b.f[2], a.f[3] * b.f[3]}; }
inline V operator-(V a) { return {-a.f[0], -a.f[1], -a.f[2], -a.f[3]}; }
inline V fma(V a, V b, V c) {
  return {fma(a.f[0], b.f[0], c.f[0]), fma(a.f[1], b.f[1], c.f[1]), fma(a.f[2], b.f[2], c.f[2]),
          fma(a.f[3], b.f[3], c.f[3])};
}
// x where it is infinite, else y.
inline V infinite_or(V x, V y) {
  auto one = [](F a, F b) { return select(a == F(HUGE_VALF), a, b); };
  return {one(x.f[0], y.f[0]), one(x.f[1], y.f[1]), one(x.f[2], y.f[2]), one(x.f[3], y.f[3])};
}
inline V max(V a, V b) { return {max(a.f[0], b.f[0]), max(a.f[1], b.f[1]), max(a.f[2], b.f[2]), max(a.f[3], b.f[3])}; }

// Measured: estimates and Newton steps in place of the two take half as long again on Neoverse V1.
inline V operator/(V a, V b) { return {a.f[0] / b.f[0], a.f[1] / b.f[1], a.f[2] / b.f[2], a.f[3] / b.f[3]}; }
inline V sqrt(V x) { return {sqrt(x.f[0]), sqrt(x.f[1]), sqrt(x.f[2]), sqrt(x.f[3])}; }

template <class G>
inline V load_wide(const G* p) {
  return {load_vec(p), load_vec(p + F::kLanes), load_vec(p + 2 * F::kLanes), load_vec(p + 3 * F::kLanes)};
}

// As store_vec(), but checks for NaN once.
inline void store_wide(V v, BFloat16* p) {
#if HWY_TARGET == HWY_NEON
  uint32x4_t u[kWide], ordered = vdupq_n_u32(~0u);
  for (int k = 0; k < kWide; ++k) {
    const float32x4_t x = v.f[k].raw.raw;
    ordered = vandq_u32(ordered, vceqq_f32(x, x));
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    u[k] = vaddq_u32(bits, vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1)));
  }
  if (HWY_LIKELY(vminvq_u32(ordered) != 0)) {
    const uint32x4_t half = vdupq_n_u32(0x7fff);
    uint8_t* to = reinterpret_cast<uint8_t*>(p);
    vst1q_u8(to, vreinterpretq_u8_u16(vaddhn_high_u32(vaddhn_u32(u[0], half), u[1], half)));
    vst1q_u8(to + 16, vreinterpretq_u8_u16(vaddhn_high_u32(vaddhn_u32(u[2], half), u[3], half)));
    return;
  }
#endif
  for (int k = 0; k < kWide; ++k) store_vec(v.f[k], p + k * static_cast<int64_t>(F::kLanes));
}

// One tensor, read and written kLanes elements at a time.
template <class G>
struct At {
  float* param;
  const G* grad;
  float* state[3];
  BFloat16* copy;

  inline V p(int64_t i) const { return V::load(param + i); }
  inline V g(int64_t i) const { return load_wide(grad + i); }
  inline V s(int k, int64_t i) const { return V::load(state[k] + i); }
  inline void set(int k, int64_t i, V v) const { v.store(state[k] + i); }
  inline void set_param(int64_t i, V v) const {
    v.store(param + i);
    if (copy) store_wide(v, copy + i);
  }
};

// Less than a vector: through padded copies, so that every element has the same arithmetic.
template <class G, class Rule>
void update_rest(const Rule& rule, const At<G>& at, int64_t i, int64_t n) {
  float param[kLanes] = {}, state[3][kLanes] = {};
  G grad[kLanes] = {};
  BFloat16 copy[kLanes];
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  At<G> padded{param, grad, {}, at.copy ? copy : nullptr};
  std::memcpy(param, at.param + i, bytes);
  std::memcpy(grad, at.grad + i, static_cast<size_t>(n) * sizeof(G));
  for (int k = 0; k < 3; ++k) {
    if (at.state[k]) std::memcpy(state[k], at.state[k] + i, bytes);
    padded.state[k] = at.state[k] ? state[k] : nullptr;
  }
  rule(padded, 0);
  std::memcpy(at.param + i, param, bytes);
  for (int k = 0; k < 3; ++k) {
    if (at.state[k]) std::memcpy(at.state[k] + i, state[k], bytes);
  }
  if (at.copy) std::memcpy(at.copy + i, copy, static_cast<size_t>(n) * sizeof(BFloat16));
}

template <class G, class Rule>
void update_range(const Rule& rule, const OptimizerTensor& t, int64_t begin, int64_t end) {
  const At<G> at{t.param, static_cast<const G*>(t.grad), {t.state[0], t.state[1], t.state[2]}, t.copy};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) rule(at, i);
  if (i < end) update_rest(rule, at, i, end - i);
}

using Sgd = optimizer_rules::Sgd<Constant>;
using Adam = optimizer_rules::Adam<Constant>;
using Rmsprop = optimizer_rules::Rmsprop<Constant>;
using Adagrad = optimizer_rules::Adagrad<Constant>;
using Lamb = optimizer_rules::Lamb<Constant>;
using LambStep = optimizer_rules::LambStep<Constant>;

struct LambMoments {
  Lamb lamb;
  mutable V params = Constant(0), updates = Constant(0);
  template <class G>
  HWY_INLINE void operator()(const At<G>& at, int64_t i) const {
    const V p = at.p(i), u = lamb.advance(at, i, p);
    params = fma(p, p, params);
    updates = fma(u, u, updates);
  }
};

// The updates alone, of moments that are written already.
struct LambUpdates {
  const Lamb& lamb;
  mutable float* to;
  template <class G>
  HWY_INLINE void operator()(const At<G>& at, int64_t i) const {
    lamb.update(at.p(i), at.s(0, i), at.s(1, i)).store(to);
    to += kLanes;
  }
};

double sum_lanes(V v) {
  float lanes[kLanes];
  v.store(lanes);
  double sum = 0;
  for (float x : lanes) sum += static_cast<double>(x);
  return sum;
}

// Whether a sum of squares that was made in f32 is right: none overflowed, and what vanished does not count.
bool holds(double sum) { return sum > 0x1p-90 && sum < HUGE_VAL; }

// In f64, for those that are not.
double wide_square(float x) { return static_cast<double>(x) * static_cast<double>(x); }
template <class T>
double wide_squares(const T* x, int64_t n) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {}, rest = 0;
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += wide_square(static_cast<float>(x[i + k]));
  }
  for (; i < n; ++i) rest += wide_square(static_cast<float>(x[i]));
  for (double sum : sums) rest += sum;
  return rest;
}

template <class Rule>
void update(const Rule& rule, const OptimizerTensor& t, int64_t begin, int64_t end) {
  t.grad_dtype == DType::f32 ? update_range<float>(rule, t, begin, end) : update_range<BFloat16>(rule, t, begin, end);
}
void sgd_range(const SgdOptions& o, const OptimizerTensor& t, int64_t begin, int64_t end) {
  update(Sgd(o), t, begin, end);
}
void adam_range(const AdamOptions& o, const OptimizerTensor& t, int64_t begin, int64_t end) {
  update(Adam(o), t, begin, end);
}
void rmsprop_range(const RmspropOptions& o, const OptimizerTensor& t, int64_t begin, int64_t end) {
  update(Rmsprop(o), t, begin, end);
}
void adagrad_range(const AdagradOptions& o, const OptimizerTensor& t, int64_t begin, int64_t end) {
  update(Adagrad(o), t, begin, end);
}
// norms[0] and [1]: sums of squares of the parameters and of the update.
void lamb_moments_range(const LambOptions& o, const OptimizerTensor& t, int64_t begin, int64_t end, double* norms) {
  const Lamb lamb(o);
  norms[0] = norms[1] = 0;
  constexpr int64_t kBlock = 1024;
  static_assert(kBlock % kLanes == 0);
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t stop = std::min(end, i + kBlock);
    const LambMoments rule{lamb};
    update(rule, t, i, stop);
    const double params = sum_lanes(rule.params), updates = sum_lanes(rule.updates);
    norms[0] += holds(params) ? params : wide_squares(t.param + i, stop - i);
    if (holds(updates)) {
      norms[1] += updates;
    } else {
      float wide[kBlock];
      update(LambUpdates{lamb, wide}, t, i, stop);
      norms[1] += wide_squares(wide, stop - i);
    }
  }
}
void lamb_step_range(const LambOptions& o, double ratio, const OptimizerTensor& t, int64_t begin, int64_t end) {
  update(LambStep{Lamb(o), Constant(-o.lr * ratio)}, t, begin, end);
}

template <class T>
double sum_squares(const T* x, int64_t n) {
  constexpr int64_t kBlock = 4096;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    V sum = Constant(0);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const V v = load_wide(x + i);
      sum = fma(v, v, sum);
    }
    const double whole = sum_lanes(sum);
    total += holds(whole) ? whole + wide_squares(x + i, end - i) : wide_squares(x + begin, end - begin);
  }
  return total;
}
double squares_range(const TensorData& t, int64_t begin, int64_t end) {
  if (t.dtype == DType::f32) return sum_squares(static_cast<const float*>(t.data) + begin, end - begin);
  return sum_squares(static_cast<const BFloat16*>(t.data) + begin, end - begin);
}

template <class T>
void scale(T* x, int64_t n, float factor) {
  constexpr int64_t kStep = F::kLanes;
  const F f(factor);
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) store_vec(load_vec(x + i) * f, x + i);
  for (; i < n; ++i) x[i] = T(static_cast<float>(x[i]) * factor);
}
void scale_range(const TensorData& t, float factor, int64_t begin, int64_t end) {
  if (t.dtype == DType::f32) return scale(static_cast<float*>(t.data) + begin, end - begin, factor);
  scale(static_cast<BFloat16*>(t.data) + begin, end - begin, factor);
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
namespace {

HWY_EXPORT(sgd_range);
HWY_EXPORT(adam_range);
HWY_EXPORT(rmsprop_range);
HWY_EXPORT(adagrad_range);
HWY_EXPORT(lamb_moments_range);
HWY_EXPORT(lamb_step_range);
HWY_EXPORT(squares_range);
HWY_EXPORT(scale_range);

constexpr int64_t kChunk = 16 * 1024;  // elements; sums are made per chunk, whatever the number of threads

// The chunks of a list of tensors, numbered through.
template <class T>
class Chunks {
 public:
  Chunks(const T* tensors, int64_t count) : tensors_(tensors), count_(count), starts_(count + 1) {
    starts_[0] = 0;
    for (int64_t k = 0; k < count; ++k) starts_[k + 1] = starts_[k] + (tensors[k].size + kChunk - 1) / kChunk;
  }
  int64_t total() const { return starts_[count_]; }
  int64_t first_of(int64_t tensor) const { return starts_[tensor]; }
  // f(tensor, first element, last element, number of the chunk) for all of them, in parallel.
  template <class F>
  void for_each(F f) const {
    parallel_for(0, total(), 2, [&](int64_t begin, int64_t end) {
      int64_t k = std::upper_bound(starts_.data(), starts_.data() + count_, begin) - starts_.data() - 1;
      for (int64_t c = begin; c < end; ++c) {
        while (c >= starts_[k + 1]) ++k;
        const int64_t from = (c - starts_[k]) * kChunk;
        f(k, from, std::min(tensors_[k].size, from + kChunk), c);
      }
    });
  }

 private:
  const T* tensors_;
  int64_t count_;
  Workspace<int64_t> starts_;
};

void check_dtype(const char* name, DType dtype) {
  DEFT_CHECK(dtype == DType::f32 || dtype == DType::bf16, DTypeError, "{}: found a {} tensor, expected f32 or bf16",
             name, name_of(dtype));
}
void check_tensors(const char* name, const OptimizerTensor* tensors, int64_t count, bool state0, bool state1 = false,
                   bool state2 = false) {
  const bool needed[] = {state0, state1, state2};
  for (int64_t k = 0; k < count; ++k) {
    check_dtype(name, tensors[k].grad_dtype);
    for (int s = 0; s < 3; ++s) {
      DEFT_CHECK(!needed[s] || tensors[k].state[s] || tensors[k].size == 0, ValueError,
                 "{}: tensor {} has no state {}, which these options need; allocate it", name, k, s);
    }
  }
}

}  // namespace

void sgd_update(const OptimizerTensor* tensors, int64_t count, const SgdOptions& options) {
  check_tensors("sgd", tensors, count, options.momentum != 0);
  Chunks(tensors, count).for_each([&](int64_t k, int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(sgd_range)(options, tensors[k], begin, end);
  });
}
void adam_update(const OptimizerTensor* tensors, int64_t count, const AdamOptions& options) {
  check_tensors("adam", tensors, count, true, true, options.amsgrad);
  Chunks(tensors, count).for_each([&](int64_t k, int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(adam_range)(options, tensors[k], begin, end);
  });
}
void rmsprop_update(const OptimizerTensor* tensors, int64_t count, const RmspropOptions& options) {
  check_tensors("rmsprop", tensors, count, true, options.momentum != 0, options.centered);
  Chunks(tensors, count).for_each([&](int64_t k, int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(rmsprop_range)(options, tensors[k], begin, end);
  });
}
void adagrad_update(const OptimizerTensor* tensors, int64_t count, const AdagradOptions& options) {
  check_tensors("adagrad", tensors, count, true);
  Chunks(tensors, count).for_each([&](int64_t k, int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(adagrad_range)(options, tensors[k], begin, end);
  });
}

void lamb_update(const OptimizerTensor* tensors, int64_t count, const LambOptions& options) {
  check_tensors("lamb", tensors, count, true, true);
  const Chunks chunks(tensors, count);
  Workspace<double> norms(2 * chunks.total()), ratios(count);
  chunks.for_each([&](int64_t k, int64_t begin, int64_t end, int64_t chunk) {
    HWY_DYNAMIC_DISPATCH(lamb_moments_range)(options, tensors[k], begin, end, norms.data() + 2 * chunk);
  });
  for (int64_t k = 0; k < count; ++k) {
    double params = 0, updates = 0;
    for (int64_t c = chunks.first_of(k); c < chunks.first_of(k + 1); ++c) {
      params += norms[2 * c];
      updates += norms[2 * c + 1];
    }
    ratios[k] = optimizer_rules::lamb_ratio(params, updates);
  }
  chunks.for_each([&](int64_t k, int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(lamb_step_range)(options, ratios[k], tensors[k], begin, end);
  });
}

double l2_norm(const TensorData* tensors, int64_t count) {
  for (int64_t k = 0; k < count; ++k) check_dtype("l2_norm", tensors[k].dtype);
  const Chunks chunks(tensors, count);
  Workspace<double> squares(chunks.total());
  chunks.for_each([&](int64_t k, int64_t begin, int64_t end, int64_t chunk) {
    squares[chunk] = HWY_DYNAMIC_DISPATCH(squares_range)(tensors[k], begin, end);
  });
  double sum = 0;
  for (int64_t c = 0; c < chunks.total(); ++c) sum += squares[c];
  return std::sqrt(sum);
}

void scale_tensors(const TensorData* tensors, int64_t count, double factor) {
  for (int64_t k = 0; k < count; ++k) check_dtype("scale_tensors", tensors[k].dtype);
  Chunks(tensors, count).for_each([&](int64_t k, int64_t begin, int64_t end, int64_t) {
    HWY_DYNAMIC_DISPATCH(scale_range)(tensors[k], static_cast<float>(factor), begin, end);
  });
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
