// How softmax kernels divide rows whose elements are not contiguous: (outer, n, inner) with inner > 1.
#pragma once

#include "kernels/cuda/norm/softmax.h"
#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda {

inline constexpr int kColumnThreads = 256;
inline constexpr int kColumnItems = 8;  // elements of a row that one thread has in registers
// Neighbouring rows of one thread where inner and alignment allow it.
template <class T>
inline constexpr int kColumnVec = sizeof(T) == 8 ? 2 : 4;

// A block has 2^log_x threads along inner, 2^log_y along n, the others along outer. A strip is what it covers of inner.
struct ColumnShape {
  int log_x = 0, log_y = 0;
  int64_t outer, n, inner, strips;
  unsigned blocks;

  ColumnShape(const RowsView& v, int vec) : outer(v.outer), n(v.n), inner(v.inner) {
    const int64_t packs = inner / vec;
    auto covers = [](int log, int64_t count) { return (int64_t{1} << log) >= count; };
    while (log_x < 5 && !covers(log_x, packs)) ++log_x;
    while (log_x + log_y < 8 && !covers(log_y, (n + kColumnItems - 1) / kColumnItems)) ++log_y;
    while (log_x + log_y < 8 && !covers(log_x, packs)) ++log_x;
    strips = (packs + (int64_t{1} << log_x) - 1) >> log_x;
    const int64_t deep = int64_t{kColumnThreads} >> (log_x + log_y);
    blocks = static_cast<unsigned>((outer + deep - 1) / deep * strips);
  }
};

// The place of a thread: its first element and where it shares results with the others of its rows.
template <int kVec>
struct ColumnPlace {
  int x, y, height, slot;  // height: threads along n; slot: of the thread with y = 0
  bool live;
  int64_t first;  // element number of the row's element 0
  __device__ __forceinline__ explicit ColumnPlace(const ColumnShape& s) {
    const int t = threadIdx.x;
    x = t & ((1 << s.log_x) - 1);
    height = 1 << s.log_y;
    y = (t >> s.log_x) & (height - 1);
    const int z = t >> (s.log_x + s.log_y);
    slot = (z << (s.log_x + s.log_y)) + x;
    const int64_t group = blockIdx.x / s.strips, strip = blockIdx.x - group * s.strips;
    const int64_t o = group * (kColumnThreads >> (s.log_x + s.log_y)) + z;
    const int64_t column = ((strip << s.log_x) + x) * kVec;
    live = o < s.outer && column < s.inner;
    first = o * s.n * s.inner + column;
  }
};

}  // namespace deft::cuda
