#include "kernels/cpu/gemm/gemm_tn.h"

#include <algorithm>

#include "kernels/cpu/copy/transpose.h"
#include "kernels/cpu/gemm/gemm_tn_tiles.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu {

namespace {

constexpr int64_t kBlock = 128;        // of k: rows of a and b that stay in L2
constexpr int64_t kChain = 16 * 1024;  // of k that are summed in one go
constexpr int64_t kMostParts = 16, kLeastPart = 4096, kPartValues = 512 * 1024;  // sums of parts of k
constexpr int64_t kTasks = 2;          // for each thread if there are several, which may trade them
constexpr int64_t kGrain = 64 * 1024;  // multiply-adds that pay for a thread

// Wider matrices gain less than they lose by rows that lie far apart: 256 x 1024 of 1568 positions 97 instead of 106
// GFLOP/s, 64 x 256 of 3136 119 instead of 82.
bool narrow(int64_t m, int64_t n) { return m <= 128 || (m <= 256 && n <= 512); }

// Runs tiles [begin, end) over all of k, on the columns of b that they read.
void run_tiles(const GemmTn& p, const GemmTnTiles& tiles, int64_t begin, int64_t end) {
  constexpr int64_t kLine = GemmTnTiles::kLine;
  const int64_t left = begin / tiles.rows() * GemmTnTiles::kWide;
  const int64_t width = (end + tiles.rows() - 1) / tiles.rows() * GemmTnTiles::kWide - left, lines = width / kLine;
  const bool whole = p.b_row == width;
  const int64_t step = lines > kBlock ? kBlock : kBlock / lines * lines;  // whole rows of prefetched cache lines
  for (int64_t k0 = 0, k = 0; k0 < p.k; k0 += k) {
    k = std::min(step, p.k - k0);
    const int64_t next = k0 + k, rest = std::min(step, p.k - next);
    GemmTnBlock block{.width = k, .lines = 1, .a = {p.a + k0 * p.a_row, p.a_row}, .b = {p.b + k0 * p.b_row, p.b_row}};
    if (p.a_row == p.m) block.later[0] = {p.a + next * p.a_row, rest * p.m / kLine};
    if (whole || lines > kBlock) {
      block.later[1] = {p.b + next * p.b_row, whole ? rest * lines : 0};
    } else if (k == step) {
      block.width = lines, block.lines = k / lines;
      block.later[1] = {p.b + next * p.b_row + left, rest * lines, p.b_row - width};
    }
    tiles.run(block, begin, end, k0 > 0);
  }
}

// Number of partial sums over k, which keep rounding errors small and let threads read different rows. Depends on sizes
// only.
int64_t parts_of(const GemmTn& p) {
  const int64_t chains = (p.k + kChain - 1) / kChain;
  return std::max(chains, std::min<int64_t>({kMostParts, p.k / kLeastPart, kPartValues / (p.m * p.n)}));
}

void multiply(const GemmTn& p) {
  const int64_t parts = parts_of(p), size = p.m * p.n, threads = num_threads();
  const Workspace<float> sums((parts - 1) * size);
  const auto part_of = [&](int64_t part) {
    const int64_t k0 = part * p.k / parts, k1 = (part + 1) * p.k / parts;
    float* c = part == 0 ? p.c : sums.data() + (part - 1) * size;
    return GemmTn{p.m, p.n, k1 - k0, p.a + k0 * p.a_row, p.a_row, p.b + k0 * p.b_row, p.b_row, c};
  };
  // With more threads than parts, threads share the tiles of each part.
  const int64_t tiles = GemmTnTiles(p.m, p.n, {{}}, p.c, p.n).count();
  const int64_t groups = threads == 1 ? 1 : std::min(tiles, (kTasks * threads + parts - 1) / parts);
  const int64_t grain = std::max<int64_t>(1, kGrain * parts * groups / (size * p.k));
  parallel_balanced(0, parts * groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const GemmTn part = part_of(task / groups);
      const int64_t group = task % groups;
      run_tiles(part, GemmTnTiles(p.m, p.n, {{}}, part.c, p.n), group * tiles / groups, (group + 1) * tiles / groups);
    }
  });
  if (parts == 1) return;
  parallel_for(0, size, kGrain / parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = 0; part + 1 < parts; ++part) {
      for (int64_t i = begin; i < end; ++i) p.c[i] += sums[part * size + i];
    }
  });
}

// c^T = b^T a for a wide a: tile rows are the narrow side.
void multiply_transposed(const GemmTn& p) {
  const Workspace<float> transposed(p.m * p.n);
  multiply({p.n, p.m, p.k, p.b, p.b_row, p.a, p.a_row, transposed.data()});
  transpose_block({4, reinterpret_cast<const char*>(transposed.data()), 4, 4 * p.m, reinterpret_cast<char*>(p.c),
                   4 * p.n, p.m, p.n});
}

bool fits(int64_t m, int64_t n) {
  return GemmTnTiles::available() && m > 0 && GemmTnTiles::rows_of(m) == m && n > 0 && n % GemmTnTiles::kWide == 0;
}

}  // namespace

bool run_gemm_tn(const GemmTn& p) {
  if (p.k < kBlock || !narrow(std::min(p.m, p.n), std::max(p.m, p.n))) return false;
  if (p.m <= p.n && fits(p.m, p.n)) return multiply(p), true;
  if (p.m > p.n && fits(p.n, p.m)) return multiply_transposed(p), true;
  return false;
}

}  // namespace deft::cpu
