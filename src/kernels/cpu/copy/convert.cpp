#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/copy/convert.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/copy/convert-inl.h"
#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/cpu/x86/round_bf16.h"
#include "runtime/cpu_isa.h"

HWY_BEFORE_NAMESPACE();
namespace deft::cpu::HWY_NAMESPACE {
namespace {

using ConvertFn = void (*)(const void* src, void* dst, size_t n);

#define DEFT_ROW(From)                                                                                                 \
  {                                                                                                                    \
    convert_range<float, From>, convert_range<double, From>, convert_range<BFloat16, From>, convert_range<Half, From>, \
        convert_range<int8_t, From>, convert_range<uint8_t, From>, convert_range<int32_t, From>,                       \
        convert_range<int64_t, From>, convert_range<bool, From>                                                        \
  }
constexpr ConvertFn kConvert[kDTypeCount][kDTypeCount] = {DEFT_ROW(float),   DEFT_ROW(double),  DEFT_ROW(BFloat16),
                                                          DEFT_ROW(Half),    DEFT_ROW(int8_t),  DEFT_ROW(uint8_t),
                                                          DEFT_ROW(int32_t), DEFT_ROW(int64_t), DEFT_ROW(bool)};
#undef DEFT_ROW

void convert_any(const void* src, int from, void* dst, int to, size_t n) { kConvert[from][to](src, dst, n); }

}  // namespace
}  // namespace deft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deft::cpu {
HWY_EXPORT(convert_any);

void convert(const void* src, DType from, void* dst, DType to, size_t n) {
  size_t done = 0;
#if defined(__x86_64__)
  // Most narrow results are bf16, and rounding to it took up to half of their time.
  if (from == DType::f32 && to == DType::bf16 && cpu_has("avx512_bf16")) {
    done = round_bf16_512(static_cast<const float*>(src), static_cast<BFloat16*>(dst), n);
    if (done == n) return;
  }
#endif
  HWY_DYNAMIC_DISPATCH(convert_any)
  (static_cast<const char*>(src) + done * size_of(from), static_cast<int>(from),
   static_cast<char*>(dst) + done * size_of(to), static_cast<int>(to), n - done);
}

}  // namespace deft::cpu
#endif  // HWY_ONCE
