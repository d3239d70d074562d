#include "kernels/cpu/product_columns.h"

#include <algorithm>

#include "kernels/cpu/workspace.h"
#include "runtime/cpu_isa.h"
#include "runtime/parallel.h"

#if defined(__x86_64__)
extern "C" {
#define DEFT_COLUMNS_TILE(name)                                                                                \
  void name(int64_t k, const float* a, const float* b, float* c, int64_t c_row, bool add, int64_t a_row_bytes, \
            int64_t b_row_bytes)
DEFT_COLUMNS_TILE(deft_avx512_f32_columns_12x32);
DEFT_COLUMNS_TILE(deft_avx512_f32_columns_8x32);
#undef DEFT_COLUMNS_TILE
}

namespace deft::cpu {

namespace {

constexpr int64_t kTall = 12, kLow = 8, kWide = 32;  // rows of the two tiles, columns of both
constexpr int64_t kBlock = 128;                      // of k: rows of a and b that stay in the second cache level
constexpr int64_t kGrain = 64 * 1024;                // multiply-adds that pay for a lane

// Wider ones gain less than they lose by lines that lie far apart: 256 x 1024 of 1568 positions 92 instead of 102
// GFLOP/s, 64 x 256 of 3136 112 instead of 82.
bool narrow(int64_t m, int64_t n) { return m <= 128 || (m <= 256 && n <= 512); }

// m as tiles of twelve rows and at most two of eight.
int64_t tall_tiles(int64_t m) { return m % kTall == 4 ? m / kTall - 1 : m / kTall; }

void run_tiles(const ColumnsProduct& p, int64_t begin, int64_t end) {
  const int64_t tall = tall_tiles(p.m), rows = tall + (p.m - tall * kTall) / kLow;
  for (int64_t k0 = 0; k0 < p.k; k0 += kBlock) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t % rows, j = t / rows * kWide, i = r < tall ? r * kTall : tall * kTall + (r - tall) * kLow;
      const auto run = r < tall ? deft_avx512_f32_columns_12x32 : deft_avx512_f32_columns_8x32;
      run(std::min(kBlock, p.k - k0), p.a + k0 * p.a_row + i, p.b + k0 * p.b_row + j, p.c + i * p.n + j, p.n, k0 > 0,
          4 * p.a_row, 4 * p.b_row);
    }
  }
}

void multiply(const ColumnsProduct& p) {
  const int64_t tall = tall_tiles(p.m), rows = tall + (p.m - tall * kTall) / kLow;
  const int64_t grain = std::max<int64_t>(1, kGrain / (kTall * kWide * p.k));
  parallel_balanced(0, p.n / kWide * rows, grain, [&](int64_t begin, int64_t end) { run_tiles(p, begin, end); });
}

// The other way round, for a wide a: rows of tiles are the narrow side.
void multiply_turned(const ColumnsProduct& p) {
  const Workspace<float> turned(p.m * p.n);
  multiply({p.n, p.m, p.k, p.b, p.b_row, p.a, p.a_row, turned.data()});
  constexpr int64_t kSquare = 16;
  parallel_for(0, p.m / kSquare, std::max<int64_t>(1, kGrain / (kSquare * p.n)), [&](int64_t begin, int64_t end) {
    for (int64_t i0 = begin * kSquare; i0 < end * kSquare; i0 += kSquare) {
      for (int64_t j = 0; j < p.n; ++j) {
        for (int64_t i = i0; i < i0 + kSquare; ++i) p.c[i * p.n + j] = turned[j * p.m + i];
      }
    }
  });
}

bool fits(int64_t m, int64_t n) { return m % 4 == 0 && m >= kLow && n % kWide == 0; }

}  // namespace

bool run_columns(const ColumnsProduct& p) {
  if (!cpu_has("avx512f") || p.k < kBlock || !narrow(std::min(p.m, p.n), std::max(p.m, p.n))) return false;
  if (p.m <= p.n && fits(p.m, p.n)) return multiply(p), true;
  if (p.m > p.n && fits(p.n, p.m)) return multiply_turned(p), true;
  return false;
}

}  // namespace deft::cpu

#else

bool deft::cpu::run_columns(const ColumnsProduct&) { return false; }

#endif
