// Register tiles of the blocked product, once per SIMD target.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")  // it spills accumulators: 74 -> 81 GFLOP/s without
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_micro.cpp"
#include "kernels/cpu/targets.h"
// Highway after its targets are chosen.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/cpu/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::detail {
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
constexpr int64_t kRows = 8, kVectors = 3;
#else
constexpr int64_t kRows = 6, kVectors = 2;
#endif

// a[i] in every lane. On NEON a whole vector of a is loaded, which the compiler turns into multiply-by-lane:
// eight separate loads would not leave registers for the accumulators.
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
void tile(int64_t k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, T* HWY_RESTRICT c, int64_t c_row, bool add) {
  const hn::ScalableTag<T> d;
  const int64_t w = static_cast<int64_t>(hn::Lanes(d));
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3
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
#if HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_AVX3
  DEFT_ROWS8(DEFT_STORE3)
#else
  DEFT_ROWS6(DEFT_STORE2)
#endif
}

template <class T>
MicroKernel<T> micro() {
  return {kRows, kVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), tile<T>};
}
MicroKernel<float> micro_f32() { return micro<float>(); }
MicroKernel<double> micro_f64() { return micro<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace deft::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu::detail {

HWY_EXPORT(micro_f32);
HWY_EXPORT(micro_f64);

MicroKernel<float> micro_kernel(float) { return HWY_DYNAMIC_DISPATCH(micro_f32)(); }
MicroKernel<double> micro_kernel(double) { return HWY_DYNAMIC_DISPATCH(micro_f64)(); }

}  // namespace deft::cpu::detail
#endif
