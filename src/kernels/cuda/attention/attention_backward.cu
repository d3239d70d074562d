// Gradients of attention: weights are recomputed from the scores and the forward pass's log_sum, a block at a time.
//
// Note [Two passes]: gradients of keys and values are sums over queries, that of the queries over keys. Each has its
// own pass, which recomputes the scores: two GEMMs more than accumulating one gradient with atomics, but in a fixed
// order. Short sequences need one (attention_short.cu).
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_short.h"
#include "kernels/cuda/attention/attention_tile.cuh"

namespace deft::cuda {

using namespace heads;

namespace {

constexpr int kStage = 64;  // columns that are loaded at once

constexpr int kDotLanes = 8, kDotSteps = 4;                 // threads of a row; rows of a thread
constexpr int kDotRows = kThreads / kDotLanes * kDotSteps;  // of a block, all of one head

// out [heads, queries] = sum over features of g * o.
template <class T>
__global__ void __launch_bounds__(kThreads)
    row_dots(const AttentionCall c, const HeadsView grad, unsigned blocks_of_head, float* out) {
  const unsigned head = blockIdx.x / blocks_of_head;
  const int first =
      static_cast<int>(blockIdx.x % blocks_of_head) * kDotRows + static_cast<int>(threadIdx.x) / kDotLanes;
  const HeadRows<T> g(c, grad, head, c.queries, c.value_features), o(c, c.o, head, c.queries, c.value_features);
  float sums[kDotSteps] = {};
  for (int f = threadIdx.x % kDotLanes * 8; f < g.features; f += kDotLanes * 8) {
#pragma unroll
    for (int s = 0; s < kDotSteps; ++s) {
      const int line = min(first + s * (kThreads / kDotLanes), g.rows - 1);
      const T *x = g.data + line * g.step, *y = o.data + line * o.step;
      if (g.aligned && o.aligned) {
        const auto a = *reinterpret_cast<const Pack<T>*>(x + f), b = *reinterpret_cast<const Pack<T>*>(y + f);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[s] += to_float(a.v[i]) * to_float(b.v[i]);
      } else {
        for (int i = f; i < min(f + 8, g.features); ++i) sums[s] += to_float(x[i]) * to_float(y[i]);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kDotSteps; ++s) {
    const int line = first + s * (kThreads / kDotLanes);
    const float sum = lanes_sum<kDotLanes>(sums[s]);
    if (threadIdx.x % kDotLanes == 0 && line < g.rows) out[head * c.queries + line] = sum;
  }
}

// A pass. Rows are keys and columns queries, or the reverse: x are the queries or keys of either side, y the results'
// gradients or values. d_x += ds x', and for keys d_y += p y'.
struct Pass {
  HeadsView x, y, other_x, other_y, dx, dy;
  const float* dots;  // [heads, queries]
};

// log_sum and dot of a query.
struct QueryTerms {
  const float *log_sums, *dots;
  int queries;
  __device__ QueryTerms(const AttentionCall& c, const float* all_dots, unsigned head)
      : log_sums(static_cast<const float*>(c.log_sum) + head * c.queries),
        dots(all_dots + head * c.queries),
        queries(static_cast<int>(c.queries)) {}
  __device__ __forceinline__ float log_sum(int query) const { return log_sum_of(log_sums, queries, query); }
  __device__ __forceinline__ float dot(int query) const { return query < queries ? dots[query] : 0.f; }
};

template <int kD, int kTiles>
constexpr size_t kSharedBytes = (size_t{128} * kTiles + 4 * kStage) * kD * 2 + 4 * kStage * sizeof(float);

// Blocks on a multiprocessor at once, as registers allow.
template <int kD, int kTiles>
constexpr int kBlocks = kD* kTiles > 64 ? 2 : 3;

template <class T, int kD, int kTiles, bool kMasked, bool kForKeys>
__global__ void __launch_bounds__(kThreads, kBlocks<kD, kTiles>)
    attention_backward_kernel(const AttentionCall c, const Pass pass, unsigned blocks) {
  constexpr int kRows = 16 * kWarps * kTiles, kWarpRows = 16 * kTiles;
  constexpr int kColumns = kTiles == 1 || !kForKeys ? 64 : 32;  // of an MMA tile: scores share registers with the sums
  extern __shared__ __align__(128) char shared[];
  const Tile<T, kD> x_tile{shared}, y_tile{shared + kRows * kD * 2};
  const auto stage = [&](int i, int which) {
    return Tile<T, kD>{shared + (2 * kRows + (i % 2 * 2 + which) * kStage) * kD * 2};
  };
  float* const terms = reinterpret_cast<float*>(shared + (2 * kRows + 4 * kStage) * kD * 2);
  const unsigned head = blockIdx.x / blocks;
  // Late queries and early keys of a causal call have the most to do: they begin first.
  const unsigned at = blockIdx.x % blocks;
  const int row0 = static_cast<int>(c.causal && !kForKeys ? blocks - 1 - at : at) * kRows;
  const int warp_row = threadIdx.x / 32 * kWarpRows, first = row0 + warp_row;
  const int64_t rows = kForKeys ? c.keys : c.queries, columns = kForKeys ? c.queries : c.keys;
  const int begin = kForKeys && c.causal ? row0 / kStage * kStage : 0;
  const int end = static_cast<int>(!kForKeys && c.causal ? min(columns, int64_t{row0} + kRows) : columns);
  const HeadRows<T> x(c, pass.other_x, head, columns, c.features);
  const HeadRows<T> y(c, pass.other_y, head, columns, c.value_features);
  const HiddenKeys hidden = kMasked ? HiddenKeys(c, head) : HiddenKeys();
  const HiddenKeys hidden_rows = kForKeys ? hidden : HiddenKeys(), hidden_columns = kForKeys ? HiddenKeys() : hidden;
  const Mask<T> mask(c, head, kForKeys);
  const QueryTerms of(c, pass.dots, head);
  const float log_scale = static_cast<float>(c.scale * kLog2E), score_scale = kMasked ? 1.f : log_scale;

  const auto load = [&](int i, int column) {
    stage(i, 0).template load<kStage>(x, column, hidden_columns);
    stage(i, 1).template load<kStage>(y, column, hidden_columns);
    commit_copies();
    if (kForKeys && threadIdx.x < kStage) {
      const int query = column + static_cast<int>(threadIdx.x);
      terms[i % 2 * 2 * kStage + threadIdx.x] = of.log_sum(query);
      terms[(i % 2 * 2 + 1) * kStage + threadIdx.x] = of.dot(query);
    }
  };
  x_tile.template load<kRows>(HeadRows<T>(c, pass.x, head, rows, c.features), row0, hidden_rows);
  y_tile.template load<kRows>(HeadRows<T>(c, pass.y, head, rows, c.value_features), row0, hidden_rows);
  if (begin < end) load(0, begin);

  float log_sum[kTiles * 2], dot[kTiles * 2];
  if constexpr (!kForKeys) {
#pragma unroll
    for (int r = 0; r < kTiles * 2; ++r) {
      log_sum[r] = of.log_sum(first + lane_row(r));
      dot[r] = of.dot(first + lane_row(r));
    }
  }
  float dx[kTiles][kD / 8][4], dy[kForKeys ? kTiles : 1][kD / 8][4];
  clear(dx);
  clear(dy);
  for (int i = 0, column0 = begin; column0 < end; ++i, column0 += kStage) {
    wait_for_copies();
    __syncthreads();  // this step's tiles are there, those of the step before have been read
    if (column0 + kStage < end) load(i + 1, column0 + kStage);
    const float* step_terms = terms + i % 2 * 2 * kStage;
#pragma unroll 1
    for (int part = 0; part < kStage; part += kColumns) {
      const int column = column0 + part;
      const bool none = kForKeys ? column + kColumns <= first : column >= first + kWarpRows;
      if (c.causal && none) continue;
      float s[kTiles][kColumns / 8][4], ds[kTiles][kColumns / 8][4];
      clear(s);
      multiply_rows(LeftInMemory<T, kD, kTiles>{x_tile, warp_row}, stage(i, 0), part, s);
      if (kMasked) add_mask(mask, first, column, log_scale, s);
      const bool across = kForKeys ? column < first + kWarpRows - 1 : column + kColumns > first + 1;
      if ((!kForKeys && column + kColumns > columns) || (c.causal && across)) {
        hide(first, column, s,
             [&](int row, int col) { return kForKeys ? row > col : col >= columns || (c.causal && col > row); });
      }
      clear(ds);
      multiply_rows(LeftInMemory<T, kD, kTiles>{y_tile, warp_row}, stage(i, 1), part, ds);
      uint32_t kept[kTiles];
      if (c.drop.threshold) {
        find_kept<kForKeys, kTiles, kColumns / 8>(c, head, first, column, kept);
        drop(kept, c.drop.factor, ds);
      }
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int col = part + lane_column(j) + h;
          const float column_sum = kForKeys ? step_terms[col] : 0.f,
                      column_dot = kForKeys ? step_terms[kStage + col] : 0.f;
#pragma unroll
          for (int r = 0; r < kTiles * 2; ++r) {
            float &p = s[r / 2][j][r % 2 * 2 + h], &d = ds[r / 2][j][r % 2 * 2 + h];
            p = power_of_2(p * score_scale - (kForKeys ? column_sum : log_sum[r]));
            d = p * (d - (kForKeys ? column_dot : dot[r]));
          }
        }
      }
      if constexpr (kForKeys) {
        if (c.drop.threshold) drop(kept, 1, s);
        if (pass.dy.data) multiply_weights(s, stage(i, 1), part, dy);
      }
      if (!kForKeys || pass.dx.data) multiply_weights(ds, stage(i, 0), part, dx);
    }
  }
  wait_for_copies();
  __syncthreads();

  float factor[kTiles * 2];
#pragma unroll
  for (int r = 0; r < kTiles * 2; ++r) factor[r] = static_cast<float>(c.scale);
  if (pass.dx.data) store_rows(dx, factor, x_tile, warp_row, HeadRows<T>(c, pass.dx, head, rows, c.features), first);
  if constexpr (kForKeys) {
#pragma unroll
    for (int r = 0; r < kTiles * 2; ++r) factor[r] = c.drop.factor;
    const HeadRows<T> to(c, pass.dy, head, rows, c.value_features);
    if (pass.dy.data) store_rows(dy, factor, y_tile, warp_row, to, first);
  }
}

template <class T, int kD, int kTiles, bool kForKeys>
void run_tiles(Encoder& e, const AttentionCall& c, const Pass& pass) {
  const int64_t blocks = ((kForKeys ? c.keys : c.queries) + 64 * kTiles - 1) / (64 * kTiles);
  dispatch_flag(needs_mask(c), [&]<bool kMasked>() {
    e.launch(attention_backward_kernel<T, kD, kTiles, kMasked, kForKeys>,
             Encoder::blocks_for(blocks * head_count(c), 1), kThreads, kSharedBytes<kD, kTiles>, c, pass, blocks);
  });
}

template <class T, bool kForKeys>
void run(Encoder& e, const AttentionCall& c, const Pass& pass) {
  if (std::max(c.features, c.value_features) > 64) return run_tiles<T, 128, 1, kForKeys>(e, c, pass);
  // As in the forward pass.
  const int64_t rows = kForKeys ? c.keys : c.queries;
  const bool many = head_count(c) * ((rows + 127) / 128) >= 4 * e.multiprocessors();
  many ? run_tiles<T, 64, 2, kForKeys>(e, c, pass) : run_tiles<T, 64, 1, kForKeys>(e, c, pass);
}

}  // namespace

void attention_backward(Encoder& e, AttentionCall c, AttentionGrads grads) {
  const int64_t rows = head_count(c) * c.queries;
  if (head_count(c) == 0) return;
  set_factors(c.drop);
  for (HeadsView* v : {&c.q, &c.k, &grads.dq, &grads.dk}) set_aligned(c, *v, c.features);
  for (HeadsView* v : {&c.v, &c.o, &grads.g, &grads.dv}) set_aligned(c, *v, c.value_features);
  if (fits_one_block(c)) return short_attention_backward(e, c, grads);
  const Workspace dots(e, static_cast<size_t>(rows) * sizeof(float));
  dispatch_halves(c.dtype, [&]<class T>() {
    if (rows > 0) {
      const int64_t blocks = (c.queries + kDotRows - 1) / kDotRows;
      e.launch(row_dots<T>, Encoder::blocks_for(blocks * head_count(c), 1), kThreads, 0, c, grads.g, blocks,
               dots.as<float>());
    }
    if ((grads.dk.data || grads.dv.data) && c.keys > 0)
      run<T, true>(e, c, {c.k, c.v, c.q, grads.g, grads.dk, grads.dv, dots.as<float>()});
    if (grads.dq.data && c.queries > 0) run<T, false>(e, c, {c.q, grads.g, c.k, c.v, grads.dq, {}, dots.as<float>()});
  });
}

}  // namespace deft::cuda
