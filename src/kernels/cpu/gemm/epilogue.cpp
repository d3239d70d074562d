#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/epilogue.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/gemm/activate-inl.h"
#include "kernels/cpu/gemm/epilogue.h"
#include "kernels/cpu/norm/row-inl.h"

#if defined(__aarch64__)
// kernels/cpu/aarch64/gelu_bf16.S
extern "C" void deft_neon_gelu_bf16(const float* sums, int64_t row_bytes, const float* scale, const float* bias,
                                    void* c, const int64_t* offsets, const void* constants, int64_t row_groups);
#endif

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using detail::ColumnTerms;
using detail::TileStore;
using V = Vec<float>;
constexpr int kLanes = static_cast<int>(V::kLanes);

#if HWY_TARGET == HWY_SCALAR
// The scalar form of the vector code below, which pairs vectors.
template <class C>
void requantize_rows(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  constexpr float kLow = std::numeric_limits<C>::min(), kHigh = std::numeric_limits<C>::max();
  const float zero = static_cast<float>(p.epilogue.out_zero);
  const float least = p.epilogue.activation == Activation::relu ? std::max(zero, kLow) : kLow;
  for (int i = 0; i < t.rows; ++i) {
    const int32_t* sums = static_cast<const int32_t*>(t.sums) + i * t.width;
    C* c = static_cast<C*>(p.c) + t.offsets[i] + t.j0;
    for (int j = 0; j < t.columns; ++j) {
      const uint32_t sum = static_cast<uint32_t>(sums[j]) + static_cast<uint32_t>(terms.correction[j]);
      const auto value = static_cast<float>(static_cast<int32_t>(sum));
      const float q = std::nearbyint(std::fma(value, terms.scale[j], terms.bias[j])) + zero;
      c[j] = static_cast<C>(q > least ? std::min(q, kHigh) : least);
    }
  }
}
#else
// The common case of quantized networks, fused: two vectors of sums make one of bytes. Columns are the outer loop, so
// that scale and bias stay in registers; stores of bytes may alias anything, hence the local copies.
template <class C>
struct Requantize {
  using Ints = hn::Rebind<int32_t, V::D>;
  using Shorts = hn::Rebind<int16_t, V::D>;
  using Pair = hn::Twice<Shorts>;
  int16_t zero, least;
  const float *scale, *bias;
  const int32_t* correction;  // zeros where there is no correction

  struct Columns {
    hn::VFromD<V::D> scale, bias;
    hn::VFromD<Ints> correction;
  };
  HWY_INLINE Columns columns(int j) const {
    return {hn::LoadU(V::D(), scale + j), hn::LoadU(V::D(), bias + j), hn::LoadU(Ints(), correction + j)};
  }
  static HWY_INLINE auto shorts(const int32_t* sums, const Columns& c) {
    const auto sum = hn::Add(hn::LoadU(Ints(), sums), c.correction);
    return hn::DemoteTo(Shorts(), hn::NearestInt(hn::MulAdd(hn::ConvertTo(V::D(), sum), c.scale, c.bias)));
  }
  // Columns [j, j + 2 * kLanes) of all rows, of which `live` are stored.
  void strip(const int32_t* sums, int width, int rows, int j, int live, C* base, const int64_t* offsets) const {
    const Pair dp;
    const hn::Rebind<C, Pair> db;
    const Columns low = columns(j), high = columns(j + kLanes);
    const auto z = hn::Set(dp, zero), l = hn::Set(dp, least);
    for (int row = 0; row < rows; ++row) {
      const int32_t* from = sums + row * width + j;
      const auto both = hn::Combine(dp, shorts(from + kLanes, high), shorts(from, low));
      const auto bytes = hn::DemoteTo(db, hn::Max(hn::SaturatedAdd(both, z), l));
      C* to = base + offsets[row] + j;
      if (live == 2 * kLanes) {
        hn::StoreU(bytes, db, to);
      } else if (live == kLanes) {
        hn::StoreU(hn::LowerHalf(bytes), hn::Half<decltype(db)>(), to);
      } else {
        C lanes[2 * V::kLanes];
        hn::StoreU(bytes, db, lanes);
        std::memcpy(to, lanes, static_cast<size_t>(live));
      }
    }
  }
};
template <class C>
void requantize_rows(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const auto zero = static_cast<int16_t>(p.epilogue.out_zero);
  const int16_t least = p.epilogue.activation == Activation::relu ? zero : std::numeric_limits<int16_t>::min();
  const Requantize<C> f{zero, least, terms.scale, terms.bias, terms.correction};
  C* c = static_cast<C*>(p.c) + t.j0;
  const int columns = t.columns;
  for (int j = 0; j < columns; j += 2 * kLanes) {
    f.strip(static_cast<const int32_t*>(t.sums), t.width, t.rows, j, std::min(2 * kLanes, columns - j), c, t.offsets);
  }
}
#endif

// ---- c of floats, or of bytes with a residual or an activation.

// Sums as f32: integer sums are corrected exactly, then rounded.
inline V load_sums(const float* sums, const int32_t*) { return V::load(sums); }
inline V load_sums(const int32_t* sums, const int32_t* correction) {
  const hn::Rebind<int32_t, V::D> di;
  return V(hn::ConvertTo(V::D(), hn::Add(hn::LoadU(di, sums), hn::LoadU(di, correction))));
}

// Loads a vector of c or of the residual, of which `count` elements exist.
template <class C>
inline V load_old(const C* c, int64_t col, int count, const Epilogue& e) {
  C lanes[V::kLanes];
  if (col == 1 && count >= kLanes) {
    if constexpr (!std::is_integral_v<C>) return load_vec(c);
  }
  for (int i = 0; i < kLanes; ++i) lanes[i] = c[i < count ? i * col : 0];
  if constexpr (std::is_integral_v<C>) {
    float wide[V::kLanes];
    for (int i = 0; i < kLanes; ++i) wide[i] = static_cast<float>(static_cast<int32_t>(lanes[i]) - e.out_zero);
    return V::load(wide) * V(e.out_scale);
  } else {
    return load_vec(lanes);
  }
}
template <class C>
inline void store_new(V v, C* c, int64_t col, int count, const Epilogue& e) {
  C lanes[V::kLanes];
  if constexpr (std::is_integral_v<C>) {
    constexpr float kLow = std::numeric_limits<C>::min(), kHigh = std::numeric_limits<C>::max();
    const V zero(static_cast<float>(e.out_zero));
    V q = round(v / V(e.out_scale)) + zero;
    q = select(q < V(kLow), V(kLow), select(q > V(kHigh), V(kHigh), q));
    float wide[V::kLanes];
    select(q == q, q, zero).store(wide);
    for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<C>(wide[i]);
  } else {
    if (col == 1 && count >= kLanes) return store_vec(v, c);
    store_vec(v, lanes);
  }
  for (int i = 0; i < std::min(count, kLanes); ++i) c[i * col] = lanes[i];
}

template <class C>
HWY_INLINE V load_some_of(const C* p, int live) {
  return live >= kLanes ? load_vec(p) : load_some(p, live);
}
template <class C>
HWY_INLINE void store_some_of(V v, C* p, int live) {
  live >= kLanes ? store_vec(v, p) : store_some(v, p, live);
}

// The common case of float results: rows of c in whole vectors, with at most a residual and relu. Columns are the outer
// loop, so that scale and bias stay in registers.
template <class C, bool kResidual, bool kRelu>
void simple_rows(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const auto* sums = static_cast<const float*>(t.sums);
  const int64_t* offsets = t.offsets;
  const int rows = t.rows, width = t.width, columns = t.columns;
  for (int j = 0; j < columns; j += kLanes) {
    C* const c = static_cast<C*>(p.c) + t.j0 + j;
    const C* const residual = kResidual ? static_cast<const C*>(p.epilogue.residual) + t.j0 + j : nullptr;
    const V scale = V::load(terms.scale + j), bias = V::load(terms.bias + j);
    const int live = columns - j;
    for (int row = 0; row < rows; ++row) {
      V x = fma(V::load(sums + row * width + j), scale, bias);
      if (kResidual) x += load_some_of(residual + offsets[row], live);
      if (kRelu) x = select(x < V(0), V(0), x);
      store_some_of(x, c + offsets[row], live);
    }
  }
}

#if HWY_TARGET == HWY_NEON
// BFCVTN rounds to nearest even in one instruction, where store_vec() takes eight.
#define DEFT_BF16 __attribute__((target("arch=armv8.2-a+bf16")))
template <bool kResidual, bool kRelu>
DEFT_BF16 inline float32x4_t finish_four(const float* sums, float32x4_t scale, float32x4_t bias,
                                         const uint16_t* residual) {
  float32x4_t x = vfmaq_f32(bias, vld1q_f32(sums), scale);
  if (kResidual) x = vaddq_f32(x, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(residual), 16)));
  if (kRelu) x = vbslq_f32(vcltzq_f32(x), vdupq_n_f32(0), x);
  return x;
}
// A row of twelve columns: the whole width of the most used tile.
template <bool kResidual, bool kRelu>
DEFT_BF16 void twelve_bf16_columns(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const auto* sums = static_cast<const float*>(t.sums);
  uint16_t* const c = static_cast<uint16_t*>(p.c) + t.j0;
  const auto* const residual = static_cast<const uint16_t*>(p.epilogue.residual) + (kResidual ? t.j0 : 0);
  float32x4_t scale[3], bias[3];
  for (int j = 0; j < 3; ++j) scale[j] = vld1q_f32(terms.scale + 4 * j), bias[j] = vld1q_f32(terms.bias + 4 * j);
  for (int row = 0; row < t.rows; ++row, sums += t.width) {
    const uint16_t* from = residual + (kResidual ? t.offsets[row] : 0);
    const float32x4_t x0 = finish_four<kResidual, kRelu>(sums, scale[0], bias[0], from),
                      x1 = finish_four<kResidual, kRelu>(sums + 4, scale[1], bias[1], from + (kResidual ? 4 : 0)),
                      x2 = finish_four<kResidual, kRelu>(sums + 8, scale[2], bias[2], from + (kResidual ? 8 : 0));
    uint16_t* const to = c + t.offsets[row];
    vst1q_u16(to, vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(x0), x1)));
    vst1_u16(to + 8, vreinterpret_u16_bf16(vcvt_bf16_f32(x2)));
  }
}
// A row of eight columns: the tile for results whose columns twelve does not divide.
template <bool kResidual, bool kRelu>
DEFT_BF16 void eight_bf16_columns(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const auto* sums = static_cast<const float*>(t.sums);
  uint16_t* const c = static_cast<uint16_t*>(p.c) + t.j0;
  const auto* const residual = static_cast<const uint16_t*>(p.epilogue.residual) + (kResidual ? t.j0 : 0);
  const float32x4_t scale0 = vld1q_f32(terms.scale), scale1 = vld1q_f32(terms.scale + 4);
  const float32x4_t bias0 = vld1q_f32(terms.bias), bias1 = vld1q_f32(terms.bias + 4);
  const int64_t* const offsets = t.offsets;
  const int rows = t.rows, width = t.width;
  for (int row = 0; row < rows; ++row, sums += width) {
    const uint16_t* from = residual + (kResidual ? offsets[row] : 0);
    const float32x4_t x0 = finish_four<kResidual, kRelu>(sums, scale0, bias0, from),
                      x1 = finish_four<kResidual, kRelu>(sums + 4, scale1, bias1, from + (kResidual ? 4 : 0));
    vst1q_u16(c + offsets[row], vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(x0), x1)));
  }
}
template <bool kResidual, bool kRelu>
DEFT_BF16 void simple_bf16_rows(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  if (t.columns == 12) return twelve_bf16_columns<kResidual, kRelu>(p, t, terms);
  if (t.columns == 8) return eight_bf16_columns<kResidual, kRelu>(p, t, terms);
  const auto* sums = static_cast<const float*>(t.sums);
  const int64_t* offsets = t.offsets;
  const int rows = t.rows, width = t.width, columns = t.columns;
  for (int j = 0; j < columns; j += 4) {
    uint16_t* const c = static_cast<uint16_t*>(p.c) + t.j0 + j;
    const auto* const residual = static_cast<const uint16_t*>(p.epilogue.residual) + (kResidual ? t.j0 + j : 0);
    const float32x4_t scale = vld1q_f32(terms.scale + j), bias = vld1q_f32(terms.bias + j);
    const int live = std::min(4, columns - j);
    for (int row = 0; row < rows; ++row) {
      uint16_t old[4] = {};
      const uint16_t* from = residual + (kResidual ? offsets[row] : 0);
      if (kResidual && live < 4)
        from = static_cast<const uint16_t*>(std::memcpy(old, from, static_cast<size_t>(live) * 2));
      const float32x4_t x = finish_four<kResidual, kRelu>(sums + row * width + j, scale, bias, from);
      const uint16x4_t bits = vreinterpret_u16_bf16(vcvt_bf16_f32(x));
      if (live == 4) {
        vst1_u16(c + offsets[row], bits);
      } else {
        vst1_u16(old, bits);
        std::memcpy(c + offsets[row], old, static_cast<size_t>(live) * 2);
      }
    }
  }
}
#undef DEFT_BF16
#endif

#if HWY_TARGET == HWY_AVX3
// 32 columns: a cache line of c, by the instruction that rounds two vectors. It flushes subnormal inputs to zero.
inline __m512 widen_bf16(const BFloat16* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
template <bool kResidual, bool kRelu>
[[gnu::noinline, gnu::target("avx512bf16")]] void bf16_512_lines(const BlockedGemm& p, const TileStore& t,
                                                                 const ColumnTerms& terms) {
  constexpr int kSubnormal = 0x20;
  const auto* sums = static_cast<const float*>(t.sums);
  BFloat16* const c = static_cast<BFloat16*>(p.c) + t.j0;
  const BFloat16* const residual = kResidual ? static_cast<const BFloat16*>(p.epilogue.residual) + t.j0 : nullptr;
  const V scale0 = V::load(terms.scale), scale1 = V::load(terms.scale + 16);
  const V bias0 = V::load(terms.bias), bias1 = V::load(terms.bias + 16), zero(0);
  for (int row = 0; row < t.rows; ++row, sums += t.width) {
    const int64_t at = t.offsets[row];
    V x = fma(V::load(sums), scale0, bias0), y = fma(V::load(sums + 16), scale1, bias1);
    if constexpr (kResidual) {
      x.raw.raw = _mm512_add_ps(x.raw.raw, widen_bf16(residual + at));
      y.raw.raw = _mm512_add_ps(y.raw.raw, widen_bf16(residual + at + 16));
    }
    if constexpr (kRelu) {  // keeps NaN and -0
      x.raw.raw = _mm512_max_ps(zero.raw.raw, x.raw.raw);
      y.raw.raw = _mm512_max_ps(zero.raw.raw, y.raw.raw);
    }
    const __mmask16 subnormal =
        _mm512_fpclass_ps_mask(x.raw.raw, kSubnormal) | _mm512_fpclass_ps_mask(y.raw.raw, kSubnormal);
    if (subnormal) [[unlikely]] {
      store_vec(x, c + at);
      store_vec(y, c + at + 16);
      continue;
    }
    const auto line = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y.raw.raw, x.raw.raw));
    if (t.streams && reinterpret_cast<uintptr_t>(c + at) % 64 == 0) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(c + at), line);
    } else {
      _mm512_storeu_si512(c + at, line);
    }
  }
}
#endif

template <class C, bool kResidual, bool kRelu>
void simple_rows_of(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
#if HWY_TARGET == HWY_NEON
  if constexpr (std::is_same_v<C, BFloat16>) {
    // bf16 panels imply the instructions.
    if (p.tile->panel == Panel::bf16) return simple_bf16_rows<kResidual, kRelu>(p, t, terms);
  }
#elif HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<C, BFloat16>) {
    if (t.columns == 32 && kConvertsBf16) return bf16_512_lines<kResidual, kRelu>(p, t, terms);
  }
#endif
  simple_rows<C, kResidual, kRelu>(p, t, terms);
}

// Activations of many steps: kRows rows at once, so that several vectors are in flight. On a Neoverse V1 eight rows
// instead of four take 11 % less time for gelu of f32 and 20 % for tanh. `c` and `residual` point at row zero.
template <class C, Activation A, int kRows>
inline void activate_strip(const float* sums, int width, int rows, V scale, V bias, const C* residual, C* c,
                           const int64_t* offsets, int live) {
  V x[kRows];
  for (int i = 0; i < kRows; ++i) {
    const int row = std::min(i, rows - 1);
    x[i] = fma(V::load(sums + row * width), scale, bias);
    if (residual) x[i] += load_some_of(residual + offsets[row], live);
  }
  if constexpr (std::is_same_v<C, BFloat16> && A == Activation::gelu) {
    gelu_bf16(x);
  } else {
    for (V& v : x) v = activate(A, v);
  }
  for (int i = 0; i < rows; ++i) store_some_of(x[i], c + offsets[i], live);
}
template <class C, Activation A>
void activated_rows(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const auto* sums = static_cast<const float*>(t.sums);
  const int64_t* offsets = t.offsets;
  const int rows = t.rows, width = t.width, columns = t.columns;
  for (int j = 0; j < columns; j += kLanes) {
    const int64_t column = t.j0 + j;
    C* const c = static_cast<C*>(p.c) + column;
    const C* const residual = p.epilogue.residual ? static_cast<const C*>(p.epilogue.residual) + column : nullptr;
    const V scale = V::load(terms.scale + j), bias = V::load(terms.bias + j);
    const int live = std::min(kLanes, columns - j);
    for (int i = 0; i < rows; i += 8) {
      const float* from = sums + i * width + j;
      const int left = std::min(8, rows - i);
      left > 4 ? activate_strip<C, A, 8>(from, width, left, scale, bias, residual, c, offsets + i, live)
               : activate_strip<C, A, 4>(from, width, left, scale, bias, residual, c, offsets + i, live);
    }
  }
}
template <class C>
void activated_rows(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
#if HWY_TARGET == HWY_NEON
  if constexpr (std::is_same_v<C, BFloat16>) {
    const bool whole = t.rows % 4 == 0 && t.columns == 12 && !p.epilogue.residual;
    // bf16 panels imply the instructions.
    if (whole && p.epilogue.activation == Activation::gelu && p.tile->panel == Panel::bf16) {
      return deft_neon_gelu_bf16(static_cast<const float*>(t.sums), t.width * 4, terms.scale, terms.bias,
                                 static_cast<BFloat16*>(p.c) + t.j0, t.offsets, kGeluBf16, t.rows / 4);
    }
  }
#endif
  switch (p.epilogue.activation) {
    case Activation::gelu:
      return activated_rows<C, Activation::gelu>(p, t, terms);
    case Activation::gelu_tanh:
      return activated_rows<C, Activation::gelu_tanh>(p, t, terms);
    case Activation::silu:
      return activated_rows<C, Activation::silu>(p, t, terms);
    case Activation::sigmoid:
      return activated_rows<C, Activation::sigmoid>(p, t, terms);
    default:
      return activated_rows<C, Activation::tanh>(p, t, terms);
  }
}

// The same with scale and bias by row, as for channels of NCHW.
template <class C>
void rows_with_own_terms(const BlockedGemm& p, const TileStore& t) {
  const Epilogue& e = p.epilogue;
  const bool relu = e.activation == Activation::relu;
  for (int row = 0; row < t.rows; ++row) {
    const auto* sums = static_cast<const float*>(t.sums) + row * t.width;
    C* const c = static_cast<C*>(p.c) + t.offsets[row] + t.j0;
    const C* const residual = e.residual ? static_cast<const C*>(e.residual) + t.offsets[row] + t.j0 : nullptr;
    const V scale(detail::scale_at(e, t.i0 + row)), bias(e.bias ? detail::bias_at(e, t.i0 + row) : 0);
    for (int j = 0; j < t.columns; j += kLanes) {
      V x = fma(V::load(sums + j), scale, bias);
      if (residual) x += load_some_of(residual + j, t.columns - j);
      if (relu) x = select(x < V(0), V(0), x);
      store_some_of(x, c + j, t.columns - j);
    }
  }
}

// Returns false if the epilogue is not that simple.
template <class C>
bool finish_simple(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const Epilogue& e = p.epilogue;
  const bool relu = e.activation == Activation::relu;
  if (p.c_col != 1 || e.accumulate) return false;
  if (e.on_rows) {
    if (!relu && e.activation != Activation::none) return false;
    rows_with_own_terms<C>(p, t);
  } else if (!relu && e.activation != Activation::none) {
    activated_rows<C>(p, t, terms);
  } else if (e.residual) {
    relu ? simple_rows_of<C, true, true>(p, t, terms) : simple_rows_of<C, true, false>(p, t, terms);
  } else {
    relu ? simple_rows_of<C, false, true>(p, t, terms) : simple_rows_of<C, false, false>(p, t, terms);
  }
  return true;
}

template <class C, class Sum>
void finish_row(const BlockedGemm& p, const Sum* sums, int columns, C* c, const C* residual, const float* scale,
                const float* bias, const int32_t* correction) {
  const Epilogue& e = p.epilogue;
  const int64_t col = p.c_col;
  const Activation activation = e.activation;
  const bool add = e.accumulate;
  for (int j = 0; j < columns; j += kLanes) {
    V x = fma(load_sums(sums + j, correction + j), V::load(scale + j), V::load(bias + j));
    if (residual) x += load_old(residual + j * col, col, columns - j, e);
    if (add) x += load_old(c + j * col, col, columns - j, e);
    if (activation == Activation::relu) {
      x = select(x < V(0), V(0), x);
    } else if (std::is_same_v<C, BFloat16> && activation == Activation::gelu) {
      V one[] = {x};
      gelu_bf16(one);
      x = one[0];
    } else if (activation != Activation::none) {
      x = activate(activation, x);
    }
    store_new(x, c + j * col, col, columns - j, e);
  }
}

template <class C, class Sum>
void finish_rows(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const Epilogue& e = p.epilogue;
  const auto* sums = static_cast<const Sum*>(t.sums);
  float scale[detail::kMostColumns], bias[detail::kMostColumns];
  for (int row = 0; row < t.rows; ++row) {
    const int64_t at = t.offsets[row] + t.j0 * p.c_col;
    if (e.on_rows) {
      std::fill_n(scale, detail::kMostColumns, detail::scale_at(e, t.i0 + row));
      std::fill_n(bias, detail::kMostColumns, e.bias ? detail::bias_at(e, t.i0 + row) : 0);
    }
    finish_row(p, sums + row * t.width, t.columns, static_cast<C*>(p.c) + at,
               e.residual ? static_cast<const C*>(e.residual) + at : nullptr, e.on_rows ? scale : terms.scale,
               e.on_rows ? bias : terms.bias, terms.correction);
  }
}
template <class C>
void finish_any(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const bool bytes = p.tile->panel == Panel::s8 || p.tile->panel == Panel::u8s8;
  if constexpr (!std::is_integral_v<C>) {
    if (!bytes && finish_simple<C>(p, t, terms)) return;
  }
  bytes ? finish_rows<C, int32_t>(p, t, terms) : finish_rows<C, float>(p, t, terms);
}

void store_by_floats(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  const bool bytes = detail::requantizes(p);
  switch (p.c_dtype) {
    case DType::f32:
      return finish_any<float>(p, t, terms);
    case DType::bf16:
      return finish_any<BFloat16>(p, t, terms);
    case DType::f16:
      return finish_any<Half>(p, t, terms);
    case DType::i8:
      return bytes ? requantize_rows<int8_t>(p, t, terms) : finish_any<int8_t>(p, t, terms);
    default:
      return bytes ? requantize_rows<uint8_t>(p, t, terms) : finish_any<uint8_t>(p, t, terms);
  }
}

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(store_by_floats);

namespace {

double activate(Activation a, double x) {
  switch (a) {
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    default:
      return x;
  }
}

void store_doubles(const BlockedGemm& p, const TileStore& t) {
  const Epilogue& e = p.epilogue;
  const auto* sums = static_cast<const double*>(t.sums);
  for (int i = 0; i < t.rows; ++i) {
    for (int j = 0; j < t.columns; ++j) {
      const int64_t at = t.offsets[i] + (t.j0 + j) * p.c_col, line = e.on_rows ? t.i0 + i : t.j0 + j;
      double& c = static_cast<double*>(p.c)[at];
      double x = sums[i * t.width + j];
      x *= e.scale ? static_cast<double>(e.scale[line]) * static_cast<double>(e.alpha) : static_cast<double>(e.alpha);
      if (e.bias) x += e.bias_dtype == DType::f64 ? static_cast<const double*>(e.bias)[line] : bias_at(e, line);
      if (e.residual) x += static_cast<const double*>(e.residual)[at];
      if (e.accumulate) x += c;
      c = activate(e.activation, x);
    }
  }
}

void store_ints(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  for (int i = 0; i < t.rows; ++i) {
    const auto* sums = static_cast<const uint32_t*>(t.sums) + i * t.width;
    int32_t* c = static_cast<int32_t*>(p.c) + t.offsets[i] + t.j0 * p.c_col;
    for (int j = 0; j < t.columns; ++j) {
      const uint32_t old = p.epilogue.accumulate ? static_cast<uint32_t>(c[j * p.c_col]) : 0;
      c[j * p.c_col] = static_cast<int32_t>(sums[j] + static_cast<uint32_t>(terms.correction[j]) + old);
    }
  }
}

}  // namespace

bool requantizes(const BlockedGemm& p) {
  const Epilogue& e = p.epilogue;
  const bool simple = e.activation == Activation::none || e.activation == Activation::relu;
  const bool from_bytes = p.tile->panel == Panel::s8 || p.tile->panel == Panel::u8s8;
  return from_bytes && simple && !e.residual && !e.accumulate && !e.on_rows && p.c_col == 1 &&
         (p.c_dtype == DType::i8 || p.c_dtype == DType::u8);
}

void column_terms(const BlockedGemm& p, int64_t j0, int64_t count, const int32_t* sums, ColumnTerms& terms) {
  const Epilogue& e = p.epilogue;
  for (int64_t j = 0; j < count; ++j) {
    const uint32_t shift = sums ? static_cast<uint32_t>(e.a_zero) * static_cast<uint32_t>(sums[j]) : 0;
    terms.correction[j] = static_cast<int32_t>(0 - shift);
  }
  if (e.on_rows) return;
  if (!e.scale && p.tile->panel == Panel::f32 && (!e.bias || e.bias_dtype == DType::f32)) {  // the common case, quickly
    std::fill_n(terms.scale, count, e.alpha);
    e.bias ? std::copy_n(static_cast<const float*>(e.bias) + j0, count, terms.bias)
           : std::fill_n(terms.bias, count, 0.0f);
    return;
  }
  const float inverse = requantizes(p) ? 1 / e.out_scale : 1;
  for (int64_t j = 0; j < count; ++j) {
    terms.scale[j] = scale_at(e, j0 + j) * inverse;
    terms.bias[j] = e.bias ? bias_at(e, j0 + j) * inverse : 0;
  }
}

void store_tile(const BlockedGemm& p, const TileStore& t, const ColumnTerms& terms) {
  if (p.c_dtype == DType::f64) return store_doubles(p, t);
  if (p.c_dtype == DType::i32) return store_ints(p, t, terms);
  HWY_DYNAMIC_DISPATCH(store_by_floats)(p, t, terms);
}

}  // namespace deft::cpu::detail
#endif  // HWY_ONCE
