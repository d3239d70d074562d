#include "kernels/cpu/attention/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_rows.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/copy/transpose.h"
#include "kernels/cpu/gemm/pack_rows.h"
#include "kernels/cpu/simd/simd-inl.h"
#include "runtime/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

template <class T>
using Full = hn::ScalableTag<T>;
// 16 bytes, for tiles narrower than a vector.
template <class T>
using Short = hn::CappedTag<T, 16 / sizeof(T)>;
template <class D>
using V = hn::Vec<D>;
template <class S>
using C = accumulate_t<S>;
template <class D>
inline constexpr int64_t kStep = hn::MaxLanes(D());

// 2^f for |f| <= 1/2. For f32 to 4e-9, in pairs: a dependent chain of steps takes 15 % longer. Weights that are rounded
// to 16 bits get 4e-6 (`rough`). Beyond that, a Neoverse V1 is limited by the number of operations: neither longer
// unrolling, constants from memory nor another order of the instructions came below 1.7 cycles per value.
template <bool rough, class D>
HWY_INLINE V<D> exp2_fraction(D d, V<D> f) {
  const auto c = [&](auto v) HWY_ATTR { return hn::Set(d, static_cast<hn::TFromD<D>>(v)); };
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    constexpr double kTerms[] = {0x1.816193166d0f9p-40, 0x1.c3bd650fc2986p-36,
                                 0x1.e8cac7351bb25p-32, 0x1.e4cf5158b8ecap-28,
                                 0x1.b5253d395e7c4p-24, 0x1.62c0223a5c824p-20,
                                 0x1.ffcbfc588b0c7p-17, 0x1.430912f86c787p-13,
                                 0x1.5d87fe78a6731p-10, 0x1.3b2ab6fba4e77p-7,
                                 0x1.c6b08d704a0cp-5,   0x1.ebfbdff82c58fp-3,
                                 0x1.62e42fefa39efp-1,  1.0};
    auto p = c(kTerms[0]);
    for (size_t i = 1; i < std::size(kTerms); ++i) p = hn::MulAdd(p, f, c(kTerms[i]));
    return p;
  } else if constexpr (rough) {
    const auto f2 = hn::Mul(f, f), low = hn::MulAdd(c(0x1.62e0dcp-1f), f, c(0x1.ffffe8p-1f));
    const auto high = hn::MulAdd(c(0x1.ca144p-5f), f, c(0x1.ec06dap-3f));
    return hn::MulAdd(hn::MulAdd(c(0x1.3997d6p-7f), f2, high), f2, low);
  } else {
    const auto f2 = hn::Mul(f, f), low = hn::MulAdd(c(0x1.62e430p-1f), f, c(1));
    const auto mid = hn::MulAdd(c(0x1.c6af00p-5f), f, c(0x1.ebfbdep-3f));
    const auto high = hn::MulAdd(c(0x1.5f30d8p-10f), f, c(0x1.3b2c70p-7f));
    return hn::MulAdd(hn::MulAdd(hn::MulAdd(c(0x1.428f68p-13f), f2, high), f2, mid), f2, low);
  }
}

// The larger one, t if it is NaN.
template <class D>
HWY_INLINE V<D> at_least(D d, V<D> low, V<D> t) {
#if HWY_TARGET == HWY_NEON
  static_cast<void>(d);
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return V<D>(vmaxq_f32(low.raw, t.raw));  // Highway's drops NaN
  } else {
    return V<D>(vmaxq_f64(low.raw, t.raw));
  }
#elif HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  static_cast<void>(d);
  return hn::Max(low, t);  // MAXPS: the second operand where one is NaN
#else
  static_cast<void>(d);
  return hn::IfThenElse(hn::Lt(t, low), low, t);
#endif
}

// 2^t for t up to about 1, to 1 ulp; 0 from half a step below the normal numbers, NaN for NaN.
template <bool rough, class D>
HWY_INLINE V<D> exp2_below(D d, V<D> t) {
  using T = hn::TFromD<D>;
  constexpr int kBits = sizeof(T) == 4 ? 23 : 52;
  constexpr T kBias = sizeof(T) == 4 ? 127 : 1023;
  // The sum's low bits are the nearest integer plus the bias of an exponent.
  const auto magic = hn::Set(d, T(1.5) * (sizeof(T) == 4 ? T(0x1p23) : T(0x1p52)) + kBias);
  t = at_least(d, hn::Set(d, -kBias), t);
  const auto z = hn::Add(t, magic);
  const hn::Rebind<hwy::MakeUnsigned<T>, D> du;
  const auto power = hn::BitCast(d, hn::ShiftLeft<kBits>(hn::BitCast(du, z)));
  const auto f = hn::Sub(t, hn::Sub(z, magic));
  return hn::Mul(exp2_fraction<rough>(d, f), power);
}

// ---- A group of rows of one column of vectors, to a panel.

// Two rows as pairs of bf16, ties away from zero. NaNs here come from arithmetic or from bf16: rounding cannot turn one
// into a number.
template <class D>
HWY_INLINE auto bf16_pair(D d, V<D> first, V<D> second) {
  const hn::Rebind<uint32_t, D> du;
  static_cast<void>(d);
  const auto half = hn::Set(du, 0x8000u);
  const auto low = hn::Add(hn::BitCast(du, first), half), high = hn::Add(hn::BitCast(du, second), half);
#if HWY_TARGET == HWY_NEON
  const uint16x8_t odd = vtrn2q_u16(vreinterpretq_u16_u32(low.raw), vreinterpretq_u16_u32(high.raw));
  return V<decltype(du)>(vreinterpretq_u32_u16(odd));
#else
  return hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(du, 0xffff0000u)));
#endif
}

// The type in a panel, and how many values of k are contiguous there.
template <class T>
struct SamePanel {
  using Value = T;
  static constexpr int kGroup = 1;
  static constexpr bool kRough = false;
  template <class D>
  static HWY_INLINE void put(D d, const V<D>* y, T* out) {
    hn::StoreU(y[0], d, out);
  }
  template <class D>
  static HWY_INLINE void put_row(D d, V<D> y, T* out) {
    hn::StoreU(y, d, out);
  }
};
template <int group>
struct HalfPanel {
  using Value = Half;
  static constexpr int kGroup = group;
  static constexpr bool kRough = true;
  template <class D>
  static HWY_INLINE void put(D d, const V<D>* y, Half* out) {
    if constexpr (kStep<D> != kStep<Full<float>>) {
      float lanes[kStep<D>];
      for (int g = 0; g < group; ++g) {
        hn::StoreU(y[g], d, lanes);
        for (int64_t i = 0; i < kStep<D>; ++i) out[i * group + g] = static_cast<Half>(lanes[i]);
      }
    } else if constexpr (group == 1) {
      store_vec(Vec<float>(y[0]), out);
    } else {
      const hn::Rebind<uint32_t, D> du;
      const auto low = hn::PromoteTo(du, half_bits(Vec<float>(y[0])));
      const auto high = hn::PromoteTo(du, half_bits(Vec<float>(y[1])));
      hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), du, reinterpret_cast<uint32_t*>(out));
    }
  }
  template <class D>
  static HWY_INLINE void put_row(D d, V<D> y, Half* out) {
    HalfPanel<1>::put(d, &y, out);
  }
};
template <int group>
struct BFloat16Panel {
  using Value = BFloat16;
  static constexpr int kGroup = group;
  static constexpr bool kRough = true;
  template <class D>
  static HWY_INLINE void put(D d, const V<D>* y, BFloat16* to) {
    const hn::Rebind<uint32_t, D> du;
    uint32_t* out = reinterpret_cast<uint32_t*>(to);
    if constexpr (group == 2) {
      hn::StoreU(bf16_pair(d, y[0], y[1]), du, out);
    } else {
      hn::StoreInterleaved2(bf16_pair(d, y[0], y[1]), bf16_pair(d, y[2], y[3]), du, out);
    }
  }
  template <class D>
  static HWY_INLINE void put_row(D d, V<D> y, BFloat16* to) {  // rounded as in a pair
    const hn::Rebind<uint16_t, D> d16;
    const auto upper = hn::ShiftRight<16>(bf16_pair(d, hn::Zero(d), y));
    hn::StoreU(hn::TruncateTo(d16, upper), d16, reinterpret_cast<uint16_t*>(to));
  }
};

// ---- Passes. D divides the width.
template <class D>
void max_columns(int width, const ScoreRows<hn::TFromD<D>>& r, hn::TFromD<D>* top) {
  const D d;
  const auto scale = hn::Set(d, r.scale);
  for (int64_t j = 0; j < width; j += kStep<D>) {
    const auto* s = r.scores + j;
    auto m0 = hn::LoadU(d, top + j), m1 = m0, m2 = m0, m3 = m0;
    int64_t i = 0;
    for (; i + 4 <= r.rows; i += 4, s += 4 * width) {
      m0 = hn::Max(m0, hn::Mul(hn::LoadU(d, s), scale));
      m1 = hn::Max(m1, hn::Mul(hn::LoadU(d, s + width), scale));
      m2 = hn::Max(m2, hn::Mul(hn::LoadU(d, s + 2 * width), scale));
      m3 = hn::Max(m3, hn::Mul(hn::LoadU(d, s + 3 * width), scale));
    }
    for (; i < r.rows; ++i, s += width) m0 = hn::Max(m0, hn::Mul(hn::LoadU(d, s), scale));
    hn::StoreU(hn::Max(hn::Max(m0, m1), hn::Max(m2, m3)), d, top + j);
  }
}

template <class D>
void add_mask(int width, const ScoreRows<hn::TFromD<D>>& r, const hn::TFromD<D>* mask) {
  const D d;
  const auto scale = hn::Set(d, r.scale), hidden = hn::Set(d, -std::numeric_limits<hn::TFromD<D>>::infinity());
  for (int64_t i = 0; i < r.rows * width; i += kStep<D>) {
    const auto m = hn::LoadU(d, mask + i), s = hn::MulAdd(hn::LoadU(d, r.scores + i), scale, m);
    hn::StoreU(hn::IfThenElse(hn::Eq(m, hidden), hidden, s), d, r.scores + i);
  }
}

template <class D, bool after>
void hide_columns(int width, const ScoreRows<hn::TFromD<D>>& r, int64_t first) {
  using T = hn::TFromD<D>;
  const D d;
  const auto scale = hn::Set(d, r.scale), hidden = hn::Set(d, -std::numeric_limits<T>::infinity());
  T* s = r.scores;
  for (int64_t i = 0; i < r.rows; ++i) {
    const auto row = hn::Set(d, static_cast<T>(first + i));
    for (int64_t j = 0; j < width; j += kStep<D>, s += kStep<D>) {
      const auto column = hn::Iota(d, static_cast<T>(j));
      const auto out = after ? hn::Gt(column, row) : hn::Lt(column, row);
      hn::StoreU(hn::IfThenElse(out, hidden, hn::Mul(hn::LoadU(d, s), scale)), d, s);
    }
  }
}
template <class D>
void hide(int width, const ScoreRows<hn::TFromD<D>>& r, int64_t first, bool after) {
  after ? hide_columns<D, true>(width, r, first) : hide_columns<D, false>(width, r, first);
}

// A function: as a lambda it gives GCC 12 an internal error for AVX2.
template <class Out, bool scaled, class D>
HWY_INLINE V<D> exp_term(D d, const hn::TFromD<D>* score, V<D> scale, V<D> top) {
  const auto s = hn::LoadU(d, score);
  return exp2_below<Out::kRough>(d, scaled ? hn::Sub(s, top) : hn::MulSub(s, scale, top));
}
template <class D, class Out, bool scaled, bool drops>
void exp_columns_of(int width, const ScoreRows<hn::TFromD<D>>& r, const hn::TFromD<D>* top, const hn::TFromD<D>* keep,
                    hn::TFromD<D>* sum, void* out) {
  const D d;
  constexpr int kGroup = Out::kGroup;
  const auto scale = hn::Set(d, r.scale);
  for (int64_t j = 0; j < width; j += kStep<D>) {
    const auto* s = r.scores + j;
    const auto* k = keep + (drops ? j : 0);
    auto* to = static_cast<typename Out::Value*>(out) + j * kGroup;
    const auto t = hn::LoadU(d, top + j);
    auto even = hn::LoadU(d, sum + j), odd = hn::Zero(d);
    int64_t i = 0;
    for (; i + 4 <= r.rows; i += 4, s += 4 * width, to += 4 * width) {
      V<D> y[4];
      for (int g = 0; g < 4; ++g) y[g] = exp_term<Out, scaled>(d, s + g * width, scale, t);
      even = hn::Add(even, hn::Add(y[0], y[2]));
      odd = hn::Add(odd, hn::Add(y[1], y[3]));
      if constexpr (drops) {
        for (int g = 0; g < 4; ++g, k += width) y[g] = hn::Mul(y[g], hn::LoadU(d, k));
      }
      for (int g = 0; g < 4; g += kGroup) Out::put(d, y + g, to + g * width);
    }
    for (; i < r.rows; i += kGroup, to += kGroup * width) {
      V<D> y[kGroup];
      for (int g = 0; g < kGroup; ++g, s += width) {
        y[g] = hn::Zero(d);
        if (i + g < r.rows) y[g] = exp_term<Out, scaled>(d, s, scale, t);
        even = hn::Add(even, y[g]);
        if constexpr (drops) {
          if (i + g < r.rows) y[g] = hn::Mul(y[g], hn::LoadU(d, k));
          k += width;
        }
      }
      Out::put(d, y, to);
    }
    hn::StoreU(hn::Add(even, odd), d, sum + j);
  }
}
template <class D, class Out>
void exp_columns(int width, const ScoreRows<hn::TFromD<D>>& r, const hn::TFromD<D>* top, const hn::TFromD<D>* keep,
                 hn::TFromD<D>* sum, void* out) {
  if (keep) {
    r.scale == 1 ? exp_columns_of<D, Out, true, true>(width, r, top, keep, sum, out)
                 : exp_columns_of<D, Out, false, true>(width, r, top, keep, sum, out);
  } else {
    r.scale == 1 ? exp_columns_of<D, Out, true, false>(width, r, top, keep, sum, out)
                 : exp_columns_of<D, Out, false, false>(width, r, top, keep, sum, out);
  }
}

// Rows [i, i + count) of a column of vectors; `count` is 4, or less at the end.
template <class D, class Out, bool drops, class T>
HWY_INLINE void grad_group(const ScoreRows<T>& r, const GradRows<T>& g, int64_t width, int64_t i, int64_t j,
                           int64_t count) {
  const D d;
  constexpr int kGroup = Out::kGroup;
  const auto scale = hn::Set(d, r.scale);
  V<D> p[4], ds[4];
  for (int64_t n = 0; n < 4; ++n) {
    p[n] = ds[n] = hn::Zero(d);
    if (n >= count) continue;
    const int64_t at = (i + n) * width + j;
    const auto t = hn::MulSub(hn::LoadU(d, r.scores + at), scale, hn::Set(d, g.log_sum[i + n]));
    p[n] = exp2_below<Out::kRough>(d, t);
    const auto dp = hn::LoadU(d, g.dp + at), dot = hn::Set(d, g.dot[i + n]);
    if constexpr (drops) {
      const auto keep = hn::LoadU(d, g.keep + (i + n) * g.ds_row + j);
      ds[n] = hn::Mul(p[n], hn::MulSub(dp, keep, dot));
      p[n] = hn::Mul(p[n], keep);
    } else {
      ds[n] = hn::Mul(p[n], hn::Sub(dp, dot));
    }
  }
  auto* p_out = static_cast<typename Out::Value*>(g.p_out) + i * width + j * kGroup;
  auto* ds_out = static_cast<typename Out::Value*>(g.ds_out) + i * width + j * kGroup;
  for (int64_t n = 0; n < count; n += kGroup) {
    Out::put(d, p + n, p_out + n * width);
    Out::put(d, ds + n, ds_out + n * width);
  }
  auto* rows = static_cast<typename Out::Value*>(g.ds) + i * g.ds_row + j;
  for (int64_t n = 0; n < count; ++n) Out::put_row(d, ds[n], rows + n * g.ds_row);
}
template <class D, class Out, bool drops>
void grad_rows_of(int width, const ScoreRows<hn::TFromD<D>>& r, const GradRows<hn::TFromD<D>>& g) {
  const int64_t whole = r.rows / 4 * 4;
  for (int64_t j = 0; j < width; j += kStep<D>) {
    for (int64_t i = 0; i < whole; i += 4) grad_group<D, Out, drops>(r, g, width, i, j, 4);
    if (whole < r.rows) grad_group<D, Out, drops>(r, g, width, whole, j, r.rows - whole);
  }
}
template <class D, class Out>
void grad_rows(int width, const ScoreRows<hn::TFromD<D>>& r, const GradRows<hn::TFromD<D>>& g) {
  g.keep ? grad_rows_of<D, Out, true>(width, r, g) : grad_rows_of<D, Out, false>(width, r, g);
}

template <class D>
void scale_columns(int width, hn::TFromD<D>* x, int64_t rows, const hn::TFromD<D>* factor) {
  const D d;
  for (int64_t i = 0; i < rows; ++i, x += width) {
    for (int64_t j = 0; j < width; j += kStep<D>) {
      hn::StoreU(hn::Mul(hn::LoadU(d, x + j), hn::LoadU(d, factor + j)), d, x + j);
    }
  }
}

// With the library's log2, one value at a time, the forward pass of 128 keys takes 2 % longer.
template <class T>
void end_columns(int width, const T* top, const T* sum, T* factor, T* log_sum) {
  constexpr int kLanes = static_cast<int>(Vec<T>::kLanes);
  const Vec<T> zero(0), one(1);
  int j = 0;
  for (; j + kLanes <= width; j += kLanes) {
    const Vec<T> s = load_vec(sum + j);
    store_vec(select(s == zero, zero, one / s), factor + j);
    store_vec(load_vec(top + j) + log2(s), log_sum + j);
  }
  for (; j < width; ++j) {
    factor[j] = sum[j] == 0 ? T(0) : 1 / sum[j];
    log_sum[j] = top[j] + std::log2(sum[j]);
  }
}

// Transposes: out[j][i] = x[i][j].
inline void transpose_floats(int width, const float* x, int64_t rows, int64_t lines, float* out, int64_t out_row) {
  constexpr int64_t kSize = sizeof(float);
  transpose_block({.size = kSize,
                   .src = reinterpret_cast<const char*>(x),
                   .src_step = kSize,
                   .src_stride = width * kSize,
                   .dst = reinterpret_cast<char*>(out),
                   .dst_stride = out_row * kSize,
                   .rows = lines,
                   .cols = rows});
}
template <class S, class T>
HWY_INLINE void store_row(const T* x, int64_t n, T factor, S* out) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  int64_t i = 0;
  for (const Vec<T> f(factor); i + kLanes <= n; i += kLanes) store_vec(load_vec(x + i) * f, out + i);
  for (; i < n; ++i) out[i] = static_cast<S>(x[i] * factor);
}
// Through a buffer in L1, some columns of out at a time.
template <class S>
void store_transposed(int width, const float* x, int64_t rows, const float* factor, int64_t lines, S* out,
                      int64_t out_row) {
  constexpr int64_t kColumns = 64;
  alignas(64) float transposed[kMostLines * kColumns];
  for (int64_t i = 0; i < rows; i += kColumns) {
    const int64_t count = std::min(kColumns, rows - i);
    transpose_floats(width, x + i * width, count, lines, transposed, kColumns);
    for (int64_t j = 0; j < lines; ++j) store_row(transposed + j * kColumns, count, factor[j], out + j * out_row + i);
  }
}
template <class S, class T>
void store_typed(int width, const T* x, int64_t rows, const T* factor, int64_t lines, S* out, int64_t out_row) {
  if constexpr (sizeof(T) == 4) {
    if (rows >= 4) return store_transposed(width, x, rows, factor, lines, out, out_row);
  }
  for (int64_t j = 0; j < lines; ++j, out += out_row) {
    for (int64_t i = 0; i < rows; ++i) out[i] = static_cast<S>(x[i * width + j] * factor[j]);
  }
}
// Calls f with a null pointer of the stored type; T is the type it is computed in.
template <class T, class F>
HWY_INLINE auto with_type(DType dtype, const F& f) {
  if constexpr (sizeof(T) == 8) {
    return f(static_cast<double*>(nullptr));
  } else if (dtype == DType::f32) {
    return f(static_cast<float*>(nullptr));
  } else {
    return dtype == DType::bf16 ? f(static_cast<BFloat16*>(nullptr)) : f(static_cast<Half*>(nullptr));
  }
}
template <class T>
void store_lines(int width, const T* x, int64_t rows, const T* factor, int64_t lines, DType dtype, void* out,
                 int64_t out_row) {
  with_type<T>(dtype, [&]<class S>(S*) { store_typed(width, x, rows, factor, lines, static_cast<S*>(out), out_row); });
}
template <class T>
void store_rows(const T* x, int64_t x_row, int64_t rows, int64_t n, T factor, DType dtype, void* out, int64_t out_row) {
  with_type<T>(dtype, [&]<class S>(S*) HWY_ATTR {
    for (int64_t i = 0; i < rows; ++i) store_row(x + i * x_row, n, factor, static_cast<S*>(out) + i * out_row);
  });
}

// Sum of x * y, for types of x and y that are computed in the same type.
template <class S, class X>
HWY_INLINE C<S> dot_typed(const X* x, const S* y, int64_t n) {
  constexpr int64_t kLanes = Vec<C<S>>::kLanes;
  Vec<C<S>> even(0), odd(0);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    even = fma(load_vec(x + i), load_vec(y + i), even);
    odd = fma(load_vec(x + i + kLanes), load_vec(y + i + kLanes), odd);
  }
  const typename Vec<C<S>>::D d;
  C<S> sum = hn::GetLane(hn::SumOfLanes(d, (even + odd).raw));
  for (; i < n; ++i) sum += static_cast<C<S>>(x[i]) * static_cast<C<S>>(y[i]);
  return sum;
}

template <class S>
void add_rows_typed(const C<S>* w, const S* y, int64_t y_row, int64_t rows, int64_t n, C<S>* out) {
  using X = Vec<C<S>>;
  constexpr int64_t kLanes = X::kLanes;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    X a0(0), a1(0), a2(0), a3(0), b0(0), b1(0), b2(0), b3(0);
    const S* from = y + i;
    const auto add = [&](X f, const S* p, X& s0, X& s1, X& s2, X& s3) HWY_ATTR {
      s0 = fma(f, load_vec(p), s0);
      s1 = fma(f, load_vec(p + kLanes), s1);
      s2 = fma(f, load_vec(p + 2 * kLanes), s2);
      s3 = fma(f, load_vec(p + 3 * kLanes), s3);
    };
    int64_t j = 0;
    for (; j + 2 <= rows; j += 2, from += 2 * y_row) {
      add(X(w[j]), from, a0, a1, a2, a3);
      add(X(w[j + 1]), from + y_row, b0, b1, b2, b3);
    }
    if (j < rows) add(X(w[j]), from, a0, a1, a2, a3);
    (X::load(out + i) + a0 + b0).store(out + i);
    (X::load(out + i + kLanes) + a1 + b1).store(out + i + kLanes);
    (X::load(out + i + 2 * kLanes) + a2 + b2).store(out + i + 2 * kLanes);
    (X::load(out + i + 3 * kLanes) + a3 + b3).store(out + i + 3 * kLanes);
  }
  for (int64_t j = 0; i < n && j < rows; ++j) {
    for (int64_t c = i; c < n; ++c) out[c] += w[j] * static_cast<C<S>>(y[j * y_row + c]);
  }
}

template <class T>
T dot(DType dtype, const void* x, const void* y, int64_t n) {
  return with_type<T>(
      dtype, [&]<class S>(S*) HWY_ATTR { return dot_typed(static_cast<const S*>(x), static_cast<const S*>(y), n); });
}
template <class T>
void row_dots(DType dtype, const T* x, const void* y, int64_t y_row, int64_t rows, int64_t n, T* out) {
  with_type<T>(dtype, [&]<class S>(S*) HWY_ATTR {
    for (int64_t j = 0; j < rows; ++j) out[j] = dot_typed(x, static_cast<const S*>(y) + j * y_row, n);
  });
}
template <class T>
void add_rows(DType dtype, const T* w, const void* y, int64_t y_row, int64_t rows, int64_t n, T* out) {
  with_type<T>(dtype, [&]<class S>(S*) HWY_ATTR { add_rows_typed(w, static_cast<const S*>(y), y_row, rows, n, out); });
}

template <class D, class Out>
RowPasses<hn::TFromD<D>> make_passes() {
  using T = hn::TFromD<D>;
  return {max_columns<D>,    add_mask<D>,      hide<D>,        exp_columns<D, Out>,
          grad_rows<D, Out>, scale_columns<D>, store_lines<T>, store_rows<T>,
          end_columns<T>,    dot<T>,           row_dots<T>,    add_rows<T>};
}
template <class T, class Out>
RowPasses<T> passes_for_width(int width) {
  if (width % kStep<Full<T>> == 0) return make_passes<Full<T>, Out>();
  if (width % kStep<Short<T>> == 0) return make_passes<Short<T>, Out>();
  return {};
}

RowPasses<float> passes_f32(const GemmTile& tile) {
  const int group = tile.b_group;
  const bool whole = (tile.panel == Panel::f32 && group == 1) || tile.panel == Panel::split;
  if (whole) return passes_for_width<float, SamePanel<float>>(tile.nr);
  if (tile.panel == Panel::f16 && group == 1) return passes_for_width<float, HalfPanel<1>>(tile.nr);
  if (tile.panel == Panel::f16 && group == 2) return passes_for_width<float, HalfPanel<2>>(tile.nr);
  if (tile.panel == Panel::bf16 && group == 2) return passes_for_width<float, BFloat16Panel<2>>(tile.nr);
  if (tile.panel == Panel::bf16 && group == 4) return passes_for_width<float, BFloat16Panel<4>>(tile.nr);
  return {};
}
RowPasses<double> passes_f64(const GemmTile& tile) {
  if (tile.panel == Panel::f64 && tile.b_group == 1) return passes_for_width<double, SamePanel<double>>(tile.nr);
  return {};
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(passes_f32);
HWY_EXPORT(passes_f64);

template <>
RowPasses<float> row_passes<float>(const GemmTile& tile) {
  return HWY_DYNAMIC_DISPATCH(passes_f32)(tile);
}
template <>
RowPasses<double> row_passes<double>(const GemmTile& tile) {
  return HWY_DYNAMIC_DISPATCH(passes_f64)(tile);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
