// GEMMs of small f32 matrices, once per SIMD target: both operands are read in place. Each element is one chain of
// multiply-adds in order of k, as in the tiles of larger GEMMs.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")  // it spills accumulators
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/gemm_small.cpp"
#include "kernels/cpu/simd/targets.h"
// Highway after its targets are chosen.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/cpu/gemm/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::VFromD<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());
// Masked loads and stores touch nothing beyond the part. Targets without them copy a b with an incomplete vector first.
constexpr bool kHasParts = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_SCALAR;
constexpr int kTileRows = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 8 : 4;  // 32 registers

// The first `count` of a vector's values.
struct Part {
  explicit Part(int64_t count_of) : count(count_of), mask(hn::FirstN(D(), static_cast<size_t>(count_of))) {}
  bool stores() const { return kHasParts || count == kLanes; }
  HWY_INLINE V load(const float* p) const { return kHasParts ? hn::MaskedLoad(mask, D(), p) : hn::LoadU(D(), p); }
  HWY_INLINE void store(V v, float* p) const {
    // AMD's AVX2 is slow to store a part.
    if (!kHasParts || (HWY_TARGET == HWY_AVX2 && count == kLanes)) return hn::StoreU(v, D(), p);
    hn::BlendedStore(v, mask, D(), p);
  }
  int64_t count;
  decltype(hn::FirstN(D(), 0)) mask;
};

bool is_plain(const TypedGemm<float>& g) { return g.c_col == 1 && !g.bias && !g.accumulate; }

// c(i, j ...) = the first `count` of `sums` plus the terms of the epilogue.
HWY_NOINLINE void finish_values(const TypedGemm<float>& g, int64_t i, int64_t j, int64_t count, const float* sums) {
  float* c = g.c + i * g.c_row + j * g.c_col;
  for (int64_t q = 0; q < count; ++q) {
    float x = sums[q];
    if (g.bias) x += g.bias[g.bias_on_rows ? i : j + q];
    if (g.accumulate) x += c[q * g.c_col];
    c[q * g.c_col] = x;
  }
}
HWY_NOINLINE void finish_row(const TypedGemm<float>& g, int64_t i, int64_t j, int64_t count, const float* sums) {
  for (; count > 0; count -= kLanes, j += kLanes, sums += kLanes) {
    const Part part(std::min(kLanes, count));
    if (g.c_col != 1 || !part.stores()) {
      finish_values(g, i, j, part.count, sums);
      continue;
    }
    float* c = g.c + i * g.c_row + j;
    V v = hn::Load(D(), sums);
    if (g.bias) v = hn::Add(v, g.bias_on_rows ? hn::Set(D(), g.bias[i]) : part.load(g.bias + j));
    if (g.accumulate) v = hn::Add(v, part.load(c));
    part.store(v, c);
  }
}

// GCC 12 sends accumulators through the stack when they live in an array: one variable each.
#define DEFT_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define DEFT_ZERO(r) V s##r##0 = hn::Zero(d), s##r##1 = s##r##0;
#define DEFT_OFFSET(r) const int64_t at##r = std::min<int64_t>(r, rows - 1) * g.a_row;
#define DEFT_STEP(r)                                           \
  if constexpr (r < kRows) {                                   \
    const V x = hn::Set(d, a[at##r]);                          \
    s##r##0 = hn::MulAdd(x, b0, s##r##0);                      \
    if constexpr (kWide) s##r##1 = hn::MulAdd(x, b1, s##r##1); \
  }
#define DEFT_STORE(r)                                             \
  if constexpr (r < kRows) {                                      \
    if (r < rows) {                                               \
      float* c = g.c + (i + r) * g.c_row + j;                     \
      kWide ? hn::StoreU(s##r##0, d, c) : last.store(s##r##0, c); \
      if constexpr (kWide) last.store(s##r##1, c + kLanes);       \
    }                                                             \
  }
#define DEFT_KEEP(r)                                              \
  if constexpr (r < kRows) {                                      \
    hn::Store(s##r##0, d, sums[r]);                               \
    if constexpr (kWide) hn::Store(s##r##1, d, sums[r] + kLanes); \
  }

// kRows rows by one or two vectors, held in registers. b has b_col == 1. Rows beyond the last one repeat it.
template <int kRows, bool kWide>
HWY_NOINLINE void multiply(const TypedGemm<float>& g, int64_t i, int64_t j) {
  const D d;
  const int64_t rows = std::min<int64_t>(kRows, g.m - i);
  const Part last(std::min(kLanes, g.n - j - (kWide ? kLanes : 0)));
  DEFT_EACH_ROW(DEFT_OFFSET)
  DEFT_EACH_ROW(DEFT_ZERO)
  const float *a = g.a + i * g.a_row, *b = g.b + j;
  for (int64_t p = g.k; p > 0; --p) {
    const V b0 = kWide ? hn::LoadU(d, b) : last.load(b), b1 = kWide ? last.load(b + kLanes) : b0;
    DEFT_EACH_ROW(DEFT_STEP)
    a += g.a_col;
    b += g.b_row;
  }
  if (is_plain(g) && last.stores()) {
    DEFT_EACH_ROW(DEFT_STORE)
    return;
  }
  HWY_ALIGN float sums[kRows][kWide ? 2 * kLanes : kLanes];
  DEFT_EACH_ROW(DEFT_KEEP)
  const int64_t columns = last.count + (kWide ? kLanes : 0);
  for (int64_t r = 0; r < rows; ++r) finish_row(g, i + r, j, columns, sums[r]);
}

template <int kRows>
void multiply_rows(const TypedGemm<float>& g, int64_t i) {
  int64_t j = 0;
  for (; j + kLanes < g.n; j += 2 * kLanes) multiply<kRows, true>(g, i, j);
  if (j < g.n) multiply<kRows, false>(g, i, j);
}

void multiply_all(const TypedGemm<float>& g) {
  int64_t i = 0;
  for (; i + 4 < g.m; i += kTileRows) multiply_rows<kTileRows>(g, i);
  if (i < g.m) multiply_rows<4>(g, i);
}

#if HWY_TARGET != HWY_SCALAR
// Loads four values from each of every fourth row of lines.
template <class B>
HWY_INLINE hn::VFromD<B> load_blocks(B d, const float* const* lines, int64_t p) {
  if constexpr (hn::MaxLanes(B()) == 4) {
    return hn::LoadU(d, lines[0] + p);
  } else {
    const hn::Half<B> half;
    const auto low = load_blocks(half, lines, p);
    return hn::Combine(d, load_blocks(half, lines + hn::MaxLanes(half), p), low);
  }
}

// Transposes four values of k of kLanes columns of b into four rows.
HWY_INLINE void transpose_4_rows(const float* const* lines, int64_t p, float* to, int64_t row) {
  const D d;
  const hn::RepartitionToWide<D> pairs;
  const V l0 = load_blocks(d, lines, p), l1 = load_blocks(d, lines + 1, p);
  const V l2 = load_blocks(d, lines + 2, p), l3 = load_blocks(d, lines + 3, p);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, l0, l1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, l2, l3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, l0, l1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, l2, l3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + row);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * row);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * row);
}
#endif

// Transposes b, whose columns are contiguous over k. The last column is repeated to the end of its vector.
void copy_lines(const TypedGemm<float>& g, float* to, int64_t row) {
  for (int64_t j = 0; j < row; j += kLanes) {
    const float* lines[kLanes];
    for (int64_t q = 0; q < kLanes; ++q) lines[q] = g.b + std::min(j + q, g.n - 1) * g.b_col;
    int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; p + 4 <= g.k; p += 4) transpose_4_rows(lines, p, to + p * row + j, row);
#endif
    for (; p < g.k; ++p) {
      for (int64_t q = 0; q < kLanes; ++q) to[p * row + j + q] = lines[q][p];
    }
  }
}

// Copies b to rows of whole vectors. Values beyond its columns are multiplied and never stored.
void copy_right(const TypedGemm<float>& g, float* to, int64_t row) {
  if (g.b_row == 1) return copy_lines(g, to, row);
  for (int64_t p = 0; p < g.k; ++p) {
    float* out = to + p * row;
    const float* b = g.b + p * g.b_row;
    int64_t j = 0;
    if (g.b_col == 1) {
      for (; j + kLanes <= g.n; j += kLanes) hn::Store(hn::LoadU(D(), b + j), D(), out + j);
    }
    for (; j < row; ++j) out[j] = j < g.n ? b[j * g.b_col] : 0;
  }
}

// Rows that lie far apart map to few sets of L1: they are copied if they are read often.
bool reads_in_place(const TypedGemm<float>& g) {
  const bool near = std::abs(g.b_row) <= 2 * g.n || g.m <= 2 * kTileRows;
  return g.b_col == 1 && near && (kHasParts || g.n % kLanes == 0);
}

void small_gemms(const TypedGemm<float>& first, const GemmBatch& batch) {
  HWY_ALIGN float copy[kSmallRight];
  const int64_t row = (first.n + kLanes - 1) / kLanes * kLanes;
  const bool in_place = reads_in_place(first);
  TypedGemm<float> g = first;
  for (int64_t s = 0; s < batch.count; ++s) {
    g.a = first.a + s * batch.a, g.c = first.c + s * batch.c;
    if (in_place) {
      g.b = first.b + s * batch.b;
    } else if (s == 0 || batch.b != 0) {
      TypedGemm<float> from = first;
      from.b = first.b + s * batch.b;
      copy_right(from, copy, row);
      g.b = copy, g.b_row = row;
    }
    multiply_all(g);
  }
}

// Writes the rows of c one after the other.
void outer_rows(const TypedGemm<float>& g, int64_t i0, int64_t i1) {
  const D d;
  const int64_t whole = g.n / kLanes * kLanes;
  const Part last(g.n - whole);
  HWY_ALIGN float rest[kLanes] = {};
  std::copy(g.b + whole, g.b + g.n, rest);
  for (int64_t i = i0; i < i1; ++i) {
    const V x = hn::Set(d, g.a[i * g.a_row]);
    float* c = g.c + i * g.c_row;
    for (int64_t j = 0; j < whole; j += kLanes) {
      hn::StoreU(hn::MulAdd(x, hn::LoadU(d, g.b + j), hn::Zero(d)), d, c + j);
    }
    if (last.count == 0) continue;
    HWY_ALIGN float products[kLanes];
    const V v = hn::MulAdd(x, hn::Load(d, rest), hn::Zero(d));
    hn::Store(v, d, products);
    last.stores() ? last.store(v, c + whole) : finish_values(g, i, whole, last.count, products);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace deft::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(small_gemms);
HWY_EXPORT(outer_rows);

void gemm_small(const TypedGemm<float>& g, const GemmBatch& batch) { HWY_DYNAMIC_DISPATCH(small_gemms)(g, batch); }
void gemm_outer(const TypedGemm<float>& g, int64_t i0, int64_t i1) { HWY_DYNAMIC_DISPATCH(outer_rows)(g, i0, i1); }

}  // namespace deft::cpu::detail
#endif
