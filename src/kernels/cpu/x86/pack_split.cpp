#if defined(__x86_64__)

#include "kernels/cpu/gemm/pack_split.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/copy/streaming_store.h"
#include "kernels/cpu/gemm/pack_rows.h"
#include "kernels/cpu/x86/pack_words.h"

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

namespace deft::cpu {

namespace {

#define DEFT_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq"), gnu::always_inline]] inline

constexpr int64_t kStep = 32, kColumns = 32, kChunk = 256;  // of k; of a panel of b; of k at a time
constexpr int64_t kValueBytes = 6, kPartBytes = 64, kLineBytes = 3 * kPartBytes;  // of a value; of a step of a line
constexpr int64_t kPairBytes = 2 * kColumns * 2, kPairsBytes = 3 * kPairBytes;    // of a pair of values of k, of b
constexpr int64_t kTogether = 4;  // panels: a single cache line of each row is slow

// bf16 values in the upper halves of words; the lower halves are zeros, or belong to a NaN.
struct Parts {
  __m512i first, second, third;
};
// Rounds half up, not to even: the error is the same. The largest bf16 value replaces results that would be infinite.
DEFT_AVX512 __m512i upper_half(__m512 x) {
  const __m512i rounded = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}
DEFT_AVX512 Parts split(__m512 x) {
  const __m512 most = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f7f0000));
  constexpr int kSmallerWithSign = 2;
  Parts p;
  p.first = upper_half(_mm512_range_ps(x, most, kSmallerWithSign));
  const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(p.first));
  p.second = upper_half(rest);
  p.third = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(p.second)));
  return p;
}

// ---- Left operand: 32 values of a line are a row of a tile.

DEFT_AVX512 void split_32(__m512 low, __m512 high, char* to) {
  alignas(64) static constexpr uint16_t kUpper[] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                    33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i upper = _mm512_load_si512(kUpper);
  const Parts l = split(low), h = split(high);
  _mm512_storeu_si512(to, _mm512_permutex2var_epi16(l.first, upper, h.first));
  _mm512_storeu_si512(to + kPartBytes, _mm512_permutex2var_epi16(l.second, upper, h.second));
  _mm512_storeu_si512(to + 2 * kPartBytes, _mm512_permutex2var_epi16(l.third, upper, h.third));
}
DEFT_AVX512 __mmask16 first_of(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
}

// `count` values of a line, zeros up to whole steps; steps lie `step` bytes apart.
[[gnu::target("avx512f,avx512bw,avx512dq")]] void split_line(const float* from, int64_t count, char* to, int64_t step) {
  for (; count >= kStep; count -= kStep, from += kStep, to += step) {
    split_32(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16), to);
  }
  if (count == 0) return;
  split_32(_mm512_maskz_loadu_ps(first_of(count), from), _mm512_maskz_loadu_ps(first_of(count - 16), from + 16), to);
}

// A step of `live` lines from rows of k, which lie `row` values apart.
void transpose_step(const float* rows, int64_t row, int64_t live, int64_t k, char* to) {
  alignas(64) float lines[32 * kStep];
  const void* at[kStep];
  for (int64_t p = 0; p < kStep; ++p) at[p] = p < k ? static_cast<const void*>(rows + p * row) : kZeroLine;
  pack_words_512(at, kStep, live * 4, 0, 0, lines);
  split_line(lines, live * kStep, to, kLineBytes);
}

void clear_lines(int64_t width, int64_t live, int64_t steps, char* out) {
  for (int64_t s = 0; live < width && s < steps; ++s) {
    std::memset(out + (s * width + live) * kLineBytes, 0, static_cast<size_t>((width - live) * kLineBytes));
  }
}

// ---- Right operand: pairs of k of 32 columns are a row of a tile.

DEFT_AVX512 __m512i pair(__m512i first, __m512i second) {
  return _mm512_or_si512(_mm512_srli_epi32(first, 16),
                         _mm512_and_si512(second, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
DEFT_AVX512 void store_pairs(__m512 first, __m512 second, char* to) {
  const Parts a = split(first), b = split(second);
  _mm512_storeu_si512(to, pair(a.first, b.first));
  _mm512_storeu_si512(to + kPairBytes, pair(a.second, b.second));
  _mm512_storeu_si512(to + 2 * kPairBytes, pair(a.third, b.third));
}
// Order of splitting: for a, one step of k of each line after the other; for b, each k of all lines.
GemmTile plain_tile(int width) { return {"f32", Panel::f32, width, width, kStep, 1, kStep, kChunk, nullptr}; }

// Values of k contiguous.
void split_lines(const StridedMatrix& m, const float* first, int64_t width, int64_t live, int64_t k, char* out) {
  clear_lines(width, live, (k + kStep - 1) / kStep, out);
  for (int64_t l = 0; l < live; ++l) split_line(first + l * m.line, k, out + l * kLineBytes, width * kLineBytes);
}
// Lines adjacent: some panels, one step after the other.
void split_columns(const StridedMatrix& m, const float* first, Side side, int64_t width, int64_t lines, int64_t k,
                   int64_t panel_bytes, char* out) {
  for (int64_t p = 0; p < k; p += kStep, first += kStep * m.step, out += kStep * width * kValueBytes) {
    for (int64_t l = 0; l < lines; l += width) {
      const int64_t live = std::min(width, lines - l);
      char* to = out + l / width * panel_bytes;
      for (int64_t i = p + kStep; i < std::min(p + 2 * kStep, k); ++i) {  // far apart, where no hardware prefetches
        prefetch_range(first + (i - p) * m.step + l, live * 4);
      }
      if (side == Side::b) {
        split_rows(first + l, m.step, std::min(kStep, k - p), to);
      } else {
        clear_lines(width, live, 1, to);
        transpose_step(first + l, m.step, live, k - p, to);
      }
    }
  }
}

}  // namespace

[[gnu::target("avx512f,avx512bw,avx512dq")]] void split_rows(const float* rows, int64_t row, int64_t k, void* out) {
  char* to = static_cast<char*>(out);
  for (int64_t p = 0; p < k; p += kStep, to += kStep * kColumns * kValueBytes) {
    const int64_t count = std::min(kStep, k - p);
    for (int64_t i = 0; i < kStep; i += 2) {
      for (int64_t j = 0; j < kColumns; j += 16) {
        const float* from = rows + (p + i) * row + j;
        const __m512 first = i < count ? _mm512_loadu_ps(from) : _mm512_setzero_ps();
        const __m512 second = i + 1 < count ? _mm512_loadu_ps(from + row) : _mm512_setzero_ps();
        store_pairs(first, second, to + i / 2 * kPairsBytes + j * 4);
      }
    }
  }
}

void split_values(const float* from, int64_t count, void* to) {
  split_line(from, count, static_cast<char*>(to), kLineBytes);
}

void pack_split(const PanelSource& from, const GemmTile& tile, Side side, int64_t l0, int64_t lines, int64_t k0,
                int64_t k, void* out) {
  const int64_t width = tile.width(side), padded = tile.padded_k(k);
  const GemmTile plain = plain_tile(static_cast<int>(width));
  const StridedMatrix* matrix = from.strided();
  if (matrix && matrix->dtype != DType::f32) matrix = nullptr;
  const float* values =
      matrix ? static_cast<const float*>(matrix->in) + l0 * matrix->line + k0 * matrix->step : nullptr;
  alignas(64) float buffer[kChunk * 32];
  const int64_t panel_bytes = width * padded * kValueBytes;
  for (int64_t l = 0, done = 0; l < lines; l += done) {
    char* to = static_cast<char*>(out) + l / width * panel_bytes;
    done = std::min(width, lines - l);
    if (matrix && matrix->step == 1 && side == Side::a) {
      split_lines(*matrix, values + l * matrix->line, width, done, k, to);
      continue;
    }
    if (matrix && matrix->line == 1 && (side == Side::a || done == width)) {
      done = std::min(kTogether * width, side == Side::a ? lines - l : (lines - l) / width * width);
      split_columns(*matrix, values + l, side, width, done, k, panel_bytes, to);
      continue;
    }
    for (int64_t p = 0; p < k; p += kChunk) {
      const int64_t count = std::min(kChunk, k - p);
      from.pack(plain, side, l0 + l, done, k0 + p, count, buffer, nullptr);
      char* part = to + p * width * kValueBytes;
      side == Side::a ? split_values(buffer, width * plain.padded_k(count), part)
                      : split_rows(buffer, width, count, part);
    }
  }
}

}  // namespace deft::cpu

#endif
