// Small and narrow GEMMs without packing, once per SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/gemm_direct.cpp"
#include "kernels/cpu/simd/targets.h"
// Highway after its targets are chosen.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const BFloat16* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), reinterpret_cast<const hwy::bfloat16_t*>(p)));
}
template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const Half* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), reinterpret_cast<const hwy::float16_t*>(p)));
}

template <class T, class Acc>
HWY_INLINE void finish_run(const TypedGemm<T>& g, int64_t i, int64_t j, const Acc* values, int64_t count) {
  for (int64_t q = 0; q < count; ++q) finish(g, i, j + q, values[q], g.accumulate);
}

// Four rows by two vectors, held in registers. b_col is 1.
template <class T, class Acc>
void rows_tile(const TypedGemm<T>& g, int64_t i, int64_t j) {
  const hn::ScalableTag<Acc> d;
  const int64_t w = static_cast<int64_t>(hn::Lanes(d));
  auto c00 = hn::Zero(d), c01 = c00, c10 = c00, c11 = c00, c20 = c00, c21 = c00, c30 = c00, c31 = c00;
  const T* a0 = g.a + i * g.a_row;
  const T* a1 = a0 + g.a_row;
  const T* a2 = a1 + g.a_row;
  const T* a3 = a2 + g.a_row;
  const T* b = g.b + j;
  for (int64_t p = 0; p < g.k; ++p) {
    const auto b0 = load(d, b), b1 = load(d, b + w);
    const int64_t at = p * g.a_col;
    const auto x0 = hn::Set(d, widen(a0[at])), x1 = hn::Set(d, widen(a1[at]));
    const auto x2 = hn::Set(d, widen(a2[at])), x3 = hn::Set(d, widen(a3[at]));
    c00 = hn::MulAdd(x0, b0, c00);
    c01 = hn::MulAdd(x0, b1, c01);
    c10 = hn::MulAdd(x1, b0, c10);
    c11 = hn::MulAdd(x1, b1, c11);
    c20 = hn::MulAdd(x2, b0, c20);
    c21 = hn::MulAdd(x2, b1, c21);
    c30 = hn::MulAdd(x3, b0, c30);
    c31 = hn::MulAdd(x3, b1, c31);
    b += g.b_row;
  }
  HWY_ALIGN Acc out[4][2 * HWY_MAX_BYTES / sizeof(Acc)];
  hn::StoreU(c00, d, out[0]);
  hn::StoreU(c01, d, out[0] + w);
  hn::StoreU(c10, d, out[1]);
  hn::StoreU(c11, d, out[1] + w);
  hn::StoreU(c20, d, out[2]);
  hn::StoreU(c21, d, out[2] + w);
  hn::StoreU(c30, d, out[3]);
  hn::StoreU(c31, d, out[3] + w);
  for (int64_t r = 0; r < 4; ++r) finish_run(g, i + r, j, out[r], 2 * w);
}

// One row, columns [j, j1): adds four rows of b at a time to a buffer that stays in cache.
template <class T, class Acc>
void rows_line(const TypedGemm<T>& g, int64_t i, int64_t j, int64_t j1) {
  const hn::ScalableTag<Acc> d;
  const int64_t w = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kBuffer = 1024;
  HWY_ALIGN Acc sum[kBuffer];
  const T* a = g.a + i * g.a_row;
  for (; j < j1; j += kBuffer) {
    const int64_t count = std::min(kBuffer, j1 - j), whole = count / w * w;
    std::fill(sum, sum + count, Acc(0));
    int64_t p = 0;
    for (; p + 4 <= g.k; p += 4) {
      const Acc s0 = widen(a[p * g.a_col]), s1 = widen(a[(p + 1) * g.a_col]);
      const Acc s2 = widen(a[(p + 2) * g.a_col]), s3 = widen(a[(p + 3) * g.a_col]);
      const auto x0 = hn::Set(d, s0), x1 = hn::Set(d, s1), x2 = hn::Set(d, s2), x3 = hn::Set(d, s3);
      const T* b0 = g.b + p * g.b_row + j;
      const T* b1 = b0 + g.b_row;
      const T* b2 = b1 + g.b_row;
      const T* b3 = b2 + g.b_row;
      for (int64_t q = 0; q < whole; q += w) {
        auto v = hn::Load(d, sum + q);
        v = hn::MulAdd(x0, load(d, b0 + q), v);
        v = hn::MulAdd(x1, load(d, b1 + q), v);
        v = hn::MulAdd(x2, load(d, b2 + q), v);
        v = hn::MulAdd(x3, load(d, b3 + q), v);
        hn::Store(v, d, sum + q);
      }
      for (int64_t q = whole; q < count; ++q) {
        sum[q] += s0 * widen(b0[q]);
        sum[q] += s1 * widen(b1[q]);
        sum[q] += s2 * widen(b2[q]);
        sum[q] += s3 * widen(b3[q]);
      }
    }
    for (; p < g.k; ++p) {
      const Acc s = widen(a[p * g.a_col]);
      const auto x = hn::Set(d, s);
      const T* b = g.b + p * g.b_row + j;
      for (int64_t q = 0; q < whole; q += w) hn::Store(hn::MulAdd(x, load(d, b + q), hn::Load(d, sum + q)), d, sum + q);
      for (int64_t q = whole; q < count; ++q) sum[q] += s * widen(b[q]);
    }
    finish_run(g, i, j, sum, count);
  }
}

template <class T, class Acc>
void direct_rows(const TypedGemm<T>& g, int64_t j0, int64_t j1) {
  const int64_t w2 = 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Acc>()));
  int64_t i = 0;
  for (; i + 4 <= g.m; i += 4) {
    int64_t j = j0;
    for (; j + w2 <= j1; j += w2) rows_tile<T, Acc>(g, i, j);
    if (j < j1) {
      for (int64_t r = 0; r < 4; ++r) rows_line<T, Acc>(g, i + r, j, j1);
    }
  }
  for (; i < g.m; ++i) rows_line<T, Acc>(g, i, j0, j1);
}

// Four dot products with one row of a.
template <class T, class A, class Acc>
void dot4(const A* a, const T* const* b, int64_t k, Acc* out) {
  const hn::ScalableTag<Acc> d;
  const int64_t w = static_cast<int64_t>(hn::Lanes(d));
  const T *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
  auto u0 = hn::Zero(d), u1 = u0, u2 = u0, u3 = u0, v0 = u0, v1 = u0, v2 = u0, v3 = u0;
  int64_t p = 0;
  for (; p + 2 * w <= k; p += 2 * w) {
    const auto x = load(d, a + p), y = load(d, a + p + w);
    u0 = hn::MulAdd(x, load(d, b0 + p), u0);
    u1 = hn::MulAdd(x, load(d, b1 + p), u1);
    u2 = hn::MulAdd(x, load(d, b2 + p), u2);
    u3 = hn::MulAdd(x, load(d, b3 + p), u3);
    v0 = hn::MulAdd(y, load(d, b0 + p + w), v0);
    v1 = hn::MulAdd(y, load(d, b1 + p + w), v1);
    v2 = hn::MulAdd(y, load(d, b2 + p + w), v2);
    v3 = hn::MulAdd(y, load(d, b3 + p + w), v3);
  }
  out[0] = hn::GetLane(hn::SumOfLanes(d, hn::Add(u0, v0)));
  out[1] = hn::GetLane(hn::SumOfLanes(d, hn::Add(u1, v1)));
  out[2] = hn::GetLane(hn::SumOfLanes(d, hn::Add(u2, v2)));
  out[3] = hn::GetLane(hn::SumOfLanes(d, hn::Add(u3, v3)));
  for (; p < k; ++p) {
    const Acc x = widen(a[p]);
    out[0] += x * widen(b0[p]);
    out[1] += x * widen(b1[p]);
    out[2] += x * widen(b2[p]);
    out[3] += x * widen(b3[p]);
  }
}

// Rows [i0, i1), a_row apart at `a`. Four columns at a time, a quarter of the range apart, so that memory is read as
// four streams; all rows follow while the columns are in cache.
template <class T, class A, class Acc>
void dots_rows(const TypedGemm<T>& g, const A* a, int64_t a_row, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  const int64_t apart = (j1 - j0 + 3) / 4;
  for (int64_t j = j0; j < j0 + apart; ++j) {
    const int64_t columns = (j1 - j + apart - 1) / apart;
    const T* b[4];
    for (int64_t c = 0; c < 4; ++c) b[c] = g.b + (j + (c < columns ? c : 0) * apart) * g.b_col;
    for (int64_t i = i0; i < i1; ++i) {
      Acc out[4];
      dot4<T, A, Acc>(a + (i - i0) * a_row, b, g.k, out);
      for (int64_t c = 0; c < columns; ++c) finish(g, i, j + c * apart, out[c], g.accumulate);
    }
  }
}

template <class T, class Acc>
void direct_dots(const TypedGemm<T>& g, int64_t j0, int64_t j1) {
  if (g.a_col == 1) return dots_rows<T, T, Acc>(g, g.a, g.a_row, 0, g.m, j0, j1);
  Acc row[kDirectMaxK];
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t p = 0; p < g.k; ++p) row[p] = widen(g.a[i * g.a_row + p * g.a_col]);
    dots_rows<T, Acc, Acc>(g, row, 0, i, i + 1, j0, j1);
  }
}

template <class T, class Acc>
void direct_strided(const TypedGemm<T>& g, int64_t j0, int64_t j1) {
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = j0; j < j1; ++j) {
      const T* a = g.a + i * g.a_row;
      const T* b = g.b + j * g.b_col;
      Acc sum = 0;
      for (int64_t p = 0; p < g.k; ++p) sum += widen(a[p * g.a_col]) * widen(b[p * g.b_row]);
      finish(g, i, j, sum, g.accumulate);
    }
  }
}

template <class T, class Acc>
void direct(const TypedGemm<T>& g, DirectForm form, int64_t j0, int64_t j1) {
  if (form == DirectForm::rows) return direct_rows<T, Acc>(g, j0, j1);
  if (form == DirectForm::dots) return direct_dots<T, Acc>(g, j0, j1);
  direct_strided<T, Acc>(g, j0, j1);
}

void direct_f32(const TypedGemm<float>& g, DirectForm f, int64_t j0, int64_t j1) { direct<float, float>(g, f, j0, j1); }
void direct_f64(const TypedGemm<double>& g, DirectForm f, int64_t j0, int64_t j1) {
  direct<double, double>(g, f, j0, j1);
}
void direct_bf16(const TypedGemm<BFloat16>& g, DirectForm f, int64_t j0, int64_t j1) {
  direct<BFloat16, float>(g, f, j0, j1);
}
void direct_f16(const TypedGemm<Half>& g, DirectForm f, int64_t j0, int64_t j1) { direct<Half, float>(g, f, j0, j1); }

}  // namespace HWY_NAMESPACE
}  // namespace deft::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(direct_f32);
HWY_EXPORT(direct_f64);
HWY_EXPORT(direct_bf16);
HWY_EXPORT(direct_f16);

void gemm_direct(const TypedGemm<float>& g, DirectForm form, int64_t j0, int64_t j1) {
  HWY_DYNAMIC_DISPATCH(direct_f32)(g, form, j0, j1);
}
void gemm_direct(const TypedGemm<double>& g, DirectForm form, int64_t j0, int64_t j1) {
  HWY_DYNAMIC_DISPATCH(direct_f64)(g, form, j0, j1);
}
void gemm_direct(const TypedGemm<BFloat16>& g, DirectForm form, int64_t j0, int64_t j1) {
  HWY_DYNAMIC_DISPATCH(direct_bf16)(g, form, j0, j1);
}
void gemm_direct(const TypedGemm<Half>& g, DirectForm form, int64_t j0, int64_t j1) {
  HWY_DYNAMIC_DISPATCH(direct_f16)(g, form, j0, j1);
}

}  // namespace deft::cpu::detail
#endif
