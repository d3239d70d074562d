#if defined(__x86_64__)

#include "kernels/cpu/x86/pack_words.h"

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <algorithm>

namespace deft::cpu {

namespace {

constexpr int64_t kAhead = 512;  // bytes from what is read to what is prefetched

#define DEFT_AVX512 [[gnu::target("avx512f,avx512dq,avx512vl"), gnu::always_inline]] inline

// Four groups of a line, or the first few of them.
DEFT_AVX512 __m128i load(const void* line, int64_t at, __mmask8 groups) {
  const void* from = static_cast<const char*>(line) + at;
  return groups == 0xf ? _mm_loadu_si128(static_cast<const __m128i*>(from)) : _mm_maskz_loadu_epi32(groups, from);
}
// Of lines i, i + 4, i + 8 and i + 12.
DEFT_AVX512 __m512i four_lines(const void* const* lines, int i, int64_t at, __mmask8 groups) {
  __m512i v = _mm512_castsi128_si512(load(lines[i], at, groups));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(lines[i + 4], at, groups));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(lines[i + 8], at, groups));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, load(lines[i + 12], at, groups));
}
// Sixteen lines of `count` groups, at most four, to as many rows of sixteen, of which `live` are stored. (Merging four
// rows of twelve into three whole vectors gains nothing.)
DEFT_AVX512 void transpose_words(const void* const* lines, int64_t at, int count, __m512i flip, __mmask16 live,
                                 char* out, int64_t row) {
  const auto groups = static_cast<__mmask8>((1 << count) - 1);
  const __m512i a = four_lines(lines, 0, at, groups), b = four_lines(lines, 1, at, groups);
  const __m512i c = four_lines(lines, 2, at, groups), d = four_lines(lines, 3, at, groups);
  const __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
  const __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
  _mm512_mask_storeu_epi32(out, live, _mm512_xor_si512(_mm512_unpacklo_epi64(ab0, cd0), flip));
  if (count == 1) return;
  _mm512_mask_storeu_epi32(out + row, live, _mm512_xor_si512(_mm512_unpackhi_epi64(ab0, cd0), flip));
  if (count == 2) return;
  _mm512_mask_storeu_epi32(out + 2 * row, live, _mm512_xor_si512(_mm512_unpacklo_epi64(ab1, cd1), flip));
  if (count == 3) return;
  _mm512_mask_storeu_epi32(out + 3 * row, live, _mm512_xor_si512(_mm512_unpackhi_epi64(ab1, cd1), flip));
}

}  // namespace

[[gnu::target("avx512f,avx512dq,avx512vl")]] int64_t pack_words_512(const void* const* lines, int width, int64_t bytes,
                                                                    int64_t ahead, unsigned char flip, void* out) {
  const __m512i flips = _mm512_set1_epi8(static_cast<char>(flip));
  const int64_t row = 4 * width, whole = bytes / 4 * 4;
  for (int first = 0; first < width; first += 16) {
    const int count = std::min(16, width - first);
    const auto live = static_cast<__mmask16>((1u << count) - 1);
    const void* some[16];
    for (int i = 0; i < 16; ++i) some[i] = lines[first + std::min(i, count - 1)];
    char* to = static_cast<char*>(out) + 4 * first;
    int64_t p = 0;
    for (; p + 64 <= whole; p += 64, to += 16 * row) {
      const int64_t next = p + kAhead < bytes ? p + kAhead : ahead ? ahead + p + kAhead - bytes : p;
      for (int i = 0; i < count; ++i) __builtin_prefetch(static_cast<const char*>(some[i]) + next);
      for (int q = 0; q < 4; ++q) transpose_words(some, p + 16 * q, 4, flips, live, to + 4 * q * row, row);
    }
    for (; p + 16 <= whole; p += 16, to += 4 * row) transpose_words(some, p, 4, flips, live, to, row);
    if (p < whole) transpose_words(some, p, static_cast<int>((whole - p) / 4), flips, live, to, row);
  }
  return whole;
}

namespace {

[[gnu::target("avx512bw"), gnu::always_inline]] inline void store_pair(__m512i first, __m512i second, uint16_t* to) {
  alignas(64) static constexpr uint16_t kLow[] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                  8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, low, second));
  _mm512_storeu_si512(to + 32, _mm512_permutex2var_epi16(first, high, second));
}

}  // namespace

[[gnu::target("avx512bw")]] void pair_halves_512(const uint16_t* const* places, int64_t first, int64_t pairs,
                                                 int64_t parts, int64_t count, uint16_t* out) {
  static constexpr uint16_t kNowhere = 0;
  const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
  for (int64_t p = 0; p < pairs; ++p, places += 2) {
    const uint16_t *a = places[0] ? places[0] + first : &kNowhere, *b = places[1] ? places[1] + first : &kNowhere;
    const __mmask32 of_a = places[0] ? mask : 0, of_b = places[1] ? mask : 0;
    for (int64_t i = 0; i < parts; ++i, out += 64) {
      store_pair(_mm512_maskz_loadu_epi16(of_a, a + 32 * i), _mm512_maskz_loadu_epi16(of_b, b + 32 * i), out);
    }
  }
}

namespace {

// Two cache lines of a row, which the hardware fetches together, before the next row, and rows this far ahead: 1024 x
// 2048 of bf16 from L3 take 0.21 ms with 2 panels, 0.25 with 4, 0.29 with 8 or 16.
constexpr int kHalvesPanels = 2, kBytesPanels = 4, kRowsAhead = 8;

// Interleaves four rows of 64 bytes into two panels; the second may be missing.
[[gnu::target("avx512bw"), gnu::always_inline]] inline void store_four(const __m512i (&rows)[4], uint8_t* first,
                                                                       uint8_t* second) {
  const __m512i ab0 = _mm512_unpacklo_epi8(rows[0], rows[1]), ab1 = _mm512_unpackhi_epi8(rows[0], rows[1]);
  const __m512i cd0 = _mm512_unpacklo_epi8(rows[2], rows[3]), cd1 = _mm512_unpackhi_epi8(rows[2], rows[3]);
  const __m512i a = _mm512_unpacklo_epi16(ab0, cd0), b = _mm512_unpackhi_epi16(ab0, cd0);
  const __m512i c = _mm512_unpacklo_epi16(ab1, cd1), d = _mm512_unpackhi_epi16(ab1, cd1);
  const __m512i ab = _mm512_shuffle_i32x4(a, b, 0x44), cd = _mm512_shuffle_i32x4(c, d, 0x44);
  _mm512_storeu_si512(first, _mm512_shuffle_i32x4(ab, cd, 0x88));
  _mm512_storeu_si512(first + 64, _mm512_shuffle_i32x4(ab, cd, 0xdd));
  if (!second) return;
  const __m512i more_ab = _mm512_shuffle_i32x4(a, b, 0xee), more_cd = _mm512_shuffle_i32x4(c, d, 0xee);
  _mm512_storeu_si512(second, _mm512_shuffle_i32x4(more_ab, more_cd, 0x88));
  _mm512_storeu_si512(second + 64, _mm512_shuffle_i32x4(more_ab, more_cd, 0xdd));
}

// `panels` of them, at most kHalvesPanels or kBytesPanels; rows `ahead` values further are prefetched meanwhile.
template <int panels>
[[gnu::target("avx512bw")]] void halves_512(const uint16_t* in, int64_t step, int64_t ahead, int64_t k,
                                            int64_t panel_size, uint16_t* out) {
  for (int64_t p = 0; p < k; p += 2, in += 2 * step, out += 2 * 32) {
    for (int i = 0; i < panels; ++i) {
      const uint16_t* from = in + 32 * i;
      __builtin_prefetch(from + ahead);
      __builtin_prefetch(from + ahead + step);
      store_pair(_mm512_loadu_si512(from), _mm512_loadu_si512(from + step), out + i * panel_size);
    }
  }
}
template <int panels>
[[gnu::target("avx512bw")]] void bytes_512(const uint8_t* in, int64_t step, int64_t ahead, int64_t k,
                                           int64_t panel_size, uint8_t* out) {
  for (int64_t p = 0; p < k; p += 4, in += 4 * step, out += 4 * 32) {
    for (int i = 0; i < panels; i += 2) {
      const bool two = i + 1 < panels;
      __m512i rows[4];
      for (int g = 0; g < 4; ++g) {
        const uint8_t* from = in + g * step + 32 * i;
        __builtin_prefetch(from + ahead);
        rows[g] = two ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi8(0xffffffff, from);
      }
      uint8_t* to = out + i * panel_size;
      store_four(rows, to, two ? to + panel_size : nullptr);
    }
  }
}

// All of k; the last rows prefetch nothing.
template <auto pack, class T>
void columns_512(const T* in, int64_t step, int64_t k, int64_t panel_size, T* out) {
  const int64_t most = std::max<int64_t>(0, k - kRowsAhead);
  pack(in, step, kRowsAhead * step, most, panel_size, out);
  pack(in + most * step, step, 0, k - most, panel_size, out + most * 32);
}

}  // namespace

void columns_of_halves_512(const uint16_t* in, int64_t step, int64_t panels, int64_t k, int64_t panel_size,
                           uint16_t* out) {
  for (; panels >= kHalvesPanels; panels -= kHalvesPanels, in += kHalvesPanels * 32, out += kHalvesPanels * panel_size)
    columns_512<halves_512<kHalvesPanels>>(in, step, k, panel_size, out);
  if (panels == 1) columns_512<halves_512<1>>(in, step, k, panel_size, out);
}

void columns_of_bytes_512(const uint8_t* in, int64_t step, int64_t panels, int64_t k, int64_t panel_size,
                          uint8_t* out) {
  for (; panels >= kBytesPanels; panels -= kBytesPanels, in += kBytesPanels * 32, out += kBytesPanels * panel_size)
    columns_512<bytes_512<kBytesPanels>>(in, step, k, panel_size, out);
  if (panels == 3) columns_512<bytes_512<3>>(in, step, k, panel_size, out);
  if (panels == 2) columns_512<bytes_512<2>>(in, step, k, panel_size, out);
  if (panels == 1) columns_512<bytes_512<1>>(in, step, k, panel_size, out);
}

void transpose_halves_512(const uint16_t* const* places, int64_t first, int64_t count, uint16_t* out) {
  alignas(64) uint16_t pairs[16 * 64];
  pair_halves_512(places, first, 16, 1, count, pairs);
  const void* lines[16];
  for (int64_t i = 0; i < 16; ++i) lines[i] = pairs + i * 64;
  pack_words_512(lines, 16, count * 4, 0, 0, out);
}

}  // namespace deft::cpu

#endif
