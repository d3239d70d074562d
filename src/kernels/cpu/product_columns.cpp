#include "kernels/cpu/product_columns.h"

#include <algorithm>

#include "kernels/cpu/transpose.h"
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
constexpr int64_t kChain = 16 * 1024;                // of k that are summed in one go
constexpr int64_t kGrain = 64 * 1024;                // multiply-adds that pay for a lane

// Wider ones gain less than they lose by lines that lie far apart: 256 x 1024 of 1568 positions 92 instead of 102
// GFLOP/s, 64 x 256 of 3136 112 instead of 82.
bool narrow(int64_t m, int64_t n) { return m <= 128 || (m <= 256 && n <= 512); }

// m as tiles of twelve rows and at most two of eight.
int64_t tall_tiles(int64_t m) { return m % kTall == 4 ? m / kTall - 1 : m / kTall; }
int64_t row_tiles(int64_t m) { return tall_tiles(m) + (m - tall_tiles(m) * kTall) / kLow; }

void run_tiles(const ColumnsProduct& p, int64_t begin, int64_t end) {
  const int64_t tall = tall_tiles(p.m), rows = row_tiles(p.m);
  for (int64_t k0 = 0; k0 < p.k; k0 += kBlock) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t % rows, j = t / rows * kWide, i = r < tall ? r * kTall : tall * kTall + (r - tall) * kLow;
      const auto run = r < tall ? deft_avx512_f32_columns_12x32 : deft_avx512_f32_columns_8x32;
      run(std::min(kBlock, p.k - k0), p.a + k0 * p.a_row + i, p.b + k0 * p.b_row + j, p.c + i * p.n + j, p.n, k0 > 0,
          4 * p.a_row, 4 * p.b_row);
    }
  }
}

void multiply_chain(const ColumnsProduct& p) {
  const int64_t grain = std::max<int64_t>(1, kGrain / (kTall * kWide * p.k));
  parallel_balanced(0, p.n / kWide * row_tiles(p.m), grain,
                    [&](int64_t begin, int64_t end) { run_tiles(p, begin, end); });
}

// Sums of kChain at a time, so that their errors stay small.
void multiply(const ColumnsProduct& p) {
  ColumnsProduct part = p;
  part.k = std::min(p.k, kChain);
  multiply_chain(part);
  const Workspace<float> sums(p.k > kChain ? p.m * p.n : 0);
  part.c = sums.data();
  for (int64_t k0 = kChain; k0 < p.k; k0 += kChain) {
    part.a = p.a + k0 * p.a_row, part.b = p.b + k0 * p.b_row, part.k = std::min(kChain, p.k - k0);
    multiply_chain(part);
    for (int64_t i = 0; i < p.m * p.n; ++i) p.c[i] += sums[i];
  }
}

// The other way round, for a wide a: rows of tiles are the narrow side.
void multiply_turned(const ColumnsProduct& p) {
  const Workspace<float> turned(p.m * p.n);
  multiply({p.n, p.m, p.k, p.b, p.b_row, p.a, p.a_row, turned.data()});
  transpose_block(
      {4, reinterpret_cast<const char*>(turned.data()), 4, 4 * p.m, reinterpret_cast<char*>(p.c), 4 * p.n, p.m, p.n});
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
