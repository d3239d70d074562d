// What both directions of attention share: tiles of rows in shared memory, a warp's MMAs on them, masks. Internal.
//
// Note [Warps have rows]: a warp computes scores for 16 or 32 rows of its own (queries, or keys in the pass for their
// gradients) against columns that the block shares. The result of an MMA is in registers in the layout of the left side
// of the next one, so that scores never leave them.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/gemm/mma.cuh"
#include "kernels/cuda/reduce/block_reduce.cuh"

namespace deft::cuda::heads {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr double kLog2E = 1.44269504088896340736;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline __device__ int64_t head_offset(const AttentionCall& c, const HeadsView& v, unsigned head) {
  int64_t offset = 0;
  for (int i = c.lead_dims - 1; i >= 0; --i) {
    const unsigned n = static_cast<unsigned>(c.lead[i]);
    offset += static_cast<int64_t>(head % n) * v.lead[i];
    head /= n;
  }
  return offset;
}

// The rows of one head.
template <class T>
struct HeadRows {
  T* data;
  int64_t step;
  int rows, features;
  bool aligned;
  __device__ HeadRows(const AttentionCall& c, const HeadsView& v, unsigned head, int64_t n, int64_t e)
      : data(static_cast<T*>(v.data) + head_offset(c, v, head)),
        step(v.row),
        rows(static_cast<int>(n)),
        features(static_cast<int>(e)),
        aligned(v.aligned) {}
};

// Keys of a head that a bool mask hides from all queries; they are read as zeros, since a weight of 0 does not stop
// NaN.
struct HiddenKeys {
  const bool* shown = nullptr;
  int64_t step = 0;
  __device__ HiddenKeys() {}
  __device__ HiddenKeys(const AttentionCall& c, unsigned head) {
    if (!c.mask.data || c.mask_dtype != DType::boolean || c.mask.row != 0) return;
    shown = static_cast<const bool*>(c.mask.data) + head_offset(c, c.mask, head);
    step = c.mask_key;
  }
  __device__ __forceinline__ bool operator()(int key) const { return shown && !shown[key * step]; }
};

// [rows][kD] in shared memory, in pieces of 8 values that are permuted within 8 rows: reading one piece of 8 rows then
// meets all banks. Pieces and rows below are even numbers and multiples of 8.
template <class T, int kD>
struct Tile {
  static constexpr int kRowBytes = kD * 2, kPieces = kD / 8;
  char* data;

  __device__ __forceinline__ char* piece(int row, int index) const {
    return data + row * kRowBytes + ((index ^ (row & 7)) * 16);
  }
  // The address of this warp lane in four matrices: 16 rows from `row` by two pieces. Sides a, and b if transposed.
  __device__ __forceinline__ const char* tall(int row, int index) const {
    const int lane = threadIdx.x % 32;
    return data + row * kRowBytes + lane % 16 * kRowBytes + (((lane / 16) ^ (lane & 7)) * 16 ^ index * 16);
  }
  // The same with the matrices in the order of side b.
  __device__ __forceinline__ const char* wide(int row, int index) const {
    const int lane = threadIdx.x % 32;
    return data + row * kRowBytes + (lane / 16 * 8 + lane % 8) * kRowBytes +
           (((lane / 8 % 2) ^ (lane & 7)) * 16 ^ index * 16);
  }

  // Rows from `begin` on; those past the end, hidden ones and features past the last become zeros.
  template <int kRows, int kBlock = kThreads>
  __device__ __forceinline__ void load(const HeadRows<T>& from, int begin, const HiddenKeys& hidden = {}) const {
    constexpr int kStep = kBlock / kPieces;
    static_assert(kRows % kStep == 0);
    const int index = threadIdx.x % kPieces, feature = index * 8;
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const int line = threadIdx.x / kPieces + i * kStep, row = begin + line;
      const bool zeros = row >= from.rows || feature >= from.features || hidden(row);
      const T* in = zeros ? from.data : from.data + row * from.step + feature;
      char* out = piece(line, index);
      if (from.aligned) {
        copy_async(out, in, zeros);
      } else {
        T* values = reinterpret_cast<T*>(out);
        for (int f = 0; f < 8; ++f) values[f] = zeros || feature + f >= from.features ? T{} : in[f];
      }
    }
  }
};

// A warp's rows as the left side of MMAs, read from shared memory each time or held in registers.
template <class T, int kD, int kTiles>
struct LeftInMemory {
  Tile<T, kD> tile;
  int row;
  __device__ __forceinline__ void get(int i, int k, uint32_t (&r)[4]) const {
    load_matrices(tile.tall(row + i * 16, k), r);
  }
};
template <class T, int kD, int kTiles>
struct LeftInRegisters {
  uint32_t values[kTiles][kD / 16][4];
  __device__ __forceinline__ void load(const LeftInMemory<T, kD, kTiles>& from) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) from.get(i, k * 2, values[i][k]);
  }
  __device__ __forceinline__ void get(int i, int k, uint32_t (&r)[4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) r[j] = values[i][k / 2][j];
  }
};

// acc [16 * kTiles rows][8 * kColumns] += rows of `a` times rows of `b` from `column` on, over features.
template <class Left, class T, int kD, int kTiles, int kColumns>
__device__ __forceinline__ void multiply_rows(const Left& a, const Tile<T, kD>& b, int column,
                                              float (&acc)[kTiles][kColumns][4]) {
#pragma unroll
  for (int k = 0; k < kD / 8; k += 2) {
    uint32_t left[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) a.get(i, k, left[i]);
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      uint32_t right[4];
      load_matrices(b.wide(column + j * 8, k), right);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        multiply_add<T>(acc[i][j], left[i], right[0], right[1]);
        multiply_add<T>(acc[i][j + 1], left[i], right[2], right[3]);
      }
    }
  }
}

// acc [16 * kTiles rows][kD] += w [rows][8 * kColumns], rounded to T, times as many rows of `b` from `row` on.
template <class T, int kD, int kTiles, int kColumns>
__device__ __forceinline__ void multiply_weights(const float (&w)[kTiles][kColumns][4], const Tile<T, kD>& b, int row,
                                                 float (&acc)[kTiles][kD / 8][4]) {
#pragma unroll
  for (int k = 0; k < kColumns; k += 2) {
    uint32_t left[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      left[i][0] = pack_pair<T>(w[i][k][0], w[i][k][1]);
      left[i][1] = pack_pair<T>(w[i][k][2], w[i][k][3]);
      left[i][2] = pack_pair<T>(w[i][k + 1][0], w[i][k + 1][1]);
      left[i][3] = pack_pair<T>(w[i][k + 1][2], w[i][k + 1][3]);
    }
#pragma unroll
    for (int j = 0; j < kD / 8; j += 2) {
      uint32_t right[4];
      load_matrices_transposed(b.tall(row + k * 8, j), right);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        multiply_add<T>(acc[i][j], left[i], right[0], right[1]);
        multiply_add<T>(acc[i][j + 1], left[i], right[2], right[3]);
      }
    }
  }
}

template <int kTiles, int kColumns>
__device__ __forceinline__ void clear(float (&acc)[kTiles][kColumns][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) acc[i][j][r] = 0;
}

// Row r of this warp lane's 2 * kTiles rows of a result, and its columns.
__device__ __forceinline__ int lane_row(int r) { return r / 2 * 16 + r % 2 * 8 + threadIdx.x % 32 / 4; }
__device__ __forceinline__ int lane_column(int j) { return j * 8 + threadIdx.x % 4 * 2; }

// Writes a warp's rows, each times its factor, to rows of `to` from `begin` on. They go through the warp's rows of
// `tile`, from `row` on, which nothing else may use any more: whole rows are written at once.
template <class T, int kD, int kTiles>
__device__ __forceinline__ void store_rows(const float (&acc)[kTiles][kD / 8][4], const float (&factor)[kTiles * 2],
                                           const Tile<T, kD>& tile, int row, const HeadRows<T>& to, int begin) {
  constexpr int kPieces = Tile<T, kD>::kPieces;
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int r = 0; r < kTiles * 2; ++r) {
#pragma unroll
    for (int j = 0; j < kD / 8; ++j) {
      const float* v = &acc[r / 2][j][r % 2 * 2];
      *reinterpret_cast<uint32_t*>(tile.piece(row + lane_row(r), j) + lane % 4 * 4) =
          pack_pair<T>(v[0] * factor[r], v[1] * factor[r]);
    }
  }
  __syncwarp();
  for (int i = lane; i < kTiles * 16 * kPieces; i += 32) {
    const int line = i / kPieces, index = i % kPieces, feature = index * 8;
    if (begin + line >= to.rows || feature >= to.features) continue;
    const char* in = tile.piece(row + line, index);
    T* out = to.data + (begin + line) * to.step + feature;
    if (to.aligned) {
      *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(in);
    } else {
      const T* values = reinterpret_cast<const T*>(in);
      for (int f = 0; f < 8 && feature + f < to.features; ++f) out[f] = values[f];
    }
  }
}

// The mask of one head, seen by rows and columns of scores: queries by keys, or keys by queries.
template <class T>
struct Mask {
  const void* data = nullptr;
  int64_t row_step = 0, column_step = 0;
  int last_row = 0, last_column = 0;
  bool flags = false;

  __device__ Mask(const AttentionCall& c, unsigned head, bool rows_are_keys) {
    if (!c.mask.data) return;
    const int64_t offset = head_offset(c, c.mask, head);
    flags = c.mask_dtype == DType::boolean;
    data = static_cast<const char*>(c.mask.data) + offset * (flags ? 1 : 2);
    row_step = rows_are_keys ? c.mask_key : c.mask.row;
    column_step = rows_are_keys ? c.mask.row : c.mask_key;
    last_row = static_cast<int>(rows_are_keys ? c.keys : c.queries) - 1;
    last_column = static_cast<int>(rows_are_keys ? c.queries : c.keys) - 1;
  }
  // In powers of 2. Places past the end repeat the last one.
  __device__ __forceinline__ float at(int row, int column) const {
    if (!data) return 0;
    const int64_t i = min(row, last_row) * row_step + min(column, last_column) * column_step;
    if (flags) return static_cast<const bool*>(data)[i] ? 0.f : -kInfinity;
    return to_float(static_cast<const T*>(data)[i]) * static_cast<float>(kLog2E);
  }
};

// Scales scores [rows from `row`][columns from `column`] and adds the mask; -inf hides whatever the score is.
template <class T, int kTiles, int kColumns>
__device__ __forceinline__ void add_mask(const Mask<T>& mask, int row, int column, float scale,
                                         float (&s)[kTiles][kColumns][4]) {
  float of_row[kTiles * 2];
#pragma unroll
  for (int r = 0; r < kTiles * 2; ++r) of_row[r] = mask.column_step == 0 ? mask.at(row + lane_row(r), 0) : 0.f;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = column + lane_column(j) + h;
      float bias = 0;
#pragma unroll
      for (int r = 0; r < kTiles * 2; ++r) {
        if (mask.column_step == 0)
          bias = of_row[r];
        else if (r == 0 || mask.row_step != 0)
          bias = mask.at(row + lane_row(r), at);
        float& v = s[r / 2][j][r % 2 * 2 + h];
        v = bias == -kInfinity ? -kInfinity : v * scale + bias;
      }
    }
  }
}

// Hides scores where hidden(row, column).
template <int kTiles, int kColumns, class F>
__device__ __forceinline__ void hide(int row, int column, float (&s)[kTiles][kColumns][4], const F& hidden) {
#pragma unroll
  for (int r = 0; r < kTiles * 2; ++r)
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (hidden(row + lane_row(r), column + lane_column(j) + h)) s[r / 2][j][r % 2 * 2 + h] = -kInfinity;
}

// ---- Dropout.

// Bit k: element 4 * block + k stays.
__device__ __forceinline__ uint32_t kept_of_block(const Dropping& d, uint64_t block) {
  const auto words = philox(d.draw, block);
  uint32_t kept = 0;
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) kept |= static_cast<uint32_t>(words[k] >= d.threshold) << k;
  return kept;
}

// The dropout mask of this warp lane's part of scores: bit 4 * j + r of element i is that of s[i][j][r]. Four keys
// share a draw; where they begin at a multiple of 4, each lane draws for its neighbours too.
template <bool kRowsAreKeys, int kTiles, int kColumns>
__device__ __forceinline__ void find_kept(const AttentionCall& c, unsigned head, int row, int column,
                                          uint32_t (&kept)[kTiles]) {
  const int lane = threadIdx.x % 32, quarter = lane / 4 % 4;
  const bool odd = lane % 2;
  const auto element = [&](int query, int key) {
    return static_cast<uint64_t>((head * c.queries + query) * c.keys + key);
  };
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    kept[i] = 0;
#pragma unroll 1
    for (int j = 0; j < kColumns; ++j) {
      const int row0 = row + i * 16, column0 = column + j * 8;
      uint32_t bits = 0;
      if (c.keys % 4 != 0) {
#pragma unroll 1
        for (int r = 0; r < 4; ++r) {
          const int at_row = row0 + lane / 4 + r / 2 * 8, at_column = column0 + lane % 4 * 2 + r % 2;
          const uint64_t at = kRowsAreKeys ? element(at_column, at_row) : element(at_row, at_column);
          bits |= (kept_of_block(c.drop, at / 4) >> at % 4 & 1) << r;
        }
      } else if constexpr (kRowsAreKeys) {
        const int query = column0 + lane % 4 * 2 + quarter % 2, key = row0 + lane / 16 * 4 + quarter / 2 * 8;
        const uint32_t mine = kept_of_block(c.drop, element(query, key) / 4);
#pragma unroll
        for (int r = 0; r < 4; ++r)
          bits |= (__shfl_sync(0xffffffffu, mine, (lane & 0x13) | r << 2) >> quarter & 1) << r;
      } else {
        const int query = row0 + lane / 4 + odd * 8, key = column0 + lane % 4 / 2 * 4;
        const uint32_t mine = kept_of_block(c.drop, element(query, key) / 4);
        const uint32_t other = __shfl_xor_sync(0xffffffffu, mine, 1);
        bits = ((odd ? other >> 2 : mine) & 3) | ((odd ? mine >> 2 : other) & 3) << 2;
      }
      kept[i] |= bits << 4 * j;
    }
  }
}

template <int kTiles, int kColumns>
__device__ __forceinline__ void drop(const uint32_t (&kept)[kTiles], float factor, float (&s)[kTiles][kColumns][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) s[i][j][r] = kept[i] >> (j * 4 + r) & 1 ? s[i][j][r] * factor : 0.f;
}

// ---- Gradients.

// log_sum of a query, in memory of the forward pass. Weights of queries that see no key are zero, and so are those past
// the end.
__device__ __forceinline__ float log_sum_of(const float* log_sums, int queries, int query) {
  const float v = query < queries ? log_sums[query] : kInfinity;
  return v == -kInfinity ? kInfinity : v;
}

// ---- On the host.

inline int64_t head_count(const AttentionCall& c) {
  int64_t heads = 1;
  for (int i = 0; i < c.lead_dims; ++i) heads *= c.lead[i];
  return heads;
}
inline void set_aligned(const AttentionCall& c, HeadsView& v, int64_t features) {
  bool aligned = reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && features % 8 == 0 && v.row % 8 == 0;
  for (int i = 0; i < c.lead_dims; ++i) aligned = aligned && (c.lead[i] == 1 || v.lead[i] % 8 == 0);
  v.aligned = aligned;
}
// Scores are scaled before their largest is sought where that is not the largest before.
inline bool needs_mask(const AttentionCall& c) { return c.mask.data || !(c.scale > 0); }

inline void set_factors(Dropping& d) {
  // Words have 24 bits of chance: dropped are those whose upper 24 are below p * 2^24.
  const auto upper = static_cast<uint64_t>(std::ceil(d.p * 0x1p24));
  d.threshold = static_cast<uint32_t>(std::min<uint64_t>(upper << 8, 0xffffffffu));
  d.factor = d.p < 1 ? static_cast<float>(1 / (1 - d.p)) : 0.f;
}

template <class F>
void dispatch_halves(DType dtype, F&& f) {
  dtype == DType::bf16 ? f.template operator()<BFloat16>() : f.template operator()<Half>();
}
template <class F>
void dispatch_flag(bool flag, F&& f) {
  flag ? f.template operator()<true>() : f.template operator()<false>();
}

}  // namespace deft::cuda::heads
