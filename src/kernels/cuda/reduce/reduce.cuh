// The engine behind reduce(): an Op defines how to take elements in, combine states and finish the result; the kernels
// here define which thread reads what. Included by the files that instantiate it.
#pragma once

#include <optional>

#include "kernels/cuda/elementwise/convert.cuh"
#include "kernels/cuda/reduce/reduce.h"

namespace deft::cuda {

inline constexpr int kReduceThreads = 256;

// Offsets of element numbers below 2^52, without the narrow and wide variants of OffsetMap: the kernels here compute
// them in many places. Division is by multiplication: (n * multiplier) >> (52 + shift).
template <int N>
struct ElementMap {
  int ndim;
  int64_t sizes[kMaxDims];
  int64_t strides[N][kMaxDims];
  uint64_t multiplier[kMaxDims];
  int shift[kMaxDims];

  explicit ElementMap(const Iteration& it) : ndim(it.ndim) {
    for (int d = 0; d < ndim; ++d) {
      sizes[d] = it.sizes[d];
      for (int o = 0; o < N; ++o) strides[o][d] = it.strides[o][d];
      const auto divisor = static_cast<uint64_t>(sizes[d] > 0 ? sizes[d] : 1);
      shift[d] = 0;
      while ((uint64_t{1} << shift[d]) < divisor) ++shift[d];
      multiplier[d] = static_cast<uint64_t>((static_cast<unsigned __int128>(1) << (52 + shift[d])) / divisor + 1);
    }
  }
  __device__ __forceinline__ void offsets(int64_t index, int64_t (&at)[N]) const {
#pragma unroll
    for (int o = 0; o < N; ++o) at[o] = 0;
#pragma unroll 1
    for (int d = ndim - 1; d > 0; --d) {
      auto next = static_cast<int64_t>(__umul64hi(static_cast<uint64_t>(index) << 12, multiplier[d]) >> shift[d]);
      int64_t rest = index - next * sizes[d];
#pragma unroll
      for (int o = 0; o < N; ++o) at[o] += rest * strides[o][d];
      index = next;
    }
#pragma unroll
    for (int o = 0; o < N; ++o) at[o] += index * strides[o][0];
  }
};

// The arguments of kernels. A "unit" is what one load of a row takes: a pack or an element.
struct ReduceArgs {
  const void* in;
  void* out;
  int64_t* indices;
  DType out_dtype;
  int64_t n;  // elements that go into one output
  int64_t outputs;
  int64_t pieces;  // every output's elements are cut into this many ranges, each with a state of its own
  int64_t piece;   // elements in a range
  bool flat;       // rows: elements of an output lie one behind the other
  bool packed;     // rows: `reduced` counts packs, not elements
  int group;       // rows: threads for one output
  int across;      // columns: threads side by side
  int64_t width;   // columns: outputs side by side in the input
  int64_t strips_across;
  ElementMap<2> kept;  // element of input and output
  ElementMap<1> reduced;
};

struct ReducePlan {
  enum Kind { partials_only, rows, columns, wide_columns } kind;
  ReduceArgs args;
  unsigned blocks;
};

// The properties of an Op that the plan uses.
struct ReduceTraits {
  int pack;          // elements in a load of a row
  int column_pack;   // elements in a load of wide columns; 1: there are none
  int rows_at_once;  // in wide columns and columns
  bool ordered;      // elements are numbered in row-major order
};
ReducePlan plan_reduce(const Encoder& e, const ReduceCall& call, const ReduceTraits& traits);

__device__ __forceinline__ int64_t element_offset(const ReduceArgs& a, int64_t index) {
  int64_t at[1];
  a.reduced.offsets(index, at);
  return at[0];
}

template <class State>
__device__ __forceinline__ State shuffle_down(const State& s, int by, int width) {
  static_assert(sizeof(State) % 4 == 0);
  State r;
  const auto* from = reinterpret_cast<const uint32_t*>(&s);
  auto* to = reinterpret_cast<uint32_t*>(&r);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(State) / 4); ++i)
    to[i] = __shfl_down_sync(0xffffffffu, from[i], by, width);
  return r;
}

// N elements with the numbers first + (i / Run) * jump + i % Run.
template <int Run, int N, class Op>
__device__ __forceinline__ void take(const Op& op, typename Op::State& s, const typename Op::Value (&x)[N],
                                     int64_t first, int64_t jump) {
  op.template add<Run, N>(s, x, first, jump);
}
template <class Op>
__device__ __forceinline__ void take_one(const Op& op, typename Op::State& s, typename Op::In v, int64_t number) {
  typename Op::Value x[1] = {op.load(v)};
  take<1, 1>(op, s, x, number, 1);
}

// Elements begin..end of one output, by `group` threads of which this is number `lane`.
template <class Op>
__device__ __forceinline__ void reduce_range(const ReduceArgs& a, const Op& op, const typename Op::In* row,
                                             int64_t begin, int64_t end, int lane, typename Op::State& s) {
  using T = typename Op::In;
  constexpr int V = Op::kPack, U = V > 8 ? 2 : 4;
  const int group = a.group;
  const int64_t length = end - begin;
  int64_t head = 0, packs = 0;
  if (V > 1 && a.flat) {
    int off = static_cast<int>(reinterpret_cast<uintptr_t>(row + begin) / sizeof(T) % V);
    head = off ? V - off : 0;
    if (head > length) head = length;
    packs = (length - head) / V;
  } else if (V > 1 && a.packed) {
    packs = length / V;
  }
  for (int64_t i = lane; i < head; i += group) take_one(op, s, row[begin + i], begin + i);
  if constexpr (V > 1) {
    auto pack_at = [&](int64_t i) {
      const T* p = a.flat ? row + begin + head + i * V : row + element_offset(a, begin / V + i);
      return *reinterpret_cast<const Pack<T, V>*>(p);
    };
    int64_t i = lane;
    for (; i + (U - 1) * group < packs; i += U * group) {
      Pack<T, V> p[U];
#pragma unroll
      for (int u = 0; u < U; ++u) p[u] = pack_at(i + u * group);
      typename Op::Value x[U * V];
#pragma unroll
      for (int k = 0; k < U * V; ++k) x[k] = op.load(p[k / V].v[k % V]);
      take<V>(op, s, x, begin + head + i * V, static_cast<int64_t>(group) * V);
    }
    for (; i < packs; i += group) {
      Pack<T, V> p = pack_at(i);
      typename Op::Value x[V];
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = op.load(p.v[k]);
      take<V>(op, s, x, begin + head + i * V, V);
    }
  }
  auto element_at = [&](int64_t i) { return a.flat ? row[i] : row[element_offset(a, i)]; };
  int64_t i = begin + head + packs * V + lane;
  for (; i + 3 * group < end; i += 4 * group) {
    typename Op::Value x[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) x[u] = op.load(element_at(i + u * group));
    take<1>(op, s, x, i, group);
  }
  for (; i < end; i += group) take_one(op, s, element_at(i), i);
}

// Folds `down` rows of `width` states into the first. `down` is a power of two; the whole block calls it.
template <class Op>
__device__ __forceinline__ void combine_down(const Op& op, typename Op::State* states, int width, int down) {
  for (int half = down / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int i = threadIdx.x; i < half * width; i += kReduceThreads) op.combine(states[i], states[i + half * width]);
  }
  __syncthreads();
}

template <class Op>
__device__ __forceinline__ void put(const ReduceArgs& a, const Op& op, typename Op::State* partials,
                                    const typename Op::State& s, int64_t output, int64_t piece) {
  if (partials) {
    partials[piece * a.outputs + output] = s;
    return;
  }
  int64_t at[2];
  a.kept.offsets(output, at);
  op.store(a, s, at[1]);
}

// Every output by a group of neighbouring threads: up to a warp, or a whole block.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_rows(const __grid_constant__ ReduceArgs a, const __grid_constant__ Op op, typename Op::State* partials) {
  using State = typename Op::State;
  const int lane = threadIdx.x & (a.group - 1);
  const int64_t item =
      static_cast<int64_t>(blockIdx.x) * (kReduceThreads / a.group) + static_cast<int>(threadIdx.x) / a.group;
  const bool mine = item < a.outputs * a.pieces;
  const int64_t output = a.pieces > 1 ? item / a.pieces : item, piece = a.pieces > 1 ? item % a.pieces : 0;
  State s = op.identity();
  if (mine) {
    int64_t at[2];
    a.kept.offsets(output, at);
    int64_t begin = piece * a.piece, end = begin + a.piece < a.n ? begin + a.piece : a.n;
    reduce_range(a, op, static_cast<const typename Op::In*>(a.in) + at[0], begin, end, lane, s);
  }
  const int in_warp = a.group < 32 ? a.group : 32;
  for (int by = in_warp / 2; by > 0; by /= 2) op.combine(s, shuffle_down(s, by, in_warp));
  if (a.group > 32) {
    constexpr int kWarps = kReduceThreads / 32;
    __shared__ alignas(16) unsigned char raw[kWarps * sizeof(State)];
    State* states = reinterpret_cast<State*>(raw);
    if (threadIdx.x % 32 == 0) states[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0)
      for (int w = 1; w < kWarps; ++w) op.combine(s, states[w]);
  }
  if (mine && lane == 0) put(a, op, partials, s, output, piece);
}

// Outputs side by side in the input: `across` threads next to each other, V outputs each, and the rest of the block
// shares the rows.
template <class Op, int V>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_columns(const __grid_constant__ ReduceArgs a, const __grid_constant__ Op op, typename Op::State* partials,
                   int64_t strips) {
  using T = typename Op::In;
  using State = typename Op::State;
  constexpr int R = V >= 4 ? 4 : Op::kRows;  // more would cost resident blocks
  extern __shared__ __align__(16) unsigned char shared[];
  State* states = reinterpret_cast<State*>(shared);
  const int x = static_cast<int>(threadIdx.x) & (a.across - 1), y = static_cast<int>(threadIdx.x) / a.across;
  const int down = kReduceThreads / a.across, columns = a.across * V;
  const int64_t strip = blockIdx.x % strips, piece = blockIdx.x / strips;
  const int64_t first_column = strip % a.strips_across * columns, column = first_column + x * V;
  const int64_t first_output = strip / a.strips_across * a.width;
  State s[V];
#pragma unroll
  for (int v = 0; v < V; ++v) s[v] = op.identity();
  if (column < a.width) {
    int64_t at[2];
    a.kept.offsets(first_output + column, at);
    const T* base = static_cast<const T*>(a.in) + at[0];
    auto row = [&](int64_t i) { return *reinterpret_cast<const Pack<T, V>*>(base + element_offset(a, i)); };
    const int64_t begin = piece * a.piece, end = begin + a.piece < a.n ? begin + a.piece : a.n;
    int64_t i = begin + y;
    for (; i + (R - 1) * down < end; i += R * down) {
      Pack<T, V> p[R];
#pragma unroll
      for (int r = 0; r < R; ++r) p[r] = row(i + r * down);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        typename Op::Value values[R];
#pragma unroll
        for (int r = 0; r < R; ++r) values[r] = op.load(p[r].v[v]);
        take<1>(op, s[v], values, i, down);
      }
    }
    for (; i < end; i += down) {
      Pack<T, V> p = row(i);
#pragma unroll
      for (int v = 0; v < V; ++v) take_one(op, s[v], p.v[v], i);
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) states[y * columns + x * V + v] = s[v];
  combine_down(op, states, columns, down);
  for (int c = threadIdx.x; c < columns; c += kReduceThreads)
    if (first_column + c < a.width) put(a, op, partials, states[c], first_output + first_column + c, piece);
}

// The states of all pieces of an output into its result.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_partials(const __grid_constant__ ReduceArgs a, const __grid_constant__ Op op,
                    const typename Op::State* partials, int across, int64_t pieces) {
  using State = typename Op::State;
  __shared__ alignas(16) unsigned char raw[kReduceThreads * sizeof(State)];
  State* states = reinterpret_cast<State*>(raw);
  const int x = static_cast<int>(threadIdx.x) & (across - 1), y = static_cast<int>(threadIdx.x) / across;
  const int down = kReduceThreads / across;
  const int64_t output = static_cast<int64_t>(blockIdx.x) * across + x;
  State s = op.identity();
  if (output < a.outputs)
    for (int64_t p = y; p < pieces; p += down) op.combine(s, partials[p * a.outputs + output]);
  states[y * across + x] = s;
  combine_down(op, states, across, down);
  if (y == 0 && output < a.outputs) put(a, op, static_cast<State*>(nullptr), states[x], output, 0);
}

template <class Op>
void launch_partials(Encoder& e, const ReduceArgs& a, const Op& op, const typename Op::State* partials,
                     int64_t pieces) {
  int across = 1;
  while (across < 32 && across < a.outputs) across *= 2;
  e.launch(reduce_partials<Op>, Encoder::blocks_for(a.outputs, across), kReduceThreads, 0, a, op, partials, across,
           pieces);
}

template <class Op>
void run_reduce(Encoder& e, const ReduceCall& call, const Op& op) {
  using State = typename Op::State;
  constexpr int kWide = Op::kColumnPack;
  ReducePlan plan = plan_reduce(e, call, {Op::kPack, kWide, Op::kRows, Op::kOrdered});
  const ReduceArgs& a = plan.args;
  if (a.outputs == 0) return;
  if (plan.kind == ReducePlan::partials_only) return launch_partials<Op>(e, a, op, nullptr, 0);
  const bool split = a.pieces > 1;
  std::optional<Workspace> partials;
  if (split) partials.emplace(e, sizeof(State) * static_cast<size_t>(a.pieces * a.outputs));
  State* states = split ? partials->as<State>() : nullptr;
  if (plan.kind == ReducePlan::rows) {
    e.launch(reduce_rows<Op>, plan.blocks, kReduceThreads, 0, a, op, states);
  } else {
    const int64_t strips = plan.blocks / a.pieces;
    if (plan.kind == ReducePlan::columns) {
      e.launch(reduce_columns<Op, 1>, plan.blocks, kReduceThreads, kReduceThreads * sizeof(State), a, op, states,
               strips);
    } else if constexpr (kWide > 1) {
      e.launch(reduce_columns<Op, kWide>, plan.blocks, kReduceThreads, kReduceThreads * kWide * sizeof(State), a, op,
               states, strips);
    }
  }
  if (split) launch_partials<Op>(e, a, op, states, a.pieces);
}

// Ops by file; `call` as for reduce().
void reduce_sum(Encoder& e, const ReduceCall& call);      // sum, mean
void reduce_prod(Encoder& e, const ReduceCall& call);     // prod
void reduce_count(Encoder& e, const ReduceCall& call);    // any, all, count_nonzero, norm with p = 0
void reduce_extreme(Encoder& e, const ReduceCall& call);  // max, min, norm with p = +-inf
void reduce_arg(Encoder& e, const ReduceCall& call);      // argmax, argmin, max and min with indices
void reduce_moments(Encoder& e, const ReduceCall& call);  // var, std, norm, logsumexp

}  // namespace deft::cuda
