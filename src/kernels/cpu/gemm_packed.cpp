// The blocked product: panels of a and b are packed (and widened) so that the register tile reads them in order.
// Every element of c is one chain of additions over k in fixed blocks of kBlockK, whatever the split over threads.
#include <algorithm>

#include "kernels/cpu/gemm_internal.h"
#include "kernels/cpu/workspace.h"
#include "runtime/parallel.h"

namespace deft::cpu::detail {
namespace {

constexpr int64_t kBlockM = 192, kBlockN = 2016, kBlockK = 384;
constexpr int64_t kSumRows = 1024, kSumCols = 1008;  // block of c that is summed in a workspace
constexpr int64_t kMaxTile = 8 * 48;                 // 8 rows, 3 vectors of 64 bytes
constexpr int64_t kStackBytes = 48 * 1024;
constexpr int64_t kGrain = 64 * 1024;  // multiply-adds that pay for a lane

constexpr int64_t round_up(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// Panels of `width` lines: out[p * width + r] = in[r * line + p * step], zero beyond `lines`.
template <class T, class Acc>
void pack(const T* in, int64_t line, int64_t step, int64_t lines, int64_t k, int64_t width, Acc* out) {
  for (int64_t l = 0; l < lines; l += width, in += width * line, out += width * k) {
    const int64_t live = std::min(width, lines - l);
    if (live < width) std::fill(out, out + width * k, Acc(0));
    if (line == 1) {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t r = 0; r < live; ++r) out[p * width + r] = widen(in[p * step + r]);
      }
    } else {
      for (int64_t p0 = 0; p0 < k; p0 += 16) {  // short runs keep the written lines in the first cache level
        const int64_t p1 = std::min(k, p0 + 16);
        for (int64_t r = 0; r < live; ++r) {
          for (int64_t p = p0; p < p1; ++p) out[p * width + r] = widen(in[r * line + p * step]);
        }
      }
    }
  }
}

template <class T, class Acc>
class Region {
 public:
  Region(const TypedGemm<T>& g, const MicroKernel<Acc>& kernel) : g_(g), kernel_(kernel) {
    // c itself can hold the partial sums.
    in_place_ = std::is_same_v<T, Acc> && g.c_col == 1;
  }

  void run(int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    const int64_t depth = std::min(g_.k, kBlockK);
    const bool sums = !in_place_ && g_.k > kBlockK;
    const int64_t rows = sums ? std::min(m1 - m0, kSumRows) : m1 - m0;
    const int64_t cols = std::min(n1 - n0, sums ? kSumCols : kBlockN);
    const int64_t a_size = round_up(std::min(rows, kBlockM), kernel_.mr) * depth;
    const int64_t b_size = round_up(cols, kernel_.nr) * depth;
    const int64_t sum_size = sums ? rows * cols : 0;
    const int64_t total = a_size + b_size + sum_size;
    alignas(64) unsigned char stack[kStackBytes];
    const bool small = total * static_cast<int64_t>(sizeof(Acc)) <= kStackBytes;
    Workspace<Acc> heap(small ? 0 : total);
    b_panels_ = small ? reinterpret_cast<Acc*>(stack) : heap.data();
    a_panels_ = b_panels_ + b_size;
    sums_ = sums ? a_panels_ + a_size : nullptr;
    for (int64_t i = m0; i < m1; i += rows) {
      for (int64_t j = n0; j < n1; j += cols) block(i, std::min(m1, i + rows), j, std::min(n1, j + cols));
    }
  }

 private:
  void block(int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    for (int64_t p = 0; p < g_.k; p += kBlockK) {
      const int64_t depth = std::min(kBlockK, g_.k - p);
      pack(g_.b + p * g_.b_row + n0 * g_.b_col, g_.b_col, g_.b_row, n1 - n0, depth, kernel_.nr, b_panels_);
      for (int64_t i = m0; i < m1; i += kBlockM) {
        const int64_t rows = std::min(kBlockM, m1 - i);
        pack(g_.a + i * g_.a_row + p * g_.a_col, g_.a_row, g_.a_col, rows, depth, kernel_.mr, a_panels_);
        for (int64_t j = n0; j < n1; j += kernel_.nr) {
          for (int64_t r = 0; r < rows; r += kernel_.mr) {
            tile(i + r, std::min(kernel_.mr, rows - r), j, std::min(kernel_.nr, n1 - j), p, depth,
                 a_panels_ + r * depth, b_panels_ + (j - n0) * depth, m0, n0, n1 - n0);
          }
        }
      }
    }
    if (!sums_) return;
    for (int64_t i = m0; i < m1; ++i) {
      for (int64_t j = n0; j < n1; ++j) finish(g_, i, j, sums_[(i - m0) * (n1 - n0) + j - n0], g_.accumulate);
    }
  }

  void tile(int64_t i, int64_t rows, int64_t j, int64_t cols, int64_t p, int64_t depth, const Acc* a, const Acc* b,
            int64_t m0, int64_t n0, int64_t sum_row) {
    const bool whole = rows == kernel_.mr && cols == kernel_.nr;
    if constexpr (std::is_same_v<T, Acc>) {
      if (in_place_) return tile_in_c(i, rows, j, cols, p, depth, a, b, whole);
    }
    if (sums_) {
      Acc* sum = sums_ + (i - m0) * sum_row + (j - n0);
      if (whole) return kernel_.tile(depth, a, b, sum, sum_row, p > 0);
      return edge(depth, a, b, rows, cols, [&](int64_t r, int64_t q, Acc v) {
        Acc& to = sum[r * sum_row + q];
        to = p > 0 ? to + v : v;
      });
    }
    edge(depth, a, b, rows, cols, [&](int64_t r, int64_t q, Acc v) { finish(g_, i + r, j + q, v, g_.accumulate); });
  }

  void tile_in_c(int64_t i, int64_t rows, int64_t j, int64_t cols, int64_t p, int64_t depth, const Acc* a, const Acc* b,
                 bool whole) {
    const bool add = p > 0 || g_.accumulate;
    Acc* c = reinterpret_cast<Acc*>(g_.c) + i * g_.c_row + j;
    if (whole) {
      kernel_.tile(depth, a, b, c, g_.c_row, add);
    } else {
      edge(depth, a, b, rows, cols, [&](int64_t r, int64_t q, Acc v) {
        Acc& to = c[r * g_.c_row + q];
        to = add ? to + v : v;
      });
    }
    if (!g_.bias || p + depth < g_.k) return;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t q = 0; q < cols; ++q) c[r * g_.c_row + q] += widen(g_.bias[g_.bias_on_rows ? i + r : j + q]);
    }
  }

  template <class Put>
  void edge(int64_t depth, const Acc* a, const Acc* b, int64_t rows, int64_t cols, Put put) {
    alignas(64) Acc out[kMaxTile];
    kernel_.tile(depth, a, b, out, kernel_.nr, false);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t q = 0; q < cols; ++q) put(r, q, out[r * kernel_.nr + q]);
    }
  }

  const TypedGemm<T>& g_;
  const MicroKernel<Acc>& kernel_;
  bool in_place_;
  Acc* a_panels_ = nullptr;
  Acc* b_panels_ = nullptr;
  Acc* sums_ = nullptr;
};

struct Grid {
  int64_t rows, cols;
};

// As many lanes as the work pays for, split so that each packs as little as possible.
Grid choose_grid(int64_t m, int64_t n, int64_t k, int64_t mr, int64_t nr) {
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const int64_t row_tiles = (m + mr - 1) / mr, col_tiles = (n + nr - 1) / nr;
  const int64_t lanes = std::min<int64_t>(in_parallel_region() ? 1 : num_threads(),
                                          static_cast<int64_t>(std::min(work / kGrain, 1024.0)) + 1);
  Grid best{1, 1};
  double best_cost = 1e300;
  for (int64_t r = 1; r <= std::min(lanes, row_tiles); ++r) {
    const int64_t c = std::min(lanes / r, col_tiles);
    const double tall = static_cast<double>((row_tiles + r - 1) / r * mr);
    const double wide = static_cast<double>((col_tiles + c - 1) / c * nr);
    const double cost = tall * wide + 32 * (tall + wide);  // packing one value costs about 32 multiply-adds
    if (cost < best_cost) best_cost = cost, best = {r, c};
  }
  return best;
}

}  // namespace

template <class T>
void gemm_packed(const TypedGemm<T>& g) {
  using Acc = accumulate_t<T>;
  const MicroKernel<Acc> kernel = micro_kernel(Acc());
  const Grid grid = choose_grid(g.m, g.n, g.k, kernel.mr, kernel.nr);
  if (grid.rows * grid.cols == 1) return Region<T, Acc>(g, kernel).run(0, g.m, 0, g.n);
  const int64_t row_tiles = (g.m + kernel.mr - 1) / kernel.mr, col_tiles = (g.n + kernel.nr - 1) / kernel.nr;
  parallel_for(0, grid.rows * grid.cols, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t / grid.cols, c = t % grid.cols;
      Region<T, Acc>(g, kernel).run(
          row_tiles * r / grid.rows * kernel.mr, std::min(g.m, row_tiles * (r + 1) / grid.rows * kernel.mr),
          col_tiles * c / grid.cols * kernel.nr, std::min(g.n, col_tiles * (c + 1) / grid.cols * kernel.nr));
    }
  });
}

template void gemm_packed(const TypedGemm<float>&);
template void gemm_packed(const TypedGemm<double>&);
template void gemm_packed(const TypedGemm<BFloat16>&);
template void gemm_packed(const TypedGemm<Half>&);

}  // namespace deft::cpu::detail
