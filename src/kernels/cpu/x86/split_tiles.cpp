// Note [Split f32]: an f32 value is the sum of three bf16 values: its first 8 bits rounded, the next 8 of the rest, and
// the remainder, exactly. AMX multiplies bf16 16 times as fast as AVX-512 multiplies f32, so six multiplications of
// parts take at most half the time of one of f32. The three that are left out are below 2^-26 of the full value, a
// quarter of what rounding it to f32 may lose; and sums of 32 values are added at a time, not one, so results are
// nearer to the exact ones than those of a chain of fused multiply-adds. Differences: AMX flushes numbers below 2^-126
// to zero, so values and parts of that size are lost, which shows in results below about 2^-100; and infinities come
// out as NaN (one part of them is), so every NaN result is recomputed from the whole values.
//
// Where the user allows TF32 (10 bits), the first two parts (16 bits) and three multiplications of them are enough.
#if defined(__x86_64__)

#include "kernels/cpu/x86/split_tiles.h"

#include <cmath>

#include "runtime/numerics.h"

// GCC 12 warns of its own header.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

extern "C" {
void deft_amx_split_32x32(const deft::cpu::detail::ConvTile* tile);
void deft_amx_split_16x32(const deft::cpu::detail::ConvTile* tile);
void deft_amx_rough_32x32(const deft::cpu::detail::ConvTile* tile);
void deft_amx_rough_16x32(const deft::cpu::detail::ConvTile* tile);
}

namespace deft::cpu {

namespace {

using detail::ConvTile;
using detail::Piece;

constexpr int kColumns = 32, kStep = 32;
constexpr int64_t kPartBytes = 64, kLineBytes = 3 * kPartBytes;  // of a step of one row of a

#define DEFT_AVX512 [[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline

// Values from words with a part in their upper halves. The last part of an infinity is NaN.
DEFT_AVX512 __m512 whole(__m512i first, __m512i second, __m512i third) {
  constexpr int kInfinities = 0x18;
  const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(first), _mm512_castsi512_ps(second));
  const __mmask16 finite = static_cast<__mmask16>(~_mm512_fpclass_ps_mask(sum, kInfinities));
  return _mm512_mask_add_ps(sum, finite, sum, _mm512_castsi512_ps(third));
}
DEFT_AVX512 __m512i in_upper_halves(const char* from) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))), 16);
}
// 16 values of a row of a.
DEFT_AVX512 __m512 whole_of_row(const char* from, int64_t part) {
  return whole(in_upper_halves(from), in_upper_halves(from + part), in_upper_halves(from + 2 * part));
}
// Values k and k + 1 of 16 columns of b.
DEFT_AVX512 void whole_of_pairs(const char* from, float* even, float* odd) {
  constexpr int64_t kPart = 2 * kColumns * 2;
  const __m512i first = _mm512_loadu_si512(from), second = _mm512_loadu_si512(from + kPart);
  const __m512i third = _mm512_loadu_si512(from + 2 * kPart), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  _mm512_store_ps(even,
                  whole(_mm512_slli_epi32(first, 16), _mm512_slli_epi32(second, 16), _mm512_slli_epi32(third, 16)));
  _mm512_store_ps(
      odd, whole(_mm512_and_si512(first, upper), _mm512_and_si512(second, upper), _mm512_and_si512(third, upper)));
}

[[gnu::target("avx512f,avx512dq")]] void add_whole_step(const char* a, int64_t a_row, int64_t a_part, int rows,
                                                        const char* b, float* sums) {
  alignas(64) float right[kStep][kColumns], left[kStep];
  for (int k = 0; k < kStep; k += 2) {
    for (int j = 0; j < kColumns; j += 16) whole_of_pairs(b + k * kColumns * 6 + j * 4, right[k] + j, right[k + 1] + j);
  }
  for (int i = 0; i < rows; ++i, a += a_row, sums += kColumns) {
    _mm512_store_ps(left, whole_of_row(a, a_part));
    _mm512_store_ps(left + 16, whole_of_row(a + 32, a_part));
    __m512 low = _mm512_loadu_ps(sums), high = _mm512_loadu_ps(sums + 16);
    for (int k = 0; k < kStep; ++k) {
      const __m512 x = _mm512_set1_ps(left[k]);
      low = _mm512_fmadd_ps(x, _mm512_load_ps(right[k]), low);
      high = _mm512_fmadd_ps(x, _mm512_load_ps(right[k] + 16), high);
    }
    _mm512_storeu_ps(sums, low);
    _mm512_storeu_ps(sums + 16, high);
  }
}

[[gnu::target("avx512f")]] bool any_nan(const float* c, int64_t c_row, int rows, bool wide = true) {
  unsigned found = 0;
  for (int i = 0; i < rows; ++i, c += c_row) {
    found |= _mm512_cmp_ps_mask(_mm512_loadu_ps(c), _mm512_loadu_ps(wide ? c + 16 : c), _CMP_UNORD_Q);
  }
  return found != 0;
}

void replace(const float* from, float* c, int64_t c_row, int rows) {
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      float& x = c[i * c_row + j];
      if (std::isnan(x)) x = from[i * kColumns + j];
    }
  }
}

[[gnu::target("avx512f")]] void add_rows(int rows, const float* sums, float* c, int64_t c_row) {
  for (int i = 0; i < rows; ++i, sums += kColumns, c += c_row) {
    _mm512_storeu_ps(c, _mm512_add_ps(_mm512_loadu_ps(c), _mm512_load_ps(sums)));
    _mm512_storeu_ps(c + 16, _mm512_add_ps(_mm512_loadu_ps(c + 16), _mm512_load_ps(sums + 16)));
  }
}

[[gnu::noinline]] void find_again(const ConvTile& tile, int rows, float* c, int64_t c_row) {
  alignas(64) float sums[32 * kColumns] = {};
  add_whole_steps(tile, rows, sums);
  replace(sums, c, c_row, rows);
}

// Sums of a later block of k are computed separately, as they may have to be recomputed.
template <int rows, auto multiply, auto multiply_roughly>
void run_split(int64_t steps, const void* a, const void* b, void* to, int64_t c_row, bool add, const void* b_ahead) {
  float* c = static_cast<float*>(to);
  alignas(64) float own[rows * kColumns];
  float* sums = add ? own : c;
  const int64_t row = add ? kColumns : c_row;
  const Piece all{steps, 0};
  const ConvTile tile{a, b, sums, row * 4, 0, kLineBytes, &all, 1, rows * kLineBytes, b_ahead};
  allow_tf32() ? multiply_roughly(&tile) : multiply(&tile);
  if (any_nan(sums, row, rows)) find_again(tile, rows, sums, row);
  if (add) add_rows(rows, own, c, c_row);
}

}  // namespace

void run_split_32x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add) {
  run_split<32, deft_amx_split_32x32, deft_amx_rough_32x32>(steps, a, b, c, c_row, add, b);
}
void run_split_16x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add) {
  run_split<16, deft_amx_split_16x32, deft_amx_rough_16x32>(steps, a, b, c, c_row, add, b);
}
void run_split_ahead_32x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add,
                           const void* b_ahead) {
  run_split<32, deft_amx_split_32x32, deft_amx_rough_32x32>(steps, a, b, c, c_row, add, b_ahead);
}
void run_split_ahead_16x32(int64_t steps, const void* a, const void* b, void* c, int64_t c_row, bool add,
                           const void* b_ahead) {
  run_split<16, deft_amx_split_16x32, deft_amx_rough_16x32>(steps, a, b, c, c_row, add, b_ahead);
}

bool has_nan(const float* sums, int rows, bool wide) { return any_nan(sums, kColumns, rows, wide); }

void add_whole_steps(const ConvTile& tile, int rows, float* sums) {
  const char* a = static_cast<const char*>(tile.a);
  const char* b = static_cast<const char*>(tile.b);
  for (int64_t piece = 0; piece < tile.count; ++piece, a += tile.pieces[piece - 1].skip) {
    for (int64_t s = 0; s < tile.pieces[piece].count; ++s, a += tile.a_step, b += 3 * kColumns * kStep * 2) {
      add_whole_step(a, tile.a_row, tile.a_part, rows, b, sums);
    }
  }
}

void replace_nan(const float* whole_sums, int rows, float* sums) { replace(whole_sums, sums, kColumns, rows); }

}  // namespace deft::cpu

#endif
