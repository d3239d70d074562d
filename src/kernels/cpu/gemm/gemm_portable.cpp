// Register tiles in C++: f64, and the fallback of every panel type that has one, once per SIMD target.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")  // it spills accumulators: 74 -> 81 GFLOP/s without
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/gemm_portable.cpp"
#include "kernels/cpu/simd/targets.h"
// Highway after its targets are chosen.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstring>

#include "kernels/cpu/gemm/tile_choice.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// GCC 12 sends accumulators through the stack when they live in an array: one variable each.
#define DEFT_ZERO2(i) auto c##i##0 = hn::Zero(d), c##i##1 = hn::Zero(d);
#define DEFT_STEP2(i)                     \
  {                                       \
    const auto x = hn::Set(d, a[i]);      \
    c##i##0 = hn::MulAdd(x, b0, c##i##0); \
    c##i##1 = hn::MulAdd(x, b1, c##i##1); \
  }
#define DEFT_STORE2(i)         \
  put(c + i * c_row, c##i##0); \
  put(c + i * c_row + w, c##i##1);
#define DEFT_ZERO3(i) auto c##i##0 = hn::Zero(d), c##i##1 = hn::Zero(d), c##i##2 = hn::Zero(d);
#define DEFT_STEP3(i)                     \
  {                                       \
    const auto x = pick<i>(d, a);         \
    c##i##0 = hn::MulAdd(x, b0, c##i##0); \
    c##i##1 = hn::MulAdd(x, b1, c##i##1); \
    c##i##2 = hn::MulAdd(x, b2, c##i##2); \
  }
#define DEFT_STORE3(i)             \
  put(c + i * c_row, c##i##0);     \
  put(c + i * c_row + w, c##i##1); \
  put(c + i * c_row + 2 * w, c##i##2);
#define DEFT_ROWS6(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define DEFT_ROWS8(X) DEFT_ROWS6(X) X(6) X(7)

#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3  // 32 registers
#define DEFT_WIDE_TILE 1
constexpr int kRows = 8, kVectors = 3;
#else
#define DEFT_WIDE_TILE 0
constexpr int kRows = 6, kVectors = 2;
#endif

// a[i] in every SIMD lane. On NEON a whole vector of a is loaded, which the compiler turns into multiply-by-lane: eight
// separate loads would not leave registers for the accumulators.
template <int i, class D, class T>
HWY_INLINE hn::VFromD<D> pick(D d, const T* a) {
#if HWY_TARGET == HWY_NEON
  constexpr int w = 16 / sizeof(T);
  return hn::Broadcast<i % w>(hn::LoadU(d, a + i / w * w));
#else
  return hn::Set(d, a[i]);
#endif
}

template <class T>
void tile(int64_t k, const void* a_panel, const void* b_panel, void* c_out, int64_t c_row, bool add) {
  const hn::ScalableTag<T> d;
  const int64_t w = static_cast<int64_t>(hn::Lanes(d));
  const T *HWY_RESTRICT a = static_cast<const T*>(a_panel), *HWY_RESTRICT b = static_cast<const T*>(b_panel);
  T* HWY_RESTRICT c = static_cast<T*>(c_out);
#if DEFT_WIDE_TILE
  DEFT_ROWS8(DEFT_ZERO3)
  for (int64_t p = 0; p < k; ++p) {
    const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + w), b2 = hn::LoadU(d, b + 2 * w);
    DEFT_ROWS8(DEFT_STEP3)
    a += kRows;
    b += kVectors * w;
  }
#else
  DEFT_ROWS6(DEFT_ZERO2)
  for (int64_t p = 0; p < k; ++p) {
    const auto b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + w);
    DEFT_ROWS6(DEFT_STEP2)
    a += kRows;
    b += kVectors * w;
  }
#endif
  const auto put = [&](T* to, auto v) HWY_ATTR { hn::StoreU(add ? hn::Add(hn::LoadU(d, to), v) : v, d, to); };
#if DEFT_WIDE_TILE
  DEFT_ROWS8(DEFT_STORE3)
#else
  DEFT_ROWS6(DEFT_STORE2)
#endif
}
#undef DEFT_WIDE_TILE

template <class T>
GemmTile make(const char* name, Panel panel, int64_t block_k) {
  const int columns = kVectors * static_cast<int>(hn::Lanes(hn::ScalableTag<T>()));
  return {name, panel, kRows, columns, 1, 1, 1, block_k, tile<T>, nullptr, nullptr, nullptr, true};
}
GemmTile portable_f32() { return make<float>("portable_f32", Panel::f32, 768); }
GemmTile portable_f64() { return make<double>("portable_f64", Panel::f64, 256); }

}  // namespace HWY_NAMESPACE
}  // namespace deft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
namespace {

constexpr int kByteRows = 4, kByteColumns = 16;

// Sums of products of bytes in memory order; the compiler vectorises the inner loop.
void byte_tile(int64_t k, const void* a_panel, const void* b_panel, void* c_out, int64_t c_row, bool add) {
  const auto *a = static_cast<const int8_t*>(a_panel), *b = static_cast<const int8_t*>(b_panel);
  int32_t sum[kByteRows][kByteColumns] = {};
  for (int64_t p = 0; p < k; ++p, a += kByteRows, b += kByteColumns) {
    for (int i = 0; i < kByteRows; ++i) {
      for (int j = 0; j < kByteColumns; ++j) sum[i][j] += a[i] * b[j];
    }
  }
  auto* c = static_cast<int32_t*>(c_out);
  for (int i = 0; i < kByteRows; ++i) {
    for (int j = 0; j < kByteColumns; ++j) c[i * c_row + j] = sum[i][j] + (add ? c[i * c_row + j] : 0);
  }
}

}  // namespace

HWY_EXPORT(portable_f32);
HWY_EXPORT(portable_f64);

std::span<const GemmTile> portable_tiles() {
  static const GemmTile tiles[] = {
      HWY_DYNAMIC_DISPATCH(portable_f32)(),
      HWY_DYNAMIC_DISPATCH(portable_f64)(),
      {"portable_s8", Panel::s8, kByteRows, kByteColumns, 1, 1, 1, 4608, byte_tile, nullptr, nullptr, nullptr, true},
  };
  return tiles;
}

}  // namespace deft::cpu
#endif
