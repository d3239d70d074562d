#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/attention/attention_tile.cuh"

namespace deft::cuda {

using namespace heads;

namespace {

constexpr int kKeys = 64;  // of a step

// The running softmax of a warp lane's rows: largest scores, sums of exponentials over this lane's columns, results.
template <int kTiles, int kFeatures>
struct Softmax {
  float top[kTiles * 2], sum[kTiles * 2];
  float acc[kTiles][kFeatures / 8][4];

  __device__ __forceinline__ Softmax() {
    clear(acc);
#pragma unroll
    for (int r = 0; r < kTiles * 2; ++r) top[r] = -kInfinity, sum[r] = 0;
  }
  // Scores, times `scale` in powers of 2, become weights relative to the largest so far; what was summed up follows.
  template <int kColumns>
  __device__ __forceinline__ void meet(float (&s)[kTiles][kColumns][4], float scale) {
#pragma unroll
    for (int r = 0; r < kTiles * 2; ++r) {
      const int i = r / 2, c = r % 2 * 2;
      float most = top[r];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) most = fmaxf(most, fmaxf(s[i][j][c], s[i][j][c + 1]));
      most = lanes_max<4>(most);
      const float center = most == -kInfinity ? 0.f : most * scale;
      const float factor = power_of_2(top[r] * scale - center);
      top[r] = most;
      float total = 0;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        s[i][j][c] = power_of_2(s[i][j][c] * scale - center);
        s[i][j][c + 1] = power_of_2(s[i][j][c + 1] * scale - center);
        total += s[i][j][c] + s[i][j][c + 1];
      }
      sum[r] = sum[r] * factor + total;
#pragma unroll
      for (int j = 0; j < kFeatures / 8; ++j) {
        acc[i][j][c] *= factor;
        acc[i][j][c + 1] *= factor;
      }
    }
  }
};

template <int kTiles, int kColumns>
__device__ __forceinline__ void drop(const AttentionCall& c, unsigned head, int row, int column,
                                     float (&s)[kTiles][kColumns][4]) {
  uint32_t kept[kTiles];
  find_kept<false, kTiles, kColumns>(c, head, row, column, kept);
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (!(kept[i] >> (j * 4 + r) & 1)) s[i][j][r] = 0;
}

template <int kD, int kTiles>
constexpr size_t kSharedBytes = (size_t{64} * kTiles + 4 * kKeys) * kD * 2;

// Blocks on a multiprocessor at once, as registers allow.
template <int kD, int kTiles, bool kMasked>
constexpr int kBlocks = kD* kTiles > 64 ? 2
                        : kMasked       ? 3
                                        : 4;

template <class T, int kD, int kTiles, bool kMasked>
__global__ void __launch_bounds__(kThreads, kBlocks<kD, kTiles, kMasked>)
    attention_kernel(const AttentionCall c, unsigned blocks) {
  constexpr int kRows = 16 * kWarps * kTiles, kWarpRows = 16 * kTiles;
  constexpr bool kHold = kTiles * kD <= 128;  // more does not fit into registers
  extern __shared__ __align__(128) char shared[];
  const Tile<T, kD> queries{shared};
  const auto stage = [&](int i, int which) {
    return Tile<T, kD>{shared + (kRows + (i % 2 * 2 + which) * kKeys) * kD * 2};
  };
  const unsigned head = blockIdx.x / blocks;
  // Late queries of a causal call meet the most keys: they begin first.
  const int block = static_cast<int>(c.causal ? blocks - 1 - blockIdx.x % blocks : blockIdx.x % blocks);
  const int q0 = block * kRows, warp_row = threadIdx.x / 32 * kWarpRows, first = q0 + warp_row;
  const int keys = static_cast<int>(c.keys), end = c.causal ? min(keys, q0 + kRows) : keys;
  const HeadRows<T> k(c, c.k, head, c.keys, c.features), v(c, c.v, head, c.keys, c.value_features);
  const HiddenKeys hidden = kMasked ? HiddenKeys(c, head) : HiddenKeys();
  const Mask<T> mask(c, head, false);
  const float log_scale = static_cast<float>(c.scale * kLog2E);

  const auto load = [&](int i) {
    stage(i, 0).template load<kKeys>(k, i * kKeys, hidden);
    stage(i, 1).template load<kKeys>(v, i * kKeys, hidden);
    commit_copies();
  };
  queries.template load<kRows>(HeadRows<T>(c, c.q, head, c.queries, c.features), q0);
  if (end > 0) load(0);
  const LeftInMemory<T, kD, kTiles> in_memory{queries, warp_row};
  LeftInRegisters<T, kD, kTiles> held;
  Softmax<kTiles, kD> rows;
  for (int i = 0, k0 = 0; k0 < end; ++i, k0 += kKeys) {
    wait_for_copies();
    __syncthreads();  // this step's tiles are there, those of the step before have been read
    if (k0 + kKeys < end) load(i + 1);
    if (kHold && k0 == 0) held.load(in_memory);
    if (c.causal && k0 >= first + kWarpRows) continue;
    float s[kTiles][kKeys / 8][4];
    clear(s);
    if constexpr (kHold)
      multiply_rows(held, stage(i, 0), 0, s);
    else
      multiply_rows(in_memory, stage(i, 0), 0, s);
    if (kMasked) add_mask(mask, first, k0, log_scale, s);
    if (k0 + kKeys > keys || (c.causal && k0 + kKeys > first + 1))
      hide(first, k0, s, [&](int row, int column) { return column >= keys || (c.causal && column > row); });
    rows.meet(s, kMasked ? 1.f : log_scale);
    if (c.drop.threshold) drop(c, head, first, k0, s);
    multiply_weights(s, stage(i, 1), 0, rows.acc);
  }
  wait_for_copies();
  __syncthreads();

  float factor[kTiles * 2];
#pragma unroll
  for (int r = 0; r < kTiles * 2; ++r) {
    const float sum = lanes_sum<4>(rows.sum[r]);
    const int row = first + lane_row(r);
    factor[r] = sum == 0 ? 0.f : c.drop.factor / sum;
    if (threadIdx.x % 4 == 0 && row < c.queries)
      static_cast<float*>(c.log_sum)[head * c.queries + row] = rows.top[r] * (kMasked ? 1.f : log_scale) + log2f(sum);
  }
  store_rows(rows.acc, factor, queries, warp_row, HeadRows<T>(c, c.o, head, c.queries, c.value_features), first);
}

template <class T, int kD, int kTiles>
void run(Encoder& e, const AttentionCall& c) {
  const int64_t blocks = (c.queries + 64 * kTiles - 1) / (64 * kTiles);
  dispatch_flag(needs_mask(c), [&]<bool kMasked>() {
    e.launch(attention_kernel<T, kD, kTiles, kMasked>, Encoder::blocks_for(blocks * head_count(c), 1), kThreads,
             kSharedBytes<kD, kTiles>, c, blocks);
  });
}

}  // namespace

void attention_forward(Encoder& e, AttentionCall c) {
  const int64_t heads = head_count(c);
  if (heads == 0 || c.queries == 0) return;
  set_factors(c.drop);
  set_aligned(c, c.q, c.features);
  set_aligned(c, c.k, c.features);
  set_aligned(c, c.v, c.value_features);
  set_aligned(c, c.o, c.value_features);
  const bool wide = std::max(c.features, c.value_features) > 64;
  // Twice the rows for a warp read shared memory half as often, where there are enough of them.
  const bool many = heads * ((c.queries + 127) / 128) >= 4 * e.multiprocessors();
  dispatch_halves(c.dtype, [&]<class T>() {
    if (wide)
      many ? run<T, 128, 2>(e, c) : run<T, 128, 1>(e, c);
    else
      many ? run<T, 64, 2>(e, c) : run<T, 64, 1>(e, c);
  });
}

}  // namespace deft::cuda
