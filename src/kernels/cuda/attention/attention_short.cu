// Gradients of attention where a block holds all queries and keys of a head: one pass. Scores and weights are made
// once, by warps that have 16 keys each; the gradient of the scores goes through shared memory to warps that have 16
// queries each. Sums run in a fixed order. H200, 384 heads of 128 x 64: 39 us, where two passes and the dot products
// before them take 57. Tried: 64 queries at once and one block on a multiprocessor 41, 16 queries 40, warps of 32 rows
// 42.
#include "kernels/cuda/attention/attention_short.h"
#include "kernels/cuda/attention/attention_tile.cuh"

namespace deft::cuda {

using namespace heads;

namespace {

constexpr int kRows = 128, kD = 64;  // queries or keys, features at most
constexpr int kTiles = 1;            // of 16 rows that a warp has
constexpr int kWarpRows = 16 * kTiles, kBlockThreads = 32 * kRows / kWarpRows;
constexpr int kPart = 32;   // queries whose scores a warp has at once
constexpr int kBlocks = 2;  // on a multiprocessor

template <class T>
struct Shared {
  Tile<T, kD> k, v, q, g;
  Tile<T, kRows> ds;  // [keys][queries]
  float *log_sums, *dots;
  static constexpr size_t kTile = size_t{kRows} * kD * 2, kScores = size_t{kRows} * kRows * 2;
  static constexpr size_t kBytes = 4 * kTile + kScores + 2 * kRows * sizeof(float);
  __device__ explicit Shared(char* at)
      : k{at},
        v{at + kTile},
        q{at + 2 * kTile},
        g{at + 3 * kTile},
        ds{at + 4 * kTile},
        log_sums(reinterpret_cast<float*>(at + 4 * kTile + kScores)),
        dots(log_sums + kRows) {}
};

// A part of a row of o for each thread, which is loaded early, and its dot product with the same part of g.
template <class T>
struct RowDot {
  static constexpr int kLanes = kBlockThreads / kRows, kPacks = kD / 8 / kLanes;
  const HeadRows<T> o;
  const int query, begin;
  Pack<T> packs[kPacks];

  __device__ explicit RowDot(const HeadRows<T>& rows)
      : o(rows), query(threadIdx.x / kLanes), begin(static_cast<int>(threadIdx.x) % kLanes * kPacks) {
    const T* row = o.data + min(query, o.rows - 1) * o.step;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int f = (begin + i) * 8;
      if (o.aligned) {
        packs[i] = f < o.features ? *reinterpret_cast<const Pack<T>*>(row + f) : Pack<T>{};
      } else {
        for (int e = 0; e < 8; ++e) packs[i].v[e] = f + e < o.features ? row[f + e] : T{};
      }
    }
  }
  __device__ float with(const Tile<T, kD>& g) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const auto a = *reinterpret_cast<const Pack<T>*>(g.piece(query, begin + i));
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += to_float(a.v[e]) * to_float(packs[i].v[e]);
    }
    return lanes_sum<kLanes>(sum);
  }
};

// acc [rows of a warp, queries][kD] += the gradient of the scores of 16 keys, transposed, times those keys.
template <class T>
__device__ __forceinline__ void multiply_transposed(const Tile<T, kRows>& ds, int query, const Tile<T, kD>& k, int key,
                                                    float (&acc)[kTiles][kD / 8][4]) {
  uint32_t left[kTiles][4];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) load_matrices_transposed(ds.wide(key, query / 8 + i * 2), left[i]);
#pragma unroll
  for (int j = 0; j < kD / 8; j += 2) {
    uint32_t right[4];
    load_matrices_transposed(k.tall(key, j), right);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      multiply_add<T>(acc[i][j], left[i], right[0], right[1]);
      multiply_add<T>(acc[i][j + 1], left[i], right[2], right[3]);
    }
  }
}

template <class T, bool kMasked>
__global__ void __launch_bounds__(kBlockThreads, kBlocks)
    short_backward_kernel(const AttentionCall c, const AttentionGrads grads) {
  extern __shared__ __align__(128) char memory[];
  const Shared<T> shared(memory);
  const unsigned head = blockIdx.x;
  const int queries = static_cast<int>(c.queries), keys = static_cast<int>(c.keys);
  const HiddenKeys hidden = kMasked ? HiddenKeys(c, head) : HiddenKeys();
  const auto load = [&](const Tile<T, kD>& to, const HeadsView& v, int64_t rows, int64_t features, auto hides) {
    to.template load<kRows, kBlockThreads>(HeadRows<T>(c, v, head, rows, features), 0, hides);
  };
  load(shared.g, grads.g, c.queries, c.value_features, HiddenKeys());
  load(shared.q, c.q, c.queries, c.features, HiddenKeys());
  load(shared.k, c.k, c.keys, c.features, hidden);
  load(shared.v, c.v, c.keys, c.value_features, hidden);
  commit_copies();
  const RowDot<T> dot(HeadRows<T>(c, c.o, head, c.queries, c.value_features));
  if (threadIdx.x < kRows) {
    const float* log_sums = static_cast<const float*>(c.log_sum) + head * c.queries;
    shared.log_sums[threadIdx.x] = log_sum_of(log_sums, queries, static_cast<int>(threadIdx.x));
  }
  wait_for_copies();
  __syncthreads();
  const float sum = dot.with(shared.g);
  if (threadIdx.x % RowDot<T>::kLanes == 0) shared.dots[dot.query] = sum;
  __syncthreads();

  const int first = static_cast<int>(threadIdx.x) / 32 * kWarpRows;  // of this warp's keys, later of its queries
  const float log_scale = static_cast<float>(c.scale * kLog2E), score_scale = kMasked ? 1.f : log_scale;
  float dk[kTiles][kD / 8][4], dv[kTiles][kD / 8][4];
  clear(dk);
  clear(dv);
  if (first < keys) {
    const Mask<T> mask(c, head, true);
#pragma unroll 1
    for (int query = 0; query < queries; query += kPart) {
      if (c.causal && query + kPart <= first) continue;
      float s[kTiles][kPart / 8][4], ds[kTiles][kPart / 8][4];
      clear(s);
      multiply_rows(LeftInMemory<T, kD, kTiles>{shared.k, first}, shared.q, query, s);
      if (kMasked) add_mask(mask, first, query, log_scale, s);
      if (first + kWarpRows > keys || (c.causal && query < first + kWarpRows - 1))
        hide(first, query, s, [&](int key, int q) { return key >= keys || (c.causal && key > q); });
      clear(ds);
      multiply_rows(LeftInMemory<T, kD, kTiles>{shared.v, first}, shared.g, query, ds);
      uint32_t kept[kTiles];
      if (c.drop.threshold) {
        find_kept<true, kTiles, kPart / 8>(c, head, first, query, kept);
        drop(kept, c.drop.factor, ds);
      }
#pragma unroll
      for (int j = 0; j < kPart / 8; ++j) {
        const int at = query + lane_column(j);
        const auto log_sum = *reinterpret_cast<const float2*>(shared.log_sums + at);
        const auto of_query = *reinterpret_cast<const float2*>(shared.dots + at);
#pragma unroll
        for (int r = 0; r < kTiles * 2; ++r) {
          float *p = &s[r / 2][j][r % 2 * 2], *d = &ds[r / 2][j][r % 2 * 2];
          p[0] = power_of_2(p[0] * score_scale - log_sum.x);
          p[1] = power_of_2(p[1] * score_scale - log_sum.y);
          d[0] = p[0] * (d[0] - of_query.x);
          d[1] = p[1] * (d[1] - of_query.y);
          *reinterpret_cast<uint32_t*>(shared.ds.piece(first + lane_row(r), query / 8 + j) + threadIdx.x % 4 * 4) =
              pack_pair<T>(d[0], d[1]);
        }
      }
      if (c.drop.threshold) drop(kept, 1, s);
      if (grads.dv.data) multiply_weights(s, shared.g, query, dv);
      if (grads.dk.data) multiply_weights(ds, shared.q, query, dk);
    }
  }
  float factor[kTiles * 2];
  const auto store = [&](const float(&acc)[kTiles][kD / 8][4], double by, const Tile<T, kD>& room, const HeadsView& to,
                         int64_t rows, int64_t features) {
#pragma unroll
    for (int r = 0; r < kTiles * 2; ++r) factor[r] = static_cast<float>(by);
    store_rows(acc, factor, room, first, HeadRows<T>(c, to, head, rows, features), first);
  };
  // Through tiles that no other warp reads any more.
  if (grads.dv.data) store(dv, c.drop.factor, shared.v, grads.dv, c.keys, c.value_features);
  __syncthreads();
  if (grads.dk.data) store(dk, c.scale, shared.g, grads.dk, c.keys, c.features);
  if (!grads.dq.data || first >= queries) return;
  float dq[kTiles][kD / 8][4];
  clear(dq);
  const int end = c.causal ? min(keys, first + kWarpRows) : keys;
#pragma unroll 2
  for (int key = 0; key < end; key += 16) multiply_transposed(shared.ds, first, shared.k, key, dq);
  store(dq, c.scale, shared.q, grads.dq, c.queries, c.features);
}

}  // namespace

bool fits_one_block(const AttentionCall& c) {
  return c.queries > 0 && c.keys > 0 && std::max(c.queries, c.keys) <= kRows &&
         std::max(c.features, c.value_features) <= kD;
}

void short_attention_backward(Encoder& e, const AttentionCall& c, const AttentionGrads& grads) {
  dispatch_halves(c.dtype, [&]<class T>() {
    dispatch_flag(needs_mask(c), [&]<bool kMasked>() {
      e.launch(short_backward_kernel<T, kMasked>, Encoder::blocks_for(head_count(c), 1), kBlockThreads,
               Shared<T>::kBytes, c, grads);
    });
  });
}

}  // namespace deft::cuda
