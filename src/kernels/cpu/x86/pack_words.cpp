#if defined(__x86_64__)

#include "kernels/cpu/x86/pack_words.h"

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <algorithm>

namespace deft::cpu {

namespace {

constexpr int64_t kAhead = 512;  // bytes from what is read to what is prefetched

#define DEFT_AVX512 [[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline

DEFT_AVX512 __m128i load(const void* line, int64_t at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const char*>(line) + at));
}
// Four groups of lines i, i + 4, i + 8 and i + 12.
DEFT_AVX512 __m512i four_lines(const void* const* lines, int i, int64_t at) {
  __m512i v = _mm512_castsi128_si512(load(lines[i], at));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(lines[i + 4], at));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(lines[i + 8], at));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, load(lines[i + 12], at));
}
// Sixteen lines of four groups to four rows of sixteen.
DEFT_AVX512 void turn(const void* const* lines, int64_t at, __m512i flip, __mmask16 live, char* out, int64_t row) {
  const __m512i a = four_lines(lines, 0, at), b = four_lines(lines, 1, at);
  const __m512i c = four_lines(lines, 2, at), d = four_lines(lines, 3, at);
  const __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
  const __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
  _mm512_mask_storeu_epi32(out, live, _mm512_xor_si512(_mm512_unpacklo_epi64(ab0, cd0), flip));
  _mm512_mask_storeu_epi32(out + row, live, _mm512_xor_si512(_mm512_unpackhi_epi64(ab0, cd0), flip));
  _mm512_mask_storeu_epi32(out + 2 * row, live, _mm512_xor_si512(_mm512_unpacklo_epi64(ab1, cd1), flip));
  _mm512_mask_storeu_epi32(out + 3 * row, live, _mm512_xor_si512(_mm512_unpackhi_epi64(ab1, cd1), flip));
}

}  // namespace

[[gnu::target("avx512f,avx512dq")]] int64_t pack_words_512(const void* const* lines, int width, int64_t bytes,
                                                           int64_t ahead, unsigned char flip, void* out) {
  const __m512i flips = _mm512_set1_epi8(static_cast<char>(flip));
  const int64_t row = 4 * width, whole = bytes / 64 * 64;
  for (int first = 0; first < width; first += 16) {
    const int count = std::min(16, width - first);
    const auto live = static_cast<__mmask16>((1u << count) - 1);
    const void* some[16];
    for (int i = 0; i < 16; ++i) some[i] = lines[first + std::min(i, count - 1)];
    char* to = static_cast<char*>(out) + 4 * first;
    for (int64_t p = 0; p < whole; p += 64, to += 16 * row) {
      const int64_t next = p + kAhead < bytes ? p + kAhead : ahead ? ahead + p + kAhead - bytes : p;
      for (int i = 0; i < count; ++i) __builtin_prefetch(static_cast<const char*>(some[i]) + next);
      for (int q = 0; q < 4; ++q) turn(some, p + 16 * q, flips, live, to + 4 * q * row, row);
    }
  }
  return whole;
}

}  // namespace deft::cpu

#endif
