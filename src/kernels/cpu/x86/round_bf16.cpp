#if defined(__x86_64__)

#include "kernels/cpu/x86/round_bf16.h"

#include <immintrin.h>

namespace deft::cpu {

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]] size_t round_bf16_512(const float* from, BFloat16* to,
                                                                                       size_t n) {
  constexpr int kSubnormal = 0x20;
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512 low = _mm512_loadu_ps(from + i), high = _mm512_loadu_ps(from + i + 16);
    if (_mm512_fpclass_ps_mask(low, kSubnormal) | _mm512_fpclass_ps_mask(high, kSubnormal)) [[unlikely]]
      break;
    _mm512_storeu_si512(to + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
  return i;
}

}  // namespace deft::cpu
#endif
